//! Runs an image in QEMU: starts QEMU, prints the guest's console, and powers the guest off. Console and control
//! channel (QMP) are socket pairs, so no files are created.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowroad_child_processes::process::{ChildProcess, readable, ready};

use super::options::QemuBoard;
use crate::terminal_output;

pub const PROGRAM: &str = "qemu-system-x86_64";
/// The package that contains QEMU.
const PACKAGE: &str = "qemu-system-x86";
/// Time in which the guest may complete its requests after its power button was pressed.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// The virtual machine to run.
pub struct QemuMachine {
    /// The path of the image.
    pub kernel: PathBuf,
    /// The image's command line.
    pub append: String,
    /// The machine type.
    pub board: QemuBoard,
    /// The network connection.
    pub net: QemuNetwork,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cores: u32,
    /// QEMU's accelerator.
    pub accel: String,
}

/// The network connection of a virtual machine.
pub enum QemuNetwork {
    /// A tap device with this name, and the number of its queues to use.
    Tap(String, u32),
    /// QEMU's user network, which forwards connections to this address of the host to port 80 of the guest.
    Forwarded(SocketAddr),
}

/// Runs a virtual machine until it powers off by itself. A byte from `stop` powers it off, and a second byte kills
/// QEMU.
///
/// # Errors
/// When QEMU does not start or fails.
pub fn run(machine: &QemuMachine, stop: &UnixStream) -> Result<(), String> {
    let mut qemu = QemuProcess::start(machine)?;
    let status = qemu.wait_for_exit(stop)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{PROGRAM} failed: {status}")),
    }
}

/// Checks that QEMU is in a folder of PATH. setpriv, which starts QEMU, would report a missing program without a
/// remedy.
fn require(program: &str, path: &OsStr) -> Result<(), String> {
    match std::env::split_paths(path).any(|folder| folder.join(program).is_file()) {
        true => Ok(()),
        false => Err(format!(
            "{program} is missing: install the package {PACKAGE} (Debian, Ubuntu), or the system's QEMU for x86-64"
        )),
    }
}

struct QemuProcess {
    child: ChildProcess,
    control: UnixStream,
    /// The QMP command that powers the guest off.
    power_off_command: &'static str,
    console: Option<JoinHandle<()>>,
}

impl QemuProcess {
    fn start(machine: &QemuMachine) -> Result<QemuProcess, String> {
        let describe = |error: io::Error| format!("{PROGRAM}: {error}");
        require(PROGRAM, &std::env::var_os("PATH").unwrap_or_default())?;
        let (console, console_writer) = UnixStream::pair().map_err(describe)?;
        // With setpriv the kernel kills QEMU when this process ends, also after a crash. Ctrl-C does not signal QEMU,
        // because it is in a separate process group.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", PROGRAM])
            .args(arguments(machine))
            .process_group(0)
            .stdout(OwnedFd::from(console_writer));
        let result = ChildProcess::spawn_with_stream(command);
        let (child, mut control) = result.map_err(|error| match error.kind() {
            ErrorKind::NotFound => "setpriv is missing: install util-linux".to_string(),
            _ => describe(error),
        })?;
        control
            // QMP accepts other commands only after this one.
            .write_all(b"{\"execute\":\"qmp_capabilities\"}\n")
            .map_err(describe)?;
        let console = Some(thread::spawn(move || relay(console)));
        let power_off_command = match machine.board {
            QemuBoard::Q35 => "system_powerdown",
            // A microvm has no power button, because its ACPI is off.
            QemuBoard::Microvm => "quit",
        };
        Ok(QemuProcess {
            child,
            control,
            power_off_command,
            console,
        })
    }

    /// Waits until the guest has powered off. A byte from `stop` makes QEMU power the guest off.
    fn wait_for_exit(&mut self, stop: &UnixStream) -> Result<ExitStatus, String> {
        let failed = |error: io::Error| format!("{PROGRAM}: {error}");
        let mut deadline = None;
        while !self.has_exited(stop, deadline).map_err(failed)? {
            let mut signals = stop;
            match (signals.read(&mut [0]).is_ok(), deadline) {
                (true, None) => {
                    terminal_output::note("stopping; repeat to end it at once");
                    _ = writeln!(
                        self.control,
                        "{{\"execute\":\"{}\"}}",
                        self.power_off_command
                    );
                    deadline = Some(Instant::now() + STOP_TIMEOUT);
                }
                (true, Some(_)) => {
                    return Err("ended before all requests were answered".to_string());
                }
                (false, Some(end)) if Instant::now() >= end => {
                    let timeout_s = STOP_TIMEOUT.as_secs();
                    return Err(format!(
                        "the image did not stop within {timeout_s} s, and was killed"
                    ));
                }
                _ => {}
            }
        }
        let status = self.child.reap();
        if let Some(console) = self.console.take() {
            // The thread prints the console's last lines before the command ends.
            _ = console.join();
        }
        status.map_err(failed)
    }

