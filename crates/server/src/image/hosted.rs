//! The image's program as a process of this system, on a tap device: one loop around `lowroad_bare::Server`,
//! as the kernel of the image has one. For debugging, and for tests that need no machine.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use lowroad_bare::archive::Archive;
use lowroad_bare::{Machine, Now, Server};
use lowroad_engine::tap::{self, Left, Tap};
use lowroad_net::{Frame, Link, Offload, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::address::Ip;
use super::signals;
use super::tap::Device;
use crate::say;

const MTU: u16 = 1500;
/// Frames that are taken before the server may send what it has gathered.
const BURST: usize = 64;

/// Runs until it is told to stop.
///
/// # Errors
/// What the operator can do.
pub fn run(archive: Archive, name: &str, ip: Ip, memory_len: usize) -> Result<(), String> {
    let device = Device::prepare(name, ip, 1)?;
    let opened = Tap::open(name).map_err(|error| format!("the tap device {name}: {error}"));
    let machine = Machine {
        mac: mac(name),
        mtu: MTU,
        address: ip.address(),
        memory_len,
        secret: secret()?,
        cores: None,
    };
    let mut host = Host {
        link: TapLink(opened?),
        server: Server::new(archive, machine)?,
        started: Instant::now(),
        stop: signals::stops()?,
        is_stopping: false,
        buffer: vec![0; tap::BUFFER_LEN],
    };
    let done = host.serve(name);
    let lost = host.link.0.lost();
    if lost > 0 {
        say::note(format_args!("{name} did not take {lost} frames"));
    }
    drop(device);
    done
}

struct Host {
    link: TapLink,
    server: Server,
    started: Instant,
    /// Has a byte for each signal that asks for an end.
    stop: UnixStream,
    is_stopping: bool,
    buffer: Vec<u8>,
}

impl Host {
    fn serve(&mut self, name: &str) -> Result<(), String> {
        loop {
            let more = self.burst().map_err(|error| format!("{name}: {error}"))?;
            let now = self.now();
            let next_us = self.server.tick(now, &mut self.link);
            while let Some(line) = self.server.said() {
                say::out(format_args!("{line}\n"))?;
            }
            if self.server.is_stopped(now) {
                return Ok(());
            }
            if !more {
                self.wait(next_us)?;
            }
        }
    }

    /// Takes what has come; whether there may be more.
    fn burst(&mut self) -> io::Result<bool> {
        let now = self.now();
        for _ in 0..BURST {
            let Some((frame, sum_is_good)) = self.link.0.receive(&mut self.buffer)? else {
                return Ok(false);
            };
            let received = Received { frame, sum_is_good };
            self.server.received(now, &mut self.link, received);
        }
        Ok(true)
    }

    /// Waits for a frame, a time or a signal. The first signal begins the end.
    ///
    /// # Errors
    /// At the second.
    fn wait(&mut self, next_us: Option<u64>) -> Result<(), String> {
        let now_us = self.now().mono_us;
        let left = next_us.map(|at| Duration::from_micros(at.saturating_sub(now_us)));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::new(&self.link.0, PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::IN),
        ];
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        if fds[1].revents().is_empty() {
            return Ok(());
        }
        let read = (&self.stop).read(&mut [0]);
        if read.is_ok() && std::mem::replace(&mut self.is_stopping, true) {
            return Err("ended before all was answered".to_string());
        }
        self.server.stop();
        Ok(())
    }

    fn now(&self) -> Now {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Now {
            mono_us: u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            unix_s: since_1970.unwrap_or_default().as_secs(),
        }
    }
}

/// A tap device, which the kernel of this system completes and cuts frames for.
struct TapLink(Tap);

impl Link for TapLink {
    fn send(&mut self, frame: &Frame<'_>) {
        let head_len = u16::try_from(frame.head.len()).unwrap_or(u16::MAX);
        let left = Left {
            sum: frame.partial_sum,
            cut: frame.cut_len.map(|segment_len| (head_len, segment_len)),
        };
        self.0.send([frame.head, frame.copied, frame.lasting], left);
    }

    fn offload(&self) -> Offload {
        Offload {
            sum: true,
            segmentation: true,
        }
    }
}

/// An address of its own for each device's name, and the same at each start: neighbours remember it. From the
/// range that anybody may use (the second lowest bit of the first byte is set).
fn mac(name: &str) -> [u8; 6] {
    let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [a, b, c, d] = hash.to_be_bytes();
    [0x02, b'l', a, b, c, d]
}

fn secret() -> Result<[u8; 32], String> {
    let mut secret = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    read.map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_anybodys_and_differ() {
        assert_eq!(mac("tap0")[0] & 3, 2);
        assert_ne!(mac("tap0"), mac("tap1"));
    }
}
