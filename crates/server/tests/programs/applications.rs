//! Published applications, configured as in the documentation.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{skip, wait_until};

use crate::host::Host;
use crate::talk::{self, noise};

const GIT_BACKEND: &str = "/usr/lib/git-core/git-http-backend";

/// As in docs/programs.md, except that the repositories belong to another user.
const GIT: &str = r#"
[[site.route]]
pattern = "/git/**"
cgi = "/usr/lib/git-core/git-http-backend"
timeout = "10m"
BUFFERING
[site.route.env]
GIT_PROJECT_ROOT = "DIR/state"
GIT_HTTP_EXPORT_ALL = "1"
GIT_CONFIG_COUNT = "1"
GIT_CONFIG_KEY_0 = "safe.directory"
GIT_CONFIG_VALUE_0 = "*"
"#;

fn git(folder: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(args).env("HOME", folder);
    git.env("GIT_CONFIG_NOSYSTEM", "1");
    let done = git.output().expect("git runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "git {args:?}: {said}");
}

/// Pushes and clones data that is too long for git to send with Content-Length.
fn pushes_and_clones(buffering: &str) {
    let host = Host::with_routes(&GIT.replace("BUFFERING", buffering), &[]);
    let url = format!("http://{}/git/project.git", host.address());
    let (state, work) = (host.path("state"), host.path("work"));
    host.file("work/short", "a file\n");
    std::fs::write(work.join("long"), noise(3 << 20, 7)).expect("room");
    git(&state, &["init", "--quiet", "--bare", "project.git"]);
    git(
        &state.join("project.git"),
        &["config", "http.receivepack", "true"],
    );
    let opened = Command::new("chmod")
        .arg("-R")
        .arg("a+rwX")
        .arg(&state)
        .status();
    assert!(opened.is_ok_and(|status| status.success()));
    git(&work, &["init", "--quiet", "-b", "main"]);
    git(&work, &["add", "."]);
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    git(
        &work,
        &[&who[..], &["commit", "--quiet", "-m", "long"]].concat(),
    );
    git(&work, &["push", "--quiet", &url, "main"]);
    git(&work, &["clone", "--quiet", "-b", "main", &url, "../copy"]);
    let copy = std::fs::read(host.path("copy/long")).expect("a copy");
    assert!(copy == noise(3 << 20, 7));
}

#[test]
fn git_http_backend_pushes_and_clones() {
    if !Path::new(GIT_BACKEND).exists() {
        return skip("git_http_backend_pushes_and_clones", "no git-http-backend");
    }
    pushes_and_clones("");
    // Without request buffering, chunked bodies are still read completely first.
    pushes_and_clones("request_buffering = false");
}

/// An application in Go, with the FastCGI of its standard library.
const GO: &str = r#"package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
)

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	os.Chmod(os.Args[1], 0666)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/app/early" {
			http.Error(w, "not now", 409)
			return
		}
		body, _ := io.ReadAll(r.Body)
		env := fcgi.ProcessEnv(r)
		fmt.Fprintf(w, "%s %s?%s %d [%s]", r.Method, r.URL.Path, r.URL.RawQuery, len(body), env["SCRIPT_FILENAME"])
	})
	fcgi.Serve(listener, nil)
}
"#;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn go_fastcgi_program_is_mounted_at_a_prefix() {
    let route =
        "[[site.route]]\npattern = \"/app/**\"\nfastcgi = \"unix:DIR/go.sock\"\nscript = \"\"\n";
    let host = Host::with_routes(route, &[]);
    host.file("go/main.go", GO);
    let program = host.path("go/program");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg("main.go");
    build.current_dir(host.path("go")).env("GO111MODULE", "off");
    match build.output() {
        Ok(built) if built.status.success() => {}
        built => {
            return skip(
                "go_fastcgi_program_is_mounted_at_a_prefix",
                &format!("no go: {built:?}"),
            );
        }
    }
    let socket = host.path("go.sock");
    let started = Command::new(program)
        .arg(&socket)
        .stdin(Stdio::null())
        .spawn();
    let _program = Program(started.expect("it starts"));
    wait_until("the program", || {
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
    let mut client = host.connect();
    for path in ["/app/", "/app/a/b.php", "/app/.x/y"] {
        let (got, _) = talk::request_on(&mut client, "GET", &format!("{path}?q=1"), "");
        assert_eq!(got.text(), format!("GET {path}?q=1 0 []"));
    }
    let (got, _) = talk::request_on(&mut client, "PROPFIND", "/app/a", "");
    assert_eq!(got.text(), "PROPFIND /app/a? 0 []");
    let long = "x".repeat(3 << 20);
    let (got, _) = talk::post(&mut client, "/app/post", &long);
    assert_eq!(got.text(), format!("POST /app/post? {} []", 3 << 20));
    // The program responds before it has read any of the body.
    for _ in 0..5 {
        let (got, _) = talk::post(&mut client, "/app/early", &long);
        assert_eq!((got.status, got.text()), (409, "not now\n".into()));
    }
}
