//! A server with one site in the folder `root`, and other folders next to `root`.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use lowroad_testkit::{ClientResponse, TempFolder, TestServer};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

pub struct Place {
    pub folder: TempFolder,
    pub server: TestServer,
}

impl Place {
    /// Starts a site with these files, each of which contains its own path, and these configuration lines, in which
    /// `{}` is the surrounding folder.
    pub fn new(files: &[&str], lines: &str) -> Place {
        Place::after(TempFolder::new(), files, lines)
    }

    /// As `new`, with the folder's existing contents.
    pub fn after(folder: TempFolder, files: &[&str], lines: &str) -> Place {
        std::fs::create_dir_all(folder.path().join("root")).expect("a folder");
        for name in files {
            folder.file(name, name);
        }
        let server = TestServer::run(PROGRAM, &folder, &config(&folder, lines));
        Place { folder, server }
    }

    pub fn get(&self, path: &str) -> ClientResponse {
        self.get_with(path, "")
    }

    pub fn get_with(&self, path: &str, fields: &str) -> ClientResponse {
        self.server.connect().get(path, fields)
    }

    /// The body of a 200 response to a path, or the status.
    pub fn body_or_status(&self, path: &str) -> String {
        let got = self.get(path);
        match got.status {
            200 => got.text(),
            status => status.to_string(),
        }
    }

    /// The output of a command.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = run(arguments);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// The path of the admin socket.
    pub fn admin(&self) -> String {
        self.folder.path().join("admin.sock").display().to_string()
    }

    pub fn explain(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.server.address());
        let admin = self.folder.path().join("admin.sock");
        let output = run(&["explain", &url, "--admin", &admin.display().to_string()]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The whole configuration of a site with these lines.
fn config(folder: &TempFolder, lines: &str) -> String {
    let path = folder.path().display().to_string();
    let lines = lines.replace("{}", &path);
    format!(
        "[server]\nadmin = \"{path}/admin.sock\"\n[log]\naccess = \"{path}/access.log\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{path}/root\"\n{lines}"
    )
}

/// The output of `lowroad check` for a site with these lines.
pub fn check(lines: &str) -> String {
    let folder = TempFolder::new();
    std::fs::create_dir_all(folder.path().join("root")).expect("a folder");
    let file = folder.file("lowroad.toml", config(&folder, lines));
    let output = run(&["check", "-c", &file.display().to_string()]);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).output().expect("the command")
}

/// Writes a program.
pub fn program(folder: &TempFolder, name: &str, text: &str) {
    let file = folder.file(name, text);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, mode).expect("a mode");
}

/// A CGI program that returns its request.
pub const SAY: &str = "#!/bin/sh
body=$(cat)
said=\"$REQUEST_METHOD uri=$REQUEST_URI query=$QUERY_STRING script=$SCRIPT_NAME info=$PATH_INFO${body:+ $body}\"
printf 'Content-Type: text/plain\\nContent-Length: %d\\n\\n%s' ${#said} \"$said\"
";

/// The body of a 200 response to a path over HTTP/2, or the status; `None` without curl.
pub fn by_http2(place: &Place, path: &str) -> Option<String> {
    let url = format!("http://{}{path}", place.server.address());
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--max-time",
        "60",
        "--http2-prior-knowledge",
        "--path-as-is",
    ]);
    let output = command
        .args(["-w", "\n%{http_version} %{http_code}", &url])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once("\n2 ").expect(&text);
    Some(match status {
        "200" => body.into(),
        status => status.into(),
    })
}

/// A user file: `ann` with a cheap bcrypt hash.
pub fn users(folder: &TempFolder) {
    let ann = bcrypt::hash("secret of ann", 4).expect("a hash");
    folder.file("users", format!("ann:{ann}\n"));
}

/// The Authorization field for a user and password.
pub fn basic(user: &str, password: &str) -> String {
    use base64::Engine;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {pair}\r\n")
}
