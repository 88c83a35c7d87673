//! A guest in steps. Each of its instructions is a nanosecond of its time, which stands still while the client looks and sends. So
//! what a request waits for is the same on any machine. The plugin stops the guest; once QEMU's
//! main loop waits, what was sent by either side has arrived. Knows no requests.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::guest::{GuestNetwork, path};
use super::life::GuestLifeline;
use super::quiet::MainLoop;
use crate::load::ExternalClock;

/// A guest that was sent something wakes within this. Only then does its idleness count as time.
const WAKES: Duration = Duration::from_millis(2);
/// Who does not rest by then does not rest at all: loading programs into the kernel takes three seconds.
const REST_NS: u64 = 10_000_000_000;
/// No step takes longer, or the guest has died.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the plugin looks for the next stop.
const STOP_AT_OFFSET: u64 = 16;
/// Nobody listens there (RFC 863).
const DISCARD_PORT: u16 = 9;

/// What a guest needs so that it can be stopped.
pub struct StepRequirements {
    go: (PipeReader, PipeWriter),
    stopped: (PipeReader, PipeWriter),
    network: GuestNetwork,
}

impl StepRequirements {
    /// For the guest with this network.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn new(network: &GuestNetwork) -> Result<StepRequirements, String> {
        let failed = |why: io::Error| format!("a pipe: {why}");
        Ok(StepRequirements {
            go: pipe().map_err(failed)?,
            stopped: pipe().map_err(failed)?,
            network: network.clone(),
        })
    }

    /// The plugin's environment.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let of = |fd: BorrowedFd<'_>| path(&fd);
        [
            ("INSN_GO", of(self.go.0.as_fd())),
            ("INSN_STOPPED", of(self.stopped.1.as_fd())),
        ]
    }

    /// Stops the guest of this process, whose instructions are in `count`. Its time goes on only while somebody waits for it, by steps of `step_ns`
    /// at most: at their ends answers are seen.
    ///
    /// # Errors
    /// The guest does not stop, or has died.
    pub fn begin(
        &self,
        (process, life): (u32, &GuestLifeline),
        count: &File,
        step_ns: u64,
    ) -> Result<GuestTime, String> {
        let failed = |why: io::Error| format!("the guest can't be stopped: {why}");
        let all = || {
            // What let it go after the last run may not have been needed.
            drain(&self.go.0)?;
            drain(&self.stopped.0)?;
            let mut guest = GuestStepper {
                count: count.try_clone()?,
                go: self.go.1.try_clone()?,
                stopped: self.stopped.0.try_clone()?,
                main_loop: MainLoop::of(process)?,
                life: life.clone(),
                step_ns,
                state: StepState::Halted,
                counted: 0,
                skipped_ns: 0,
            };
            guest.stop_at(0)?;
            self.wake()?;
            guest.await_stop()?;
            Ok(guest)
        };
        let guest = all().map_err(failed)?;
        Ok(GuestTime {
            now_ns: AtomicU64::new(guest.now_ns()),
            guest: Mutex::new(guest),
        })
    }

    /// Sends the guest something: who has nothing at all to do may sleep for long.
    fn wake(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((self.network.host, 0))?;
        let sent = socket.send_to(&[], (self.network.guest, DISCARD_PORT));
        sent.map(drop)
    }
}

/// The time of a guest that is stopped. Dropped, it lets the guest run freely.
pub struct GuestTime {
    now_ns: AtomicU64,
    guest: Mutex<GuestStepper>,
}

impl GuestTime {
    /// Lets time pass until the guest has nothing to do: what follows an answer counts too.
    ///
    /// # Errors
    /// The guest has died.
    pub fn rest(&self) -> Result<(), String> {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = guest.rest();
        self.now_ns.store(guest.now_ns(), Relaxed);
        rested.map_err(|why| format!("the guest does not come to rest: {why}"))
    }
}

impl ExternalClock for GuestTime {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    fn pass(&self, ready: BorrowedFd<'_>, until_ns: u64, waits: bool) {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.pass(ready, until_ns, waits).is_err() {
            // It has died. What was asked of it finds out, once time is up.
            guest.skip_to(until_ns);
        }
        self.now_ns.store(guest.now_ns(), Relaxed);
    }
}

