//! Runs `lowroad image` for the tests.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use lowroad_testkit::{TEST_TIMEOUT, TempFolder, wait_until};

/// The path of the `lowroad` program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Runs `lowroad image` until it ends. Returns standard output, or standard error if it fails.
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

/// A running command. It is killed when dropped.
pub struct RunningCommand {
    child: Child,
    lines: Receiver<String>,
}

impl RunningCommand {
    /// Starts a command, and reads its standard output in a thread.
    pub fn start(mut command: Command) -> RunningCommand {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            // A bootloader also writes bytes that are not text.
            for line in stdout.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        RunningCommand { child, lines }
    }

    /// Waits for a line that contains `text`.
    pub fn wait_for(&self, text: &str) -> String {
        let mut others = Vec::new();
        loop {
            match self.lines.recv_timeout(TEST_TIMEOUT) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => others.push(line),
                Err(_) => panic!("no line with {text:?}, but {others:?}"),
            }
        }
    }

    /// Stops the command by SIGINT, and waits for its end.
    pub fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(done.expect("kill").success());
        self.end()
    }

    /// Waits until the command ends without a signal.
    pub fn end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_until("its end", || child.try_wait().expect("a child of ours"))
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
