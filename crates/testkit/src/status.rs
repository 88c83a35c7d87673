//! Reads counters of a running server from the output of its `status` command.

use std::path::PathBuf;
use std::process::Command;

use crate::wait_until;

/// Reads the status of one server.
pub struct StatusClient {
    program: String,
    admin: PathBuf,
}

impl StatusClient {
    /// Reads the status of the server with the admin socket `admin`.
    pub fn new(program: &str, admin: impl Into<PathBuf>) -> StatusClient {
        StatusClient {
            program: program.into(),
            admin: admin.into(),
        }
    }

    /// The number in the line that begins with `name`.
    pub fn value(&self, name: &str) -> u64 {
        let output = Command::new(&self.program)
            .args(["status", "--admin"])
            .arg(&self.admin)
            .output()
            .expect("the status command");
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
