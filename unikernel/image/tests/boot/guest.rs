//! Runs a kernel in QEMU.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";
pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// The timeout of each step, which expires only if the machine is broken.
const PATIENCE: Duration = Duration::from_secs(60);

pub const Q35: &[&str] = &[
    "-M",
    "q35",
    "-device",
    "virtio-net-pci,netdev=n,mac=52:54:00:12:34:56",
];
pub const MICROVM: &[&str] = &[
    "-M",
    "microvm,acpi=off",
    "-global",
    "virtio-mmio.force-legacy=off",
    "-device",
    "virtio-net-device,netdev=n,mac=52:54:00:12:34:56",
];

/// A running machine; killed when dropped.
pub struct Machine {
    pub qemu: Child,
    lines: Receiver<String>,
}

/// A machine with a socket of this test as its network. The socket carries Ethernet frames.
pub struct Guest {
    pub machine: Machine,
    pub link: UdpSocket,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Records that the calling test was skipped, for `tools/test.sh`.
#[track_caller]
pub fn skip(reason: &str) {
    let line = format!("{}: {reason}", std::panic::Location::caller());
    eprintln!("skipped: {line}");
    if let Some(path) = std::env::var_os("LOWROAD_SKIPPED") {
        let mut file = std::fs::File::options().append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

impl Machine {
    /// Starts the kernel with the network `netdev`, which has the id `n`. `name` becomes a part of the image's file
    /// name.
    #[track_caller]
    pub fn start(netdev: &str, name: &str, machine: &[&str], more: &[&str]) -> Option<Machine> {
        let Some(kernel) = std::env::var_os("LOWROAD_KERNEL") else {
            skip("LOWROAD_KERNEL is not set");
            return None;
        };
        if Command::new(QEMU).arg("--version").output().is_err() {
            skip("there is no qemu-system-x86_64");
            return None;
        }
        let kernel = std::fs::read(kernel).unwrap();
        let image = lowroad_kernel_image::build(&kernel, b"a site").unwrap();
        let path = file(name, &image);
        let mut qemu = Command::new(QEMU)
            .args([
                "-accel",
                "tcg",
                "-cpu",
                "max",
                "-m",
                "64",
                "-display",
                "none",
                "-serial",
                "mon:stdio",
            ])
            .args(["-netdev", netdev, "-kernel", path.to_str().unwrap()])
            .args(["-append", "ip=192.0.2.2/24,192.0.2.1 odd"])
            .args(machine)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(qemu.stdout.take().unwrap());
        std::thread::spawn(move || {
            output
                .split(b'\n')
                .map_while(Result::ok)
                .try_for_each(|line| {
                    sender.send(String::from_utf8_lossy(&line).trim_end().to_string())
                })
        });
        Some(Machine { qemu, lines })
    }

    /// Waits for an output line that contains `text`; returns the line.
    pub fn expect_line(&self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    eprintln!("guest: {line}");
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("the guest does not say {text:?}"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the guest has ended without {text:?}")
                }
            }
        }
    }

    /// Presses the power button.
    pub fn press_button(&mut self) {
        let mut input = self.qemu.stdin.take().unwrap();
        // The console and QEMU's monitor share the standard streams; Ctrl-A C switches between them.
        input.write_all(b"\x01csystem_powerdown\n").unwrap();
    }
}

impl Guest {
    #[track_caller]
    pub fn start(machine: &[&str], more: &[&str]) -> Option<Guest> {
        let link = UdpSocket::bind("127.0.0.1:0").unwrap();
        link.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let theirs = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let ours = link.local_addr().unwrap().port();
        link.connect(("127.0.0.1", theirs)).unwrap();
        let netdev = format!(
            "dgram,id=n,local.type=inet,local.host=127.0.0.1,local.port={theirs},remote.type=inet,remote.host=127.0.0.1,remote.port={ours}"
        );
        let machine = Machine::start(&netdev, &ours.to_string(), machine, more)?;
        Some(Guest { machine, link })
    }

    pub fn expect_line(&self, text: &str) -> String {
        self.machine.expect_line(text)
    }

    /// Sends a frame repeatedly until `is_it` accepts an answer, since frames get lost while the guest starts.
    pub fn exchange(&self, frame: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut buffer = [0; 2048];
        for _ in 0..60 {
            let _ = self.link.send(frame);
            while let Ok(len) = self.link.recv(&mut buffer) {
                if is_it(&buffer[..len]) {
                    return buffer[..len].to_vec();
                }
            }
        }
        panic!("no answer");
    }

    pub fn ping(&self, len: usize) {
        let mut echo = vec![8, 0, 0, 0, 0, 7, 0, 1];
        echo.extend((0..len).map(|n| n as u8));
        let sum = checksum(&echo);
        echo[2..4].copy_from_slice(&sum);
        let answer = self.exchange(&packet(1, &echo), |frame| frame.get(23) == Some(&1));
        assert_eq!((&answer[..6], &answer[6..12]), (&OWN_MAC[..], &MAC[..]));
        assert_eq!(&answer[26..34], &[192, 0, 2, 2, 192, 0, 2, 1]);
        assert_eq!(checksum(&answer[34..]), [0, 0]);
        assert_eq!(answer[42..], echo[8..]);
    }

    pub fn datagram(&self, port: u8) {
        self.link
            .send(&packet(17, &[0, 9, 0, port, 0, 8, 0, 0]))
            .unwrap();
    }
}

/// Writes a file for QEMU into the folder for tests.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-{name}.elf"));
    std::fs::write(&path, bytes).unwrap();
    path
}

pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

pub fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&MAC[..], &OWN_MAC, &[8, 0]].concat();
    let len = (20 + payload.len()) as u16;
    frame.extend([
        0x45,
        0,
        (len >> 8) as u8,
        len as u8,
        0,
        0,
        0,
        0,
        64,
        protocol,
        0,
        0,
        192,
        0,
        2,
        1,
        192,
        0,
        2,
        2,
    ]);
    let sum = checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&sum);
    frame.extend(payload);
    frame
}
