//! One thread of the load generator: its clients, its epoll instance, its timers. `traffic` handles the connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::time::{ClockId, clock_gettime};

use super::client::{ClientConnection, LoadClient};
use super::schedule::RampSchedule;
use super::tally::{LoadTally, NanoHistogram};
use super::transport::TlsStart;
use super::two;
use super::{LoadRun, RequestPace};

const EVENTS_MAX: usize = 512;
const SCRATCH_LEN: usize = 256 * 1024;
/// Interval at which timeouts are checked and the live figures are published.
const SWEEP_NS: u64 = 100_000_000;
/// Below this distance the worker polls the clock, because a sleep would overshoot.
const SPIN_NS: u64 = 5_000;
/// Failed connections for each client after which the run is given up, if no response ever arrived.
const HOPELESS_TRIES: u64 = 5;

/// The state that the threads share.
pub(crate) struct LoadContext {
    /// All threads are to end.
    pub stop: AtomicBool,
    /// Remaining requests, if they are limited.
    pub quota: Option<AtomicU64>,
    /// Remaining connections, if they are limited.
    pub openings: Option<AtomicU64>,
    pub begin_ns: u64,
    /// When counting begins.
    pub count_ns: u64,
    pub end_ns: u64,
    /// A response has arrived, right or wrong, so the server can be reached.
    pub reached: AtomicBool,
}

/// The figures of one thread so far.
#[derive(Default)]
pub(crate) struct LiveFigures {
    pub requests: u64,
    pub bytes: u64,
    pub errors: u64,
    pub latency: NanoHistogram,
}

pub(crate) struct LoadWorker<'l> {
    pub load: &'l LoadRun,
    pub shared: &'l LoadContext,
    pub tls: Option<TlsStart>,
    pub clients: Vec<LoadClient>,
    pub epoll: OwnedFd,
    pub tally: LoadTally,
    pub now_ns: u64,
    /// The clients' timers, the earliest first.
    pub timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The due times of an open loop.
    pub schedule: Option<RampSchedule>,
    /// Clients that can take a due request.
    pub free: VecDeque<u32>,
    /// Due times for which no client was free.
    pub overdue: VecDeque<u64>,
    pub scratch: Vec<u8>,
    pub two: two::H2Context,
    /// The next address to connect to.
    pub address: usize,
    /// The request quota is used up.
    pub dry: bool,
    /// Connections that failed.
    pub failed: u64,
    /// Clients with more to read than one turn handles, or with an end of the connection to detect.
    pub again: Vec<u32>,
    pub live: Arc<Mutex<LiveFigures>>,
}

/// The share of a thread in the run.
pub(crate) struct ThreadShare {
    pub thread: u32,
    pub threads: u32,
}

