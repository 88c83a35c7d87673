//! A php-fpm process with a test's configuration.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{TempFolder, wait_until};

/// A php-fpm process, which ends on drop.
pub struct Fpm(Child);

impl Fpm {
    /// Starts a process that listens on `fpm.sock` in the folder; `None` if php-fpm is not installed.
    pub fn start(folder: &TempFolder) -> Option<Fpm> {
        let program = program()?;
        let socket = folder.path().join("fpm.sock");
        // The server connects after it has given up root.
        let config = format!(
            "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\nlisten = {1}\n\
             listen.mode = 0666\npm = static\npm.max_children = 2\nuser = root\ngroup = root\n",
            folder.path().display(),
            socket.display(),
        );
        let config = folder.file("fpm.conf", config);
        let mut command = Command::new(program);
        command.args(["-F", "-R", "-y"]).arg(config);
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let fpm = Fpm(command.spawn().expect("php-fpm starts"));
        wait_until("php-fpm", || UnixStream::connect(&socket).ok());
        Some(fpm)
    }
}

/// The path of php-fpm of any version.
fn program() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/usr/sbin").ok()?.flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().contains("/php-fpm"))
        .max()
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // SIGTERM also ends its child processes.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}
