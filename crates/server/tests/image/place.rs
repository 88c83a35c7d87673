//! Running `lowroad image` for a test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use lowroad_testkit::{PATIENCE, TempFolder, wait_until};

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Runs `lowroad image` to its end; returns standard output, or standard error if it failed.
pub fn image(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    let done = command
        .arg("image")
        .args(arguments)
        .output()
        .expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    match done.status.success() {
        true => Ok(text(done.stdout)),
        false => Err(text(done.stderr)),
    }
}

/// The path of a file in a folder, as text.
pub fn path(folder: &TempFolder, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// A program that runs until it is stopped; killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a command and reads its standard output.
    pub fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            // A bootloader also writes non-text bytes.
            for line in stdout.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running { child, lines }
    }

    /// Waits for a line that contains `text`.
    pub fn wait_for(&self, text: &str) -> String {
        let mut others = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => others.push(line),
                Err(_) => panic!("no line with {text:?}, but {others:?}"),
            }
        }
    }

    /// Stops it by SIGINT, and waits for its end.
    pub fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(done.expect("kill").success());
        self.end()
    }

    /// Waits until it ends without a signal.
    pub fn end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_until("its end", || child.try_wait().expect("a child of ours"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
