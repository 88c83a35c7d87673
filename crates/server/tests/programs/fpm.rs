//! A php-fpm with a configuration of its own.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{Folder, wait_until};

/// A php-fpm; ended at the end.
pub struct Fpm(Child);

impl Fpm {
    /// Starts one that listens at `fpm.sock` in the folder. `None` where there is no php-fpm.
    pub fn start(folder: &Folder) -> Option<Fpm> {
        let program = program()?;
        let socket = folder.path().join("fpm.sock");
        // The server has given up root when it connects.
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

/// Where php-fpm is, whatever its version.
fn program() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/usr/sbin").ok()?.flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().contains("/php-fpm"))
        .max()
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // Asked to end, it ends its processes too.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}
