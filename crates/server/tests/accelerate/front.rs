//! An accelerator in front of a scripted origin. `src/simulation/front.rs` has the same names for the simulator.

use std::process::Command;

pub use lowroad_testkit::origin::{OriginRequest, TestOrigin};
pub use lowroad_testkit::wait_until;
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer};

/// The server.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// An accelerator (`lowroad accelerate` or `run`) and its origin.
pub struct TestAccelerator {
    /// The accelerator.
    pub server: TestServer,
    /// The origin behind it.
    pub origin: TestOrigin,
    /// The folder of the accelerator's admin socket.
    runtime: TempFolder,
}

impl TestAccelerator {
    /// An accelerator in front of this origin.
    pub fn new(origin: TestOrigin) -> TestAccelerator {
        TestAccelerator::start(1, origin, &[])
    }

    /// An accelerator with additional arguments, in front of an origin that answers with `answer`.
    pub fn with_arguments(
        answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
        more: &[&str],
    ) -> TestAccelerator {
        TestAccelerator::start(1, TestOrigin::with_response(answer), more)
    }

    /// An accelerator with this number of workers.
    pub fn with_workers(workers: usize, origin: TestOrigin) -> TestAccelerator {
        TestAccelerator::start(workers, origin, &[])
    }

    /// An accelerator with these lines of `[site.route.cache]`.
    pub fn with_cache_settings(origin: TestOrigin, lines: &str) -> TestAccelerator {
        let folder = TempFolder::new();
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
             origin = \"{}\"\n[site.route.cache]\n{lines}\n",
            origin.url()
        );
        TestAccelerator {
            server: TestServer::run(PROGRAM, &folder, &config),
            runtime: folder,
            origin,
        }
    }

    /// An accelerator with these lines of `[[site.route]]`.
    pub fn with_route_settings(origin: TestOrigin, lines: &str) -> TestAccelerator {
        let lines = format!("[[site.route]]\npattern = \"/**\"\norigin = \"URL\"\n{lines}\n");
        TestAccelerator::with_site(origin, &lines)
    }

    /// An accelerator with these tables of a site, in which `URL` stands for the URL of the origin.
    pub fn with_site(origin: TestOrigin, lines: &str) -> TestAccelerator {
        let folder = TempFolder::new();
        let lines = lines.replace("URL", &origin.url());
        let root = folder.path().display();
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n{lines}"
        );
        let file = folder.file("lowroad.toml", config);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(file);
        command.env("RUNTIME_DIRECTORY", folder.path());
        TestAccelerator {
            server: TestServer::spawn(command),
            runtime: folder,
            origin,
        }
    }

    fn start(workers: usize, origin: TestOrigin, more: &[&str]) -> TestAccelerator {
        let (url, runtime) = (origin.url(), TempFolder::new());
        let workers = workers.to_string();
        let arguments = [
            "accelerate",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--workers",
            &workers,
        ];
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(more);
        command.env("RUNTIME_DIRECTORY", runtime.path());
        TestAccelerator {
            server: TestServer::spawn(command),
            runtime,
            origin,
        }
    }

    /// An accelerator in front of an origin that answers with `answer`.
    pub fn with_response(
        answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
    ) -> TestAccelerator {
        TestAccelerator::new(TestOrigin::with_response(answer))
    }

    /// Sends a GET with these field lines on a new connection.
    pub fn get(&self, path: &str, fields: &str) -> ClientResponse {
        self.server.connect().get(path, fields)
    }

    /// Sends a request without a body on a new connection.
    pub fn request(&self, method: &str, path: &str, fields: &str) -> ClientResponse {
        let mut client = self.server.connect();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        match method {
            "HEAD" => client.response_to_head(),
            _ => client.response(),
        }
    }

    /// The output of a command that queries the accelerator, such as `status`.
    pub fn run_command(&self, arguments: &[&str]) -> String {
        let socket = format!("{}.sock", self.server.pid());
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("--admin");
        command.arg(self.runtime.path().join(socket));
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Opens a connection.
    pub fn connect(&self) -> TestClient {
        self.server.connect()
    }
}

/// A response with these field lines and this body.
pub fn response(status: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{fields}\r\n{body}")
}

/// A 200 response with the request's number as its body.
pub fn numbered_response(request: &OriginRequest, fields: &str) -> String {
    response("200 OK", fields, &request.number.to_string())
}