    /// Waits until QEMU exits, `stop` receives a byte, or the deadline passes. Returns true if QEMU has exited.
    fn has_exited(&self, stop: &UnixStream, deadline: Option<Instant>) -> io::Result<bool> {
        let descriptors = [Some(readable(&self.child)), Some(readable(stop))];
        ready(descriptors, deadline).map(|[has_ended, _]| has_ended)
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
    }
}

/// Prints the guest's console line by line until the console closes.
fn relay(console: UnixStream) {
    let mut console = BufReader::new(console);
    let mut line = Vec::new();
    while let Ok(1..) = console.read_until(b'\n', &mut line) {
        // The guest continues even if standard output is closed.
        _ = terminal_output::out(String::from_utf8_lossy(&line));
        line.clear();
    }
}

fn arguments(machine: &QemuMachine) -> Vec<String> {
    // `force-legacy=off`: by default, a microvm uses legacy virtio.
    let fixed = "-no-user-config -nodefaults -display none -no-reboot -cpu max \
                 -global virtio-mmio.force-legacy=off \
                 -chardev socket,id=control,fd=0 -mon chardev=control,mode=control \
                 -chardev socket,id=console,fd=1 -serial chardev:console";
    let mut arguments: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    let (board, card) = match machine.board {
        QemuBoard::Q35 => ("q35", "virtio-net-pci"),
        // Without ACPI, devices are listed on the command line, and a clock (RTC) must be added.
        QemuBoard::Microvm => ("microvm,acpi=off,rtc=on", "virtio-net-device"),
    };
    add("-M", board.to_owned());
    add("-accel", machine.accel.clone());
    add("-m", machine.memory_mib.to_string());
    add("-smp", machine.cores.to_string());
    add("-kernel", machine.kernel.display().to_string());
    add("-append", machine.append.clone());
    let mut device = format!("{card},netdev=net");
    let net = match &machine.net {
        QemuNetwork::Tap(name, queues) => {
            let net = format!("tap,id=net,ifname={name},script=no,downscript=no");
            match queues {
                0..=1 => net,
                _ => {
                    device += &queue_options(machine.board, *queues);
                    format!("{net},queues={queues}")
                }
            }
        }
        QemuNetwork::Forwarded(from) => {
            format!("user,id=net,hostfwd=tcp:{}:{}-:80", from.ip(), from.port())
        }
    };
    add("-netdev", net);
    add("-device", device);
    arguments
}

/// The device options for a number of queue pairs.
fn queue_options(board: QemuBoard, queues: u32) -> String {
    match board {
        // One interrupt for each receive and send queue, one for the control queue, and one for configuration changes.
        QemuBoard::Q35 => format!(",mq=on,vectors={}", 2 * queues + 2),
        QemuBoard::Microvm => ",mq=on".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_qemu_is_reported_with_its_package() {
        let path = std::env::var_os("PATH").expect("a path");
        assert_eq!(require("sh", &path), Ok(()));
        let missing = require(PROGRAM, OsStr::new("/nonexistent")).expect_err("it is not there");
        assert!(
            missing.contains("install the package qemu-system-x86 "),
            "{missing}"
        );
    }

    fn machine() -> QemuMachine {
        QemuMachine {
            kernel: "/site.img".into(),
            append: "ip=dhcp a".into(),
            board: QemuBoard::Q35,
            net: QemuNetwork::Forwarded(([127, 0, 0, 1], 8080).into()),
            memory_mib: 64,
            cores: 2,
            accel: "kvm".into(),
        }
    }

    #[test]
    fn qemu_arguments() {
        let line = arguments(&machine()).join(" ");
        for part in [
            "-M q35 -accel kvm -m 64 -smp 2 -kernel /site.img -append ip=dhcp a",
            "-netdev user,id=net,hostfwd=tcp:127.0.0.1:8080-:80 -device virtio-net-pci,netdev=net",
        ] {
            assert!(line.contains(part), "{line}");
        }
        let other = QemuMachine {
            board: QemuBoard::Microvm,
            net: QemuNetwork::Tap("tap7".into(), 1),
            accel: "tcg".into(),
            ..machine()
        };
        let line = arguments(&other).join(" ");
        for part in [
            "-M microvm,acpi=off,rtc=on -accel tcg -m",
            "-netdev tap,id=net,ifname=tap7,script=no,downscript=no -device virtio-net-device,netdev=net",
        ] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains("queues") && !line.contains("mq"), "{line}");
        let several = QemuMachine {
            net: QemuNetwork::Tap("tap7".into(), 3),
            cores: 3,
            ..machine()
        };
        let line = arguments(&several).join(" ");
        for part in [
            "-smp 3 ",
            "-netdev tap,id=net,ifname=tap7,script=no,downscript=no,queues=3 -device ",
            "virtio-net-pci,netdev=net,mq=on,vectors=8",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
