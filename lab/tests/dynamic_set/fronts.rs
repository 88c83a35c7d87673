//! Builds and calls the fronts of the dynamic set. Fronts with requirements that this machine lacks are skipped, with a
//! note.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use lowroad_lab::workload::files;
use lowroad_testkit::{TempFolder, skip};

use crate::fastcgi;

/// A request.
#[derive(Clone, Debug)]
pub struct TestRequest {
    pub method: &'static str,
    pub query: String,
    pub cookie: String,
    pub form: String,
}

pub fn get(query: &str, cookie: &str) -> TestRequest {
    TestRequest {
        method: "GET",
        query: query.to_string(),
        cookie: cookie.to_string(),
        form: String::new(),
    }
}

pub fn form(form: &str, cookie: &str) -> TestRequest {
    TestRequest {
        method: "POST",
        form: form.to_string(),
        ..get("", cookie)
    }
}

impl TestRequest {
    /// The request's CGI variables.
    fn variables(&self, data: &TestFileSet) -> Vec<(&'static str, String)> {
        let text = |path: PathBuf| path.display().to_string();
        vec![
            ("GATEWAY_INTERFACE", "CGI/1.1".to_string()),
            ("REQUEST_METHOD", self.method.to_string()),
            ("QUERY_STRING", self.query.clone()),
            ("HTTP_COOKIE", self.cookie.clone()),
            ("SERVER_SOFTWARE", "Lowroad".to_string()),
            ("REMOTE_ADDR", "127.0.0.1".to_string()),
            ("SCRIPT_NAME", "/specweb99".to_string()),
            (
                "CONTENT_TYPE",
                "application/x-www-form-urlencoded".to_string(),
            ),
            ("CONTENT_LENGTH", self.form.len().to_string()),
            ("DOCUMENT_ROOT", text(data.site())),
            ("SPECWEB99_DATA", text(data.folder())),
        ]
    }
}

/// The parts of a response that are compared.
#[derive(Debug, PartialEq, Eq)]
pub struct ComparedResponse {
    pub status: u16,
    pub content_type: String,
    pub set_cookie: Option<String>,
    pub body: Vec<u8>,
}

impl ComparedResponse {
    /// Parses the output of a CGI program.
    pub fn parse(bytes: &[u8]) -> ComparedResponse {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let body = bytes[end + 4..].to_vec();
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
            values.next().map(|(_, value)| value.to_string())
        };
        if let Some(len) = field("Content-Length") {
            assert_eq!(len, body.len().to_string());
        }
        let status = field("Status").unwrap_or_else(|| "200".to_string());
        let content_type = field("Content-Type").expect("a type");
        ComparedResponse {
            status: status[..3].parse().expect("a status"),
            // PHP appends a charset to the type.
            content_type: content_type.split(';').next().unwrap_or("").to_string(),
            set_cookie: field("Set-Cookie"),
            body,
        }
    }
}

/// A file set with its data.
pub struct TestFileSet(TempFolder);

impl TestFileSet {
    pub fn new(connections: u32) -> TestFileSet {
        let folder = TempFolder::in_memory();
        let settings = [
            ("dirs", "1".to_string()),
            ("connections", connections.to_string()),
        ];
        let settings: BTreeMap<String, String> = settings
            .into_iter()
            .map(|(name, value)| (name.to_string(), value))
            .collect();
        files::make("specweb99", &settings, folder.path(), &mut |_| ()).expect("a file set");
        TestFileSet(folder)
    }

    fn site(&self) -> PathBuf {
        self.0.path().join("site")
    }

    /// The folder with site and data.
    pub fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }

    pub fn folder(&self) -> PathBuf {
        self.0.path().join("specweb99-data")
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder().join(name)).expect("a data file")
    }

    pub fn site_file(&self, path: &str) -> Vec<u8> {
        let path = self.site().join(path.trim_start_matches('/'));
        std::fs::read(path).expect("a file of the set")
    }

    pub fn log(&self) -> Vec<u8> {
        self.file("post.log")
    }
}

/// The folder of the built fronts.
pub struct BuiltFronts(PathBuf);

impl BuiltFronts {
    /// Builds the fronts once; returns `None`, with a note, if there is no C compiler.
    pub fn new(test: &str) -> Option<BuiltFronts> {
        static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
        let built = BUILT.get_or_init(build).clone();
        if built.is_none() {
            skip(test, "there is no C compiler (package gcc)");
        }
        built.map(BuiltFronts)
    }

