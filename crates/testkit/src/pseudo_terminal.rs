//! A program on a pseudoterminal (pty(7)). The test holds the other side.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{TEST_TIMEOUT, wait_until};

/// A program that runs on a terminal.
pub struct PseudoTerminal {
    terminal: File,
    child: Child,
    output: Receiver<Vec<u8>>,
    received: Vec<u8>,
}

impl PseudoTerminal {
    /// Starts a program on a terminal with this number of columns and rows.
    pub fn start(program: &str, arguments: &[&str], columns: u16, rows: u16) -> PseudoTerminal {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("its owner");
        unlockpt(&terminal).expect("its lock");
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let path = Path::new(name.to_str().expect("a path"));
        let open = || {
            let file = File::options().read(true).write(true).open(path);
            Stdio::from(file.expect("the terminal"))
        };
        let terminal = File::from(terminal);
        set_size(&terminal, columns, rows);
        // setsid(1) makes it the controlling terminal, so that the kernel sends SIGWINCH and SIGINT.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", program])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("setsid(1)");
        let mut reader = terminal.try_clone().expect("a descriptor");
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // At the end of the program the read fails with EIO.
            while let Ok(len @ 1..) = reader.read(&mut chunk) {
                // A terminal answers the question for the cursor's position.
                if chunk[..len].windows(4).any(|it| it == b"\x1b[6n") {
                    let _ = reader.write_all(b"\x1b[1;1R");
                }
                if sender.send(chunk[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        PseudoTerminal {
            terminal,
            child,
            output,
            received: Vec::new(),
        }
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        set_size(&self.terminal, columns, rows);
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.terminal
            .write_all(keys.as_bytes())
            .expect("the terminal");
    }

    /// Forgets the output so far.
    pub fn forget(&mut self) {
        self.receive();
        self.received.clear();
    }

    /// The output, with control sequences.
    pub fn text(&mut self) -> String {
        self.receive();
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Waits until the output contains a text. A program that draws only changes may leave out spaces, so the text
    /// should be a word.
    pub fn wait_for_text(&mut self, text: &str) {
        let start = std::time::Instant::now();
        while !self.text().contains(text) {
            let shown = String::from_utf8_lossy(&self.received).into_owned();
            assert!(start.elapsed() < TEST_TIMEOUT, "{text:?} in {shown:?}");
            // New output ends the wait.
            if let Ok(chunk) = self.output.recv_timeout(TEST_TIMEOUT) {
                self.received.extend(chunk);
            }
        }
    }

    /// Waits for the end of the program.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        wait_until("the end of the program", || {
            self.child.try_wait().expect("a child")
        })
    }

    fn receive(&mut self) {
        self.received.extend(self.output.try_iter().flatten());
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("a terminal");
}
