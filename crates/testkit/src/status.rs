//! Commands for a running server by its admin socket: reads its counters from the output of `status`, or its metrics.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::wait_until;

/// The response to a scrape over an admin socket, with its header.
pub fn scrape(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket");
    let request = "GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    text
}

/// Runs commands for one server.
pub struct StatusClient {
    program: String,
    admin: PathBuf,
}

impl StatusClient {
    /// Runs commands of `program` for the server with the admin socket `admin`.
    pub fn new(program: &str, admin: impl Into<PathBuf>) -> StatusClient {
        StatusClient {
            program: program.into(),
            admin: admin.into(),
        }
    }

    /// Runs a command.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--admin").arg(&self.admin);
        command.output().expect("the program starts")
    }

    /// Runs a command that must succeed; returns its output.
    pub fn command(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The number in the line of the status that begins with `name`.
    pub fn value(&self, name: &str) -> u64 {
        let output = self.run(&["status"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == name).then(|| words.next()?.parse().ok())?
        });
        number.unwrap_or_else(|| panic!("no {name} in {text:?}"))
    }

    /// Waits until a number is `value`.
    pub fn wait_for(&self, name: &str, value: u64) {
        wait_until(&format!("{name} to be {value}"), || {
            (self.value(name) == value).then_some(())
        });
    }
}