impl Drop for GuestTime {
    fn drop(&mut self) {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        // It may be about to stop, whatever it said last: then it finds the word in the pipe. What can't be told of it has died.
        let _ = guest.stop_at(u64::MAX);
        let _ = guest.go.write_all(&u64::MAX.to_ne_bytes());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepState {
    /// It waits to be let go on.
    Stopped,
    /// It has nothing to do. When it wakes, it stops.
    Halted,
}

struct GuestStepper {
    count: File,
    go: PipeWriter,
    stopped: PipeReader,
    main_loop: MainLoop,
    life: GuestLifeline,
    step_ns: u64,
    state: StepState,
    counted: u64,
    /// Time in which it had nothing to do.
    skipped_ns: u64,
}

impl GuestStepper {
    fn now_ns(&self) -> u64 {
        self.counted + self.skipped_ns
    }

    fn skip_to(&mut self, until_ns: u64) {
        self.skipped_ns += until_ns.saturating_sub(self.now_ns());
    }

    /// Lets time pass until something is ready, or it is so late.
    fn pass(&mut self, ready: BorrowedFd<'_>, until_ns: u64, waits: bool) -> io::Result<()> {
        let mut idle_since = None;
        loop {
            self.settle()?;
            if is_ready(ready, Duration::ZERO)? || self.now_ns() >= until_ns {
                return Ok(());
            }
            match self.state {
                StepState::Stopped => {
                    let step_ns = self.step_ns.min(until_ns - self.now_ns());
                    self.go_on(self.counted + step_ns)?;
                    idle_since = None;
                }
                StepState::Halted if !waits => self.skip_to(until_ns),
                // It waits for time to pass, or for somebody who is not here.
                StepState::Halted => {
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    let begun = Instant::now();
                    is_ready_or(ready, self.stopped.as_fd(), WAKES)?;
                    if begun.duration_since(since) >= WAKES {
                        let passed_ns = begun.elapsed().as_nanos() as u64;
                        self.skip_to(until_ns.min(self.now_ns() + passed_ns));
                    }
                }
            }
        }
    }

    fn rest(&mut self) -> io::Result<()> {
        let end = self.counted + REST_NS;
        self.settle()?;
        while self.counted < end {
            match self.state {
                StepState::Stopped => self.go_on(self.counted + self.step_ns)?,
                // What came last wakes it.
                StepState::Halted if !is_ready(self.stopped.as_fd(), WAKES)? => break,
                StepState::Halted => {}
            }
            self.settle()?;
        }
        match self.state {
            StepState::Halted => Ok(()),
            StepState::Stopped => Err(io::Error::other("it works on and on")),
        }
    }

    /// Has what is under way arrive, on either side.
    fn settle(&mut self) -> io::Result<()> {
        self.main_loop.settle()?;
        while is_ready(self.stopped.as_fd(), Duration::ZERO)? {
            self.await_stop()?;
        }
        Ok(())
    }

    fn go_on(&mut self, until: u64) -> io::Result<()> {
        self.go.write_all(&until.to_ne_bytes())?;
        self.await_stop()
    }

    /// Waits until it stops or halts.
    fn await_stop(&mut self) -> io::Result<()> {
        is_ready_or(self.stopped.as_fd(), self.life.ended(), PATIENCE)?;
        if !is_ready(self.stopped.as_fd(), Duration::ZERO)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut word = [0; 8];
        self.stopped.read_exact(&mut word)?;
        let word = u64::from_ne_bytes(word);
        self.state = match word & 1 {
            0 => StepState::Stopped,
            _ => StepState::Halted,
        };
        self.counted = word >> 1;
        Ok(())
    }

    fn stop_at(&mut self, counted: u64) -> io::Result<()> {
        self.count
            .write_all_at(&counted.to_ne_bytes(), STOP_AT_OFFSET)
    }
}

/// Reads what is left in a pipe of words.
fn drain(mut pipe: &PipeReader) -> io::Result<()> {
    while is_ready(pipe.as_fd(), Duration::ZERO)? {
        pipe.read_exact(&mut [0; 8])?;
    }
    Ok(())
}

fn is_ready(fd: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    wait_for(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], patience)
}

fn is_ready_or(one: BorrowedFd<'_>, other: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    wait_for(&mut [of(one), of(other)], patience)
}

fn wait_for(fds: &mut [PollFd<'_>], patience: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    Ok(poll(fds, Some(&timeout))? > 0)
}
