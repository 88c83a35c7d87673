//! An accelerator in front of a scripted origin.

use lowroad_testkit::origin::{Asked, Origin};
use lowroad_testkit::{Client, Response, Server};

/// The server.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// An accelerator and its origin.
pub struct Front {
    /// The accelerator.
    pub server: Server,
    /// What is behind it.
    pub origin: Origin,
}

impl Front {
    /// In front of this origin.
    pub fn of(origin: Origin) -> Front {
        let arguments = [
            "accelerate",
            &origin.url(),
            "--listen",
            "127.0.0.1:0",
            "--workers",
            "1",
        ];
        Front {
            server: Server::start(PROGRAM, &arguments),
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
