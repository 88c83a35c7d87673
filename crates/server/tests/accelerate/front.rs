//! An accelerator in front of a scripted origin.

use std::process::Command;

pub use lowroad_testkit::origin::{Asked, Origin};
pub use lowroad_testkit::wait_until;
use lowroad_testkit::{Client, Folder, Response, Server};

/// The server.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// An accelerator and its origin.
pub struct Front {
    /// The accelerator.
    pub server: Server,
    /// What is behind it.
    pub origin: Origin,
    /// Where its admin socket is.
    runtime: Folder,
}

impl Front {
    /// In front of this origin.
    pub fn of(origin: Origin) -> Front {
        Front::started(1, origin, &[])
    }

    /// In front of an origin that answers as `answer` says, with more arguments.
    pub fn with(answer: impl Fn(&Asked) -> String + Send + Sync + 'static, more: &[&str]) -> Front {
        Front::started(1, Origin::saying(answer), more)
    }

    /// In front of this origin, with so many workers.
    pub fn of_workers(workers: usize, origin: Origin) -> Front {
        Front::started(workers, origin, &[])
    }

    /// In front of this origin, with these lines of `[site.route.cache]`.
    pub fn caching(origin: Origin, lines: &str) -> Front {
        let folder = Folder::new();
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
             origin = \"{}\"\n[site.route.cache]\n{lines}\n",
            origin.url()
        );
        Front {
            server: Server::run(PROGRAM, &folder, &config),
            runtime: folder,
            origin,
        }
    }

    /// In front of this origin, with these lines of `[[site.route]]`.
    pub fn routing(origin: Origin, lines: &str) -> Front {
        let folder = Folder::new();
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
             origin = \"{}\"\n{lines}\n",
            origin.url()
        );
        let file = folder.file("lowroad.toml", config);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(file);
        command.env("RUNTIME_DIRECTORY", folder.path());
        Front {
            server: Server::spawn(command),
            runtime: folder,
            origin,
        }
    }

    fn started(workers: usize, origin: Origin, more: &[&str]) -> Front {
        let (url, runtime) = (origin.url(), Folder::new());
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
        Front {
            server: Server::spawn(command),
            runtime,
            origin,
        }
    }

    /// In front of an origin that answers as `answer` says.
    pub fn saying(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Front {
        Front::of(Origin::saying(answer))
    }

    /// A GET on a connection of its own, with these field lines.
    pub fn get(&self, path: &str, fields: &str) -> Response {
        self.server.connect().get(path, fields)
    }

    /// A request without a body on a connection of its own.
    pub fn ask(&self, method: &str, path: &str, fields: &str) -> Response {
        let mut client = self.server.connect();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        match method {
            "HEAD" => client.response_to_head(),
            _ => client.response(),
        }
    }

    /// What a command says that asks the server.
    pub fn say(&self, arguments: &[&str]) -> String {
        let socket = format!("{}.sock", self.server.pid());
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("--admin");
        command.arg(self.runtime.path().join(socket));
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A connection.
    pub fn connect(&self) -> Client {
        self.server.connect()
    }
}

/// A response with these field lines and this body.
pub fn response(status: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{fields}\r\n{body}")
}

/// The same, 200, with the number of the request as its body.
pub fn numbered(asked: &Asked, fields: &str) -> String {
    response("200 OK", fields, &asked.number.to_string())
}
