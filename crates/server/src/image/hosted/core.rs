//! A core of the hosted image: a thread with an event loop. Cores wake each other through eventfds.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use lowroad_engine::tap_device;
use lowroad_net::ReceivedFrame;
use lowroad_unikernel::{CurrentTime, UnikernelServer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::link::TapLink;
use crate::terminal_output;

/// Maximum frames received before the server runs and sends its responses.
const BURST: usize = 64;

/// Wakes sleeping cores. Each core has an eventfd, which is readable after a wake-up.
pub struct CoreWakeups {
    events: Vec<OwnedFd>,
    /// Set when a core has ended, so that the others end, too.
    is_shut_down: AtomicBool,
}

/// A guard that ends all cores when dropped.
pub struct CoreShutdown<'w>(&'w CoreWakeups);

impl CoreWakeups {
    /// Creates the wake-ups of this many cores.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub fn new(count: u16) -> Result<CoreWakeups, String> {
        let event = |_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let events: Result<Vec<OwnedFd>, Errno> = (0..count).map(event).collect();
        Ok(CoreWakeups {
            events: events.map_err(|error| format!("eventfd: {error}"))?,
            is_shut_down: AtomicBool::new(false),
        })
    }

    /// Returns the guard that each core holds while it runs. A panic also drops the guard.
    pub fn shutdown_guard(&self) -> CoreShutdown<'_> {
        CoreShutdown(self)
    }

    /// Wakes the cores in this bit set.
    fn wake(&self, cores: u64) {
        for (core, event) in self.events.iter().enumerate() {
            if cores >> core & 1 != 0 {
                // The write fails only if the counter is at its maximum; then the descriptor is readable anyway.
                _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
        }
    }
}

impl Drop for CoreShutdown<'_> {
    fn drop(&mut self) {
        self.0.is_shut_down.store(true, Ordering::Release);
        self.0.wake(u64::MAX);
    }
}

/// A core of the hosted image.
pub struct HostedCore<'w> {
    core: u16,
    server: UnikernelServer,
    link: TapLink,
    wakeups: &'w CoreWakeups,
    /// Receives a byte for each signal to end; only core 0 has it.
    stop: Option<UnixStream>,
    started: Instant,
    is_stopping: bool,
    buffer: Vec<u8>,
}

impl<'w> HostedCore<'w> {
    /// Creates a core for this server.
    pub fn new(
        core: u16,
        server: UnikernelServer,
        link: TapLink,
        wakeups: &'w CoreWakeups,
        stop: Option<UnixStream>,
        started: Instant,
    ) -> HostedCore<'w> {
        HostedCore {
            core,
            server,
            link,
            wakeups,
            stop,
            started,
            is_stopping: false,
            buffer: vec![0; tap_device::BUFFER_LEN],
        }
    }

    /// Runs until the server has stopped or another core has ended. Returns the number of frames that the device did
    /// not accept.
    ///
    /// # Errors
    /// The device was removed, or a second signal to end arrived.
    pub fn serve(&mut self, name: &str) -> Result<u64, String> {
        loop {
            let has_more = self.burst().map_err(|error| format!("{name}: {error}"))?;
            let now = self.now();
            // `tick` runs after each burst, so that responses are sent before more frames are read.
            let next_us = self.server.tick(now, &mut self.link);
            self.wakeups.wake(self.server.take_wakes());
            while let Some(line) = self.server.take_message() {
                terminal_output::out(format_args!("{line}\n"))?;
            }
            if self.server.is_stopped(now) || self.wakeups.is_shut_down.load(Ordering::Acquire) {
                return Ok(self.link.0.lost());
            }
            // A full burst is not followed by a sleep, because more frames are waiting.
            if has_more {
                continue;
            }
            // `prepare_sleep` returns false if another core has just posted work; then this core must not sleep.
            let result = match self.server.prepare_sleep() {
                true => self.wait(next_us),
                false => Ok(()),
            };
            self.server.on_wake();
            result?;
        }
    }

    /// Receives a burst of frames. Returns whether more frames may be waiting.
    fn burst(&mut self) -> io::Result<bool> {
        let now = self.now();
        for _ in 0..BURST {
            let Some((frame, sum_is_good)) = self.link.0.receive(&mut self.buffer)? else {
                return Ok(false);
            };
            let received = ReceivedFrame { frame, sum_is_good };
            self.server.received(now, &mut self.link, received);
        }
        Ok(true)
    }

    /// Waits for a frame, the time `next_us`, another core or a signal. The first signal starts a graceful shutdown.
    ///
    /// # Errors
    /// The second signal.
    fn wait(&mut self, next_us: Option<u64>) -> Result<(), String> {
        let now_us = self.now().mono_us;
        // If `next_us` is `None`, the wait has no timeout.
        let timeout =
            next_us.map(|deadline_us| Duration::from_micros(deadline_us.saturating_sub(now_us)));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let event = &self.wakeups.events[usize::from(self.core)];
        let mut fds = vec![
            PollFd::new(&self.link.0, PollFlags::IN),
            PollFd::new(event, PollFlags::IN),
        ];
        fds.extend(
            self.stop
                .iter()
                .map(|stop| PollFd::new(stop, PollFlags::IN)),
        );
        match poll(&mut fds, timeout.as_ref()) {
            // After an interruption, the signal's byte is read by the next wait.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        let is_ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (is_woken, is_signalled) = (is_ready(1), is_ready(2));
        if is_woken {
            // Resets the eventfd; the event loop then finds the posted work.
            _ = rustix::io::read(event, &mut [0; 8]);
        }
        match is_signalled {
            true => self.handle_signal(),
            false => Ok(()),
        }
    }

    fn handle_signal(&mut self) -> Result<(), String> {
        let read = self.stop.as_ref().map(|mut stop| stop.read(&mut [0]));
        if read.is_some_and(|read| read.is_ok()) && std::mem::replace(&mut self.is_stopping, true) {
            return Err("ended before all requests were answered".to_string());
        }
        self.server.stop();
        Ok(())
    }

    fn now(&self) -> CurrentTime {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        CurrentTime {
            mono_us: u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            unix_s: since_1970.unwrap_or_default().as_secs(),
        }
    }
}
