//! Runs a guest in steps of virtual time. Each instruction takes a nanosecond, and time stands still while the client
//! reads and sends, so waiting times are the same on any machine. The plugin stops the guest; if QEMU's main loop is
//! then idle, all packets have been delivered in both directions. Independent of requests.

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

/// Time within which a halted guest wakes after input. Only longer idle periods count as virtual time.
const WAKE_MAX: Duration = Duration::from_millis(2);
/// A guest that is busy for longer is considered never idle. Loading programs into the kernel takes three seconds.
const BUSY_NS_MAX: u64 = 10_000_000_000;
/// Maximum time of a step; after that, the guest is considered dead.
const PATIENCE: Duration = Duration::from_secs(30);
/// Offset in the plugin's shared file of the instruction count at which the guest stops.
const STOP_AT_OFFSET: u64 = 16;
/// The discard port, on which no program listens (RFC 863).
const DISCARD_PORT: u16 = 9;

/// The pipes and names by which a guest is stopped.
pub struct StepRequirements {
    resume_pipe: (PipeReader, PipeWriter),
    stopped_pipe: (PipeReader, PipeWriter),
    network: GuestNetwork,
}

impl StepRequirements {
    /// Creates the pipes for the guest with this network.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(network: &GuestNetwork) -> Result<StepRequirements, String> {
        let failed = |error: io::Error| format!("a pipe: {error}");
        Ok(StepRequirements {
            resume_pipe: pipe().map_err(failed)?,
            stopped_pipe: pipe().map_err(failed)?,
            network: network.clone(),
        })
    }

    /// The environment variables of the plugin.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let fd_path = |fd: BorrowedFd<'_>| path(&fd);
        [
            ("INSN_GO", fd_path(self.resume_pipe.0.as_fd())),
            ("INSN_STOPPED", fd_path(self.stopped_pipe.1.as_fd())),
        ]
    }

    /// Stops the guest of this process; `count` is its instruction count. Its time then advances only while a caller
    /// waits, in steps of at most `step_ns`. Clients see responses at the end of a step.
    ///
    /// # Errors
    /// The guest does not stop, or has died.
    pub fn begin(
        &self,
        process: u32,
        life: &GuestLifeline,
        count: &File,
        step_ns: u64,
    ) -> Result<GuestTime, String> {
        let failed = |error: io::Error| format!("the guest can't be stopped: {error}");
        let start_stepper = || {
            // The previous run may have left words in the pipes.
            drain(&self.resume_pipe.0)?;
            drain(&self.stopped_pipe.0)?;
            let mut guest = GuestStepper {
                count: count.try_clone()?,
                resume_pipe: self.resume_pipe.1.try_clone()?,
                stopped: self.stopped_pipe.0.try_clone()?,
                main_loop: MainLoop::from_process(process)?,
                life: life.clone(),
                step_ns,
                state: StepState::Halted,
                instructions: 0,
                skipped_ns: 0,
            };
            // The plugin stops the guest when the instruction count has reached this value; 0 stops it at the next
            // block that checks.
            guest.stop_at(0)?;
            // An idle guest executes no instructions, so it would not check.
            self.wake()?;
            guest.await_stop()?;
            Ok(guest)
        };
        let guest = start_stepper().map_err(failed)?;
        Ok(GuestTime {
            now_ns: AtomicU64::new(guest.now_ns()),
            guest: Mutex::new(guest),
        })
    }

    /// Wakes the guest by a packet: an idle guest may sleep for a long time until its next timer.
    fn wake(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((self.network.host, 0))?;
        let sent = socket.send_to(&[], (self.network.guest, DISCARD_PORT));
        sent.map(drop)
    }
}

/// The virtual time of a stopped guest. Dropping it lets the guest run freely.
pub struct GuestTime {
    now_ns: AtomicU64,
    guest: Mutex<GuestStepper>,
}

impl GuestTime {
    /// Runs the guest until it is idle, so that the work after a response is counted.
    ///
    /// # Errors
    /// The guest has died.
    pub fn run_until_idle(&self) -> Result<(), String> {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = guest.run_to_rest();
        self.now_ns.store(guest.now_ns(), Relaxed);
        rested.map_err(|error| format!("the guest does not become idle: {error}"))
    }
}

impl ExternalClock for GuestTime {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    fn pass(&self, ready: BorrowedFd<'_>, until_ns: u64, is_waiting: bool) {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.pass(ready, until_ns, is_waiting).is_err() {
            // The guest has died. The outstanding request fails by its timeout.
            guest.skip_to(until_ns);
        }
        self.now_ns.store(guest.now_ns(), Relaxed);
    }
}