impl<'l> LoadWorker<'l> {
    pub(crate) fn new(
        load: &'l LoadRun,
        shared: &'l LoadContext,
        tls: Option<TlsStart>,
        share: &ThreadShare,
        live: Arc<Mutex<LiveFigures>>,
    ) -> rustix::io::Result<LoadWorker<'l>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let numbers = (share.thread..load.connections).step_by(share.threads as usize);
        let clients = numbers
            .map(|number| LoadClient::new(load.workload.session(u64::from(number), load.seed)));
        let rate = match load.pace {
            RequestPace::Closed => None,
            RequestPace::Requests(rate) | RequestPace::Connections(rate) => Some(rate),
        };
        let schedule = rate.map(|rate| {
            let (thread, threads) = (u64::from(share.thread), u64::from(share.threads));
            RampSchedule::new(rate, load.ramp.as_secs_f64(), thread, threads)
        });
        Ok(LoadWorker {
            load,
            shared,
            tls,
            clients: clients.collect(),
            epoll,
            tally: LoadTally::new(load.workload.classes().len().max(1)),
            now_ns: load.now_ns(),
            timers: BinaryHeap::new(),
            schedule,
            free: VecDeque::new(),
            overdue: VecDeque::new(),
            scratch: vec![0; SCRATCH_LEN],
            two: two::H2Context::default(),
            address: share.thread as usize,
            dry: false,
            failed: 0,
            again: Vec::new(),
            live,
        })
    }

    /// Runs until the end of the run. Returns the counts, each client's bytes, and the end time.
    pub(crate) fn run(mut self) -> (LoadTally, Vec<u64>, u64) {
        // By default the kernel may delay timers by 50 us to batch wake-ups, which would shift the due times.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        self.start_clients();
        let mut sweep_ns = self.now_ns + SWEEP_NS;
        let mut buffer = [MaybeUninit::uninit(); EVENTS_MAX];
        while !self.is_over() {
            let timeout = self.timeout(sweep_ns);
            let events = match epoll::wait(&self.epoll, &mut buffer, Some(&timeout)) {
                Ok((events, _)) => &*events,
                // Mostly EINTR by a signal: the loop checks the stop flag.
                Err(_) => &[],
            };
            self.now_ns = self.load.now_ns();
            for event in events {
                self.ready(event.data.u64() as u32, event.flags);
            }
            // Clients that stopped after READS_MAX reads: edge-triggered epoll does not report their input again.
            for at in std::mem::take(&mut self.again) {
                self.receive(at, true);
            }
            self.run_timers();
            self.issue_due();
            if self.now_ns >= sweep_ns {
                sweep_ns = self.now_ns + SWEEP_NS;
                self.sweep();
            }
        }
        // Only early errors explain a run without any response.
        if !self.shared.reached.load(Relaxed) {
            self.tally.adopt_early_errors();
        }
        self.publish();
        self.count_unfinished();
        let bytes = self.clients.iter().map(|client| client.counted_bytes);
        (self.tally, bytes.collect(), self.now_ns)
    }

    /// Starts all clients: spread over the ramp, or all at once without one.
    fn start_clients(&mut self) {
        let count = self.clients.len().max(1) as u64;
        let ramp_ns = match self.load.pace {
            RequestPace::Closed => self.load.ramp.as_nanos() as u64,
            // In an open loop the rate is ramped, not the number of clients.
            RequestPace::Requests(_) | RequestPace::Connections(_) => 0,
        };
        for at in 0..self.clients.len() as u32 {
            match self.load.pace {
                RequestPace::Connections(_) => self.set_free(at),
                RequestPace::Closed | RequestPace::Requests(_) => {
                    let start_ns = self.shared.begin_ns + ramp_ns * u64::from(at) / count;
                    self.set_timer(at, start_ns);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        // Without it a wrong address would keep the run connecting until its end.
        let hopeless = HOPELESS_TRIES * self.clients.len() as u64;
        if self.failed > hopeless && !self.shared.reached.load(Relaxed) {
            self.shared.stop.store(true, Relaxed);
        }
        self.now_ns >= self.shared.end_ns
            || self.shared.stop.load(Relaxed)
            || (self.dry && self.clients.iter().all(LoadClient::is_quiet))
            || (!self.may_open() && self.clients.iter().all(|client| client.link.is_none()))
    }

    fn timeout(&mut self, sweep_ns: u64) -> Timespec {
        // Pending reads must not wait for the next event.
        if !self.again.is_empty() {
            return Timespec::default();
        }
        self.now_ns = self.load.now_ns();
        let mut until_ns = sweep_ns.min(self.shared.end_ns);
        if let Some(Reverse((timer_ns, _))) = self.timers.peek() {
            until_ns = until_ns.min(*timer_ns);
        }
        // Without a free client a due time can't be served, so it must not wake the thread.
        if let (Some(schedule), false) = (&self.schedule, self.free.is_empty() || self.dry) {
            until_ns = until_ns.min(self.shared.begin_ns + schedule.next_ns());
        }
        if let Some(time) = &self.load.time {
            let mut links = self
                .clients
                .iter()
                .filter_map(|client| client.link.as_ref());
            let waits = links.any(ClientConnection::waits);
            // A guest's clock advances only here; epoll then polls without waiting.
            time.pass(self.epoll.as_fd(), until_ns, waits);
            return Timespec::default();
        }
        let wait_ns = match until_ns.saturating_sub(self.now_ns) {
            // A sleep this short would end late.
            near if near < SPIN_NS => 0,
            far => far,
        };
        Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        }
    }

    fn run_timers(&mut self) {
        while let Some(Reverse((timer_ns, at))) = self.timers.peek().copied() {
            if timer_ns > self.now_ns {
                return;
            }
            self.timers.pop();
            let client = &mut self.clients[at as usize];
            // The heap keeps superseded entries: only the client's current timer counts.
            if client.timer_ns == Some(timer_ns) {
                client.timer_ns = None;
                self.wake(at);
            }
        }
    }

    /// Sets a client's timer, unless an earlier one is set.
    pub(crate) fn set_timer(&mut self, at: u32, timer_ns: u64) {
        let client = &mut self.clients[at as usize];
        if client.timer_ns.is_none_or(|known_ns| timer_ns < known_ns) {
            client.timer_ns = Some(timer_ns);
            self.timers.push(Reverse((timer_ns, at)));
        }
    }

    /// Assigns due requests to free clients.
    fn issue_due(&mut self) {
        while !self.free.is_empty() && !self.dry {
            let Some(due_ns) = self.next_due() else {
                return;
            };
            let Some(at) = self.free.pop_front() else {
                return;
            };
            self.clients[at as usize].is_free = false;
            match self.load.pace {
                RequestPace::Connections(_) => self.connect(at, Some(due_ns)),
                RequestPace::Closed | RequestPace::Requests(_) => self.take_due(at, due_ns),
            }
        }
    }

    /// The next due time that has passed, the longest overdue first.
    fn next_due(&mut self) -> Option<u64> {
        if let Some(due_ns) = self.overdue.pop_front() {
            return Some(due_ns);
        }
        let schedule = self.schedule.as_mut()?;
        let due_ns = self.shared.begin_ns + schedule.next_ns();
        (due_ns <= self.now_ns).then(|| {
            schedule.advance();
            due_ns
        })
    }

    /// Counts requests that were outstanding, or due and unsent, at the end of the run. Requests sent or due after the
    /// end belong to no run.
    fn count_unfinished(&mut self) {
        let end_ns = self.shared.end_ns;
        let links = self
            .clients
            .iter()
            .filter_map(|client| client.link.as_ref());
        let pending = links.flat_map(|link| &link.pending);
        for one in pending.filter(|one| one.sent_ns < end_ns) {
            self.tally.unfinished(one.expected.class);
        }
        // Due requests that wait for their connection to be established.
        let due = self
            .clients
            .iter()
            .filter_map(|client| client.link.as_ref()?.due_ns);
        self.tally.unfinished += due.filter(|due_ns| *due_ns < end_ns).count() as u64;
        while !self.dry
            && let Some(due_ns) = self.next_due()
        {
            self.tally.unfinished += u64::from(due_ns < end_ns);
        }
    }

    pub(crate) fn set_free(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        if !client.is_free {
            client.is_free = true;
            self.free.push_back(at);
        }
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.now_ns >= self.shared.count_ns && self.now_ns < self.shared.end_ns
    }

    /// Takes one request from the quota. The quota does not apply before counting begins.
    pub(crate) fn take_quota(&mut self) -> bool {
        let Some(quota) = &self.shared.quota else {
            return true;
        };
        // Requests of the warm-up are free.
        if self.now_ns < self.shared.count_ns {
            return true;
        }
        let taken = quota.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        self.dry = taken.is_err();
        !self.dry
    }

    fn may_open(&self) -> bool {
        let openings = self.shared.openings.as_ref();
        openings.is_none_or(|left| left.load(Relaxed) > 0)
    }

    /// Takes one connection from the number that may be opened.
    pub(crate) fn take_opening(&self) -> bool {
        let openings = self.shared.openings.as_ref();
        openings.is_none_or(|left| {
            let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            taken.is_ok()
        })
    }

    /// Returns unsent requests to the quota.
    pub(crate) fn return_quota(&mut self, count: u64) {
        if let Some(quota) = &self.shared.quota
            && count > 0
        {
            quota.fetch_add(count, Relaxed);
            self.dry = false;
        }
    }

    /// Whether the quota is used up, so that a new connection would be useless.
    pub(crate) fn is_dry(&mut self) -> bool {
        let quota = self.shared.quota.as_ref();
        self.dry |= quota.is_some_and(|quota| quota.load(Relaxed) == 0);
        self.dry
    }

    fn sweep(&mut self) {
        let timeout_ns = self.load.timeout.as_nanos() as u64;
        for at in 0..self.clients.len() as u32 {
            let client = &self.clients[at as usize];
            let Some(link) = &client.link else {
                continue;
            };
            // A paused client does not read, so silence is not the server's fault.
            if link.waits() && !client.line_paused && self.now_ns > link.progress_ns + timeout_ns {
                self.timed_out(at);
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.requests = self.tally.requests;
        live.bytes = self.tally.bytes;
        live.errors = self.tally.errors();
        live.latency = self.tally.latency.clone();
    }

    pub(crate) fn register(&self, at: u32) -> rustix::io::Result<()> {
        let Some(link) = &self.clients[at as usize].link else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(u64::from(at));
        // Edge-triggered, with both directions from the start, so that no request needs an epoll_ctl.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &link.transport, data, flags)
    }
}

impl LoadRun {
    /// The current time of the run: by default the monotonic clock.
    pub(crate) fn now_ns(&self) -> u64 {
        if let Some(time) = &self.time {
            return time.now_ns();
        }
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
