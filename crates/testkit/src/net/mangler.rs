//! A link between two devices that loses, duplicates, delays and edits frames: a thread forwards frames between two
//! packet sockets. `LinkLane` decides about each frame.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::lane::{LaneCounts, LinkLane, ManglingRule};
use super::namespace::{NetError, NetNamespace};
use super::packet_socket::PacketSocket;

/// Maximum number of frames from one side before the other is served.
const BATCH_LEN: usize = 64;

/// The mangling of both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkMangling {
    /// The seed of all decisions.
    pub seed: u64,
    /// The direction from the client to the server.
    pub up: ManglingRule,
    /// The direction from the server to the client.
    pub down: ManglingRule,
}

impl LinkMangling {
    /// The same mangling in both directions (with different random numbers).
    pub fn both(seed: u64, mangling: ManglingRule) -> LinkMangling {
        LinkMangling {
            seed,
            up: mangling,
            down: mangling,
        }
    }
}

/// A running mangler. When it is dropped, no more frames are forwarded.
pub struct LinkMangler {
    stop: Arc<OwnedFd>,
    counts: Arc<Mutex<[LaneCounts; 2]>>,
    thread: Option<JoinHandle<()>>,
}

impl LinkMangler {
    /// Starts a mangler between two devices of a namespace; the first is on the client's side.
    pub fn start(
        namespace: &NetNamespace,
        devices: [&str; 2],
        manglings: &LinkMangling,
        mtu: u16,
    ) -> Result<LinkMangler, NetError> {
        let [client, server] = devices.map(|device| {
            // A socket belongs to the namespace of the thread that opens it.
            let socket = namespace.enter(|| PacketSocket::open(device));
            socket.map_err(|error| NetError::Socket(device.to_owned(), error))
        });
        let stop = eventfd(0, EventfdFlags::CLOEXEC);
        let stop = stop.map_err(|error| NetError::Socket("eventfd".to_owned(), error.into()))?;
        let stop = Arc::new(stop);
        let counts = Arc::new(Mutex::new([LaneCounts::default(); 2]));
        let link = MangledLink {
            sockets: [client?, server?],
            lanes: [
                LinkLane::new(manglings.up, manglings.seed, mtu),
                // This direction has another seed, as the same seed would mangle both directions alike.
                LinkLane::new(manglings.down, !manglings.seed, mtu),
            ],
            start: Instant::now(),
            stop: Arc::clone(&stop),
            counts: Arc::clone(&counts),
        };
        let thread = Some(std::thread::spawn(move || link.run()));
        Ok(LinkMangler {
            stop,
            counts,
            thread,
        })
    }

    /// The counters: from the client to the server, and back.
    pub fn counts(&self) -> [LaneCounts; 2] {
        *self.counts.lock().expect("no holder panics")
    }
}

impl Drop for LinkMangler {
    fn drop(&mut self) {
        // The eventfd wakes the thread from its poll.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct MangledLink {
    /// The sockets on the client's side and on the server's side.
    sockets: [PacketSocket; 2],
    /// Indexed by the side that sends.
    lanes: [LinkLane; 2],
    start: Instant,
    stop: Arc<OwnedFd>,
    counts: Arc<Mutex<[LaneCounts; 2]>>,
}

impl MangledLink {
    fn run(mut self) {
        while !self.wait() {
            // Both sides are served in turn, in batches, so that a busy side can't starve the other.
            for side in 0..2 {
                self.receive_frames(side);
                self.send_frames(side);
            }
            let counts = self.lanes.each_ref().map(LinkLane::counts);
            *self.counts.lock().expect("no holder panics") = counts;
        }
    }

    /// Waits until a frame arrives or is due; returns true if the mangler has to stop.
    fn wait(&self) -> bool {
        let due = self.lanes.iter().filter_map(LinkLane::next_due).min();
        let timeout = due.map(|due| timespec(due.saturating_sub(self.start.elapsed())));
        let [client, server] = &self.sockets;
        let mut fds = [self.stop.as_fd(), client.as_fd(), server.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted wait is treated as one that ended early.
        let _ = poll(&mut fds, timeout.as_ref());
        !fds[0].revents().is_empty()
    }

    fn receive_frames(&mut self, side: usize) {
        for _ in 0..BATCH_LEN {
            // An error is treated like no frame; for example, the device went down.
            let Ok(Some(frame)) = self.sockets[side].receive() else {
                return;
            };
            self.lanes[side].receive(self.start.elapsed(), frame);
        }
    }

    fn send_frames(&mut self, side: usize) {
        let now = self.start.elapsed();
        while let Some(frame) = self.lanes[side].ready(now) {
            if !self.sockets[1 - side].send(&frame) {
                self.lanes[side].record_overflow();
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).expect("not beyond the end of time")
}