impl Drop for GuestTime {
    fn drop(&mut self) {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        // Regardless of its last state, the guest may be about to stop; the word in the pipe then releases it. Errors
        // mean that it has died.
        let _ = guest.stop_at(u64::MAX);
        let _ = guest.resume_pipe.write_all(&u64::MAX.to_ne_bytes());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepState {
    /// The guest waits for a word in the pipe.
    Stopped,
    /// The guest is idle, and stops when it wakes.
    Halted,
}

struct GuestStepper {
    count: File,
    resume_pipe: PipeWriter,
    stopped: PipeReader,
    main_loop: MainLoop,
    life: GuestLifeline,
    step_ns: u64,
    state: StepState,
    instructions: u64,
    /// Virtual time that was skipped while the guest was idle.
    skipped_ns: u64,
}

impl GuestStepper {
    fn now_ns(&self) -> u64 {
        self.instructions + self.skipped_ns
    }

    fn skip_to(&mut self, until_ns: u64) {
        self.skipped_ns += until_ns.saturating_sub(self.now_ns());
    }

    /// Lets time pass until `ready` is readable or `until_ns` is reached.
    fn pass(&mut self, ready: BorrowedFd<'_>, until_ns: u64, is_waiting: bool) -> io::Result<()> {
        let mut idle_since = None;
        loop {
            // A response may still be in QEMU's queues, and a stop message in the pipe.
            self.settle()?;
            if is_ready(ready, Duration::ZERO)? || self.now_ns() >= until_ns {
                return Ok(());
            }
            match self.state {
                StepState::Stopped => {
                    let step_ns = self.step_ns.min(until_ns - self.now_ns());
                    self.run_until(self.instructions + step_ns)?;
                    // The guest has executed instructions, so a new idle period begins.
                    idle_since = None;
                }
                // No response is outstanding, so nothing can happen before the next due time: the idle time is skipped.
                StepState::Halted if !is_waiting => self.skip_to(until_ns),
                // Idle while a response is outstanding: the guest waits for a timer or for a program outside of it.
                // Real time then counts as virtual time.
                StepState::Halted => {
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    let begin = Instant::now();
                    // Either a response arrives, or a timer of the guest wakes and stops it.
                    is_ready_or(ready, self.stopped.as_fd(), WAKE_MAX)?;
                    // Before that, the guest may not have received the last packet, and would still wake.
                    if begin.duration_since(since) >= WAKE_MAX {
                        let passed_ns = begin.elapsed().as_nanos() as u64;
                        self.skip_to(until_ns.min(self.now_ns() + passed_ns));
                    }
                }
            }
        }
    }

    fn run_to_rest(&mut self) -> io::Result<()> {
        // The bound is needed because a server in a busy loop would never be idle.
        let end = self.instructions + BUSY_NS_MAX;
        self.settle()?;
        while self.instructions < end {
            match self.state {
                StepState::Stopped => self.run_until(self.instructions + self.step_ns)?,
                // The last input may still wake the guest within this time.
                StepState::Halted if !is_ready(self.stopped.as_fd(), WAKE_MAX)? => break,
                StepState::Halted => {}
            }
            self.settle()?;
        }
        match self.state {
            StepState::Halted => Ok(()),
            StepState::Stopped => Err(io::Error::other("it does not become idle")),
        }
    }

    /// Waits until all packets have been delivered in both directions.
    fn settle(&mut self) -> io::Result<()> {
        self.main_loop.settle()?;
        while is_ready(self.stopped.as_fd(), Duration::ZERO)? {
            self.await_stop()?;
        }
        Ok(())
    }

    fn run_until(&mut self, until: u64) -> io::Result<()> {
        self.resume_pipe.write_all(&until.to_ne_bytes())?;
        self.await_stop()
    }

    /// Waits until the guest stops or halts.
    fn await_stop(&mut self) -> io::Result<()> {
        is_ready_or(self.stopped.as_fd(), self.life.ended(), PATIENCE)?;
        if !is_ready(self.stopped.as_fd(), Duration::ZERO)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut word = [0; 8];
        self.stopped.read_exact(&mut word)?;
        let word = u64::from_ne_bytes(word);
        // The plugin shifts the count left by one bit; the lowest bit reports a halt.
        self.state = match word & 1 {
            0 => StepState::Stopped,
            _ => StepState::Halted,
        };
        self.instructions = word >> 1;
        Ok(())
    }

    fn stop_at(&mut self, instructions: u64) -> io::Result<()> {
        self.count
            .write_all_at(&instructions.to_ne_bytes(), STOP_AT_OFFSET)
    }
}

/// Reads and discards the remaining words of a pipe.
fn drain(mut pipe: &PipeReader) -> io::Result<()> {
    while is_ready(pipe.as_fd(), Duration::ZERO)? {
        pipe.read_exact(&mut [0; 8])?;
    }
    Ok(())
}

fn is_ready(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    wait_for(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], timeout)
}

fn is_ready_or(
    first: BorrowedFd<'_>,
    second: BorrowedFd<'_>,
    timeout: Duration,
) -> io::Result<bool> {
    let poll_fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    wait_for(&mut [poll_fd(first), poll_fd(second)], timeout)
}

fn wait_for(fds: &mut [PollFd<'_>], wait_time: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: wait_time.as_secs() as i64,
        tv_nsec: i64::from(wait_time.subsec_nanos()),
    };
    Ok(poll(fds, Some(&timeout))? > 0)
}
