//! QEMU's monitor (QMP). Each guest has one at an abstract socket name. Independent of the guest's content.

use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Maximum time until an answer arrives; after that, the guest is considered dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// QEMU's arguments for the monitor of the guest with this network device.
pub fn arguments(device: &str) -> [String; 4] {
    let name = name(device);
    [
        "-chardev".into(),
        format!("socket,id=qmp,path={name},abstract=on,server=on,wait=off"),
        "-mon".into(),
        "chardev=qmp,mode=control".into(),
    ]
}

fn name(device: &str) -> String {
    format!("lowroad-lab-{device}")
}

/// The connection to a guest's monitor.
pub struct QemuMonitor(BufReader<UnixStream>);

impl QemuMonitor {
    /// Connects to the monitor of the guest that has this network device.
    ///
    /// # Errors
    /// There is no monitor.
    pub fn connect(device: &str) -> io::Result<QemuMonitor> {
        let address = SocketAddr::from_abstract_name(name(device))?;
        let stream = UnixStream::connect_addr(&address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = QemuMonitor(BufReader::new(stream));
        // QMP begins with a greeting, and accepts no other command before qmp_capabilities.
        monitor.line()?;
        monitor.send_command("{\"execute\":\"qmp_capabilities\"}")?;
        Ok(monitor)
    }

    /// Writes the guest's state to a file, for [`incoming_arguments`]. The guest stays stopped afterwards.
    ///
    /// # Errors
    /// The state can't be written.
    pub fn save(&mut self, file: &Path) -> io::Result<()> {
        const STEP: Duration = Duration::from_millis(10);
        const BYTES_PER_S: u64 = 1 << 34;
        // By default QEMU limits the bandwidth of a migration, which would slow down the write.
        let parameters = format!(
            "{{\"execute\":\"migrate-set-parameters\",\"arguments\":{{\"max-bandwidth\":{BYTES_PER_S}}}}}"
        );
        self.send_command(&parameters)?;
        // The path is quoted twice: for the shell that `exec:` starts, and for the JSON string.
        let destination = shell_quoted(file)
            .replace('\\', "\\\\")
            .replace('"', "\\\"");
        self.send_command(&format!(
            "{{\"execute\":\"migrate\",\"arguments\":{{\"uri\":\"exec:cat > {destination}\"}}}}"
        ))?;
        loop {
            let reply = self.send_command("{\"execute\":\"query-migrate\"}")?;
            let has_status = |status: &str| reply.contains(&format!("\"status\": \"{status}\""));
            if has_status("completed") {
                return Ok(());
            }
            if has_status("failed") || has_status("cancelled") {
                return Err(io::Error::other(reply));
            }
            sleep(STEP);
        }
    }

    /// Sends a QMP command and returns the answer.
    fn send_command(&mut self, command: &str) -> io::Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())?;
        loop {
            let line = self.line()?;
            // Lines before the answer are asynchronous events.
            if line.starts_with("{\"return\"") {
                return Ok(line);
            }
            if line.starts_with("{\"error\"") {
                return Err(io::Error::other(line));
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }
}

/// QEMU's arguments for resuming a guest from a saved state.
pub fn incoming_arguments(file: &Path) -> [String; 2] {
    [
        "-incoming".into(),
        format!("exec:cat {}", shell_quoted(file)),
    ]
}

/// Quotes a path for a shell.
fn shell_quoted(file: &Path) -> String {
    format!("'{}'", file.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_quoting_preserves_spaces_and_quotes() {
        assert_eq!(shell_quoted(Path::new("/a b/c's")), r"'/a b/c'\''s'");
    }
}