    /// The path of a built file, which may be missing.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Calls the CGI program.
    pub fn cgi(&self, data: &TestFileSet, ask: &TestRequest) -> ComparedResponse {
        let mut command = Command::new(self.0.join("specweb99.cgi"));
        run_gateway(command.env_clear(), data, ask)
    }

    pub fn has_php(&self) -> bool {
        Command::new("php-cgi")
            .arg("-v")
            .output()
            .is_ok_and(|output| output.status.success())
    }

    /// Calls the lab's PHP program as a CGI program, if PHP is installed.
    pub fn php(&self, data: &TestFileSet, ask: &TestRequest) -> Option<ComparedResponse> {
        if !self.has_php() {
            skip("dynamic set in PHP", "php-cgi is not installed");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/php/specweb99.php");
        let mut command = Command::new("php-cgi");
        command
            .env("SCRIPT_FILENAME", script)
            .env("REDIRECT_STATUS", "200");
        let answer = run_gateway(&mut command, data, ask);
        // The error texts for incomplete commands differ between the two.
        let is_refused_command = ask.query.starts_with("command/") && answer.status == 400;
        (!is_refused_command).then_some(answer)
    }

    /// Calls the shared library `times` times; returns the last response.
    pub fn library(&self, data: &TestFileSet, ask: &TestRequest, times: usize) -> ComparedResponse {
        let mut command = Command::new(self.0.join("host"));
        command.args(["--repeat", &times.to_string()]);
        command.arg(self.0.join("specweb99.so"));
        command.args([data.site(), data.folder()]);
        let target = format!("/specweb99?{}", ask.query);
        command.args([ask.method, &target, &ask.cookie, &ask.form]);
        let output = command.output().expect("the host runs");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ask:?}: {problem}");
        ComparedResponse::parse(&output.stdout)
    }
}

fn run_gateway(command: &mut Command, data: &TestFileSet, ask: &TestRequest) -> ComparedResponse {
    command.envs(ask.variables(data));
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = streams.spawn().expect("the program runs");
    let mut input = child.stdin.take().expect("a pipe");
    // A program that rejects the request does not read the form, so the write may fail.
    let _ = input.write_all(ask.form.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("an answer");
    ComparedResponse::parse(&output.stdout)
}

fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/specweb99");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("specweb99");
    Command::new("cc").arg("--version").output().ok()?;
    let run = |command: &mut Command| {
        let output = command.output().expect("a program of the system");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{problem}");
    };
    run(Command::new(source.join("build.sh")).arg(&folder));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]);
    compiler.arg(source.join("../../crates/module/include"));
    compiler.arg("-o").arg(folder.join("host"));
    run(compiler.arg(source.join("tests/host.c")).arg("-ldl"));
    Some(folder)
}

/// FastCGI processes on one socket.
pub struct FastCgi<'a> {
    data: &'a TestFileSet,
    socket: PathBuf,
    processes: Vec<Child>,
}

impl<'a> FastCgi<'a> {
    /// Starts this many processes; `None`, with a note, if the program was not built.
    pub fn start(
        built: &BuiltFronts,
        data: &'a TestFileSet,
        processes: usize,
    ) -> Option<FastCgi<'a>> {
        let program = built.0.join("specweb99-fastcgi");
        if !program.is_file() {
            skip("dynamic set by FastCGI", "libfcgi-dev is not installed");
            return None;
        }
        let socket = data.0.path().join("fastcgi.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let start = |_| {
            let listener = listener.try_clone().expect("a descriptor");
            let mut command = Command::new(&program);
            command.stdin(std::os::fd::OwnedFd::from(listener));
            command.spawn().expect("the program runs")
        };
        Some(FastCgi {
            data,
            processes: (0..processes).map(start).collect(),
            socket,
        })
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).expect("a connection")
    }

    pub fn ask(&self, ask: &TestRequest) -> ComparedResponse {
        self.ask_with(&mut self.connect(), ask)
    }

    pub fn ask_with(&self, client: &mut UnixStream, ask: &TestRequest) -> ComparedResponse {
        let answer = fastcgi::ask(client, &ask.variables(self.data), ask.form.as_bytes());
        ComparedResponse::parse(&answer)
    }
}

impl Drop for FastCgi<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
