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
use super::three;
use super::transport::TlsStart;
use super::two;
use super::{LoadRun, RequestPace};

const EVENTS_MAX: usize = 512;
const SCRATCH_LEN: usize = 256 * 1024;
/// Interval at which timeouts are checked and the live figures are published.
const SWEEP_NS: u64 = 100_000_000;
/// If the next due time is closer than this, the worker polls the clock, because a sleep would end too late.
const SPIN_NS: u64 = 5_000;
/// The run is given up after this many failed connections for each client, if no response has ever arrived.
const HOPELESS_TRIES: u64 = 5;

/// State shared by the threads.
pub(crate) struct LoadContext {
    /// Whether all threads must end.
    pub stop: AtomicBool,
    /// Remaining requests, if they are limited.
    pub quota: Option<AtomicU64>,
    /// Remaining connections, if they are limited.
    pub connections_left: Option<AtomicU64>,
    pub begin_ns: u64,
    /// When counting begins.
    pub count_ns: u64,
    pub end_ns: u64,
    /// Whether any response has arrived, so that the server is known to be reachable.
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
    /// Due times that found no free client.
    pub overdue: VecDeque<u64>,
    pub scratch: Vec<u8>,
    pub h2_context: two::H2Context,
    pub h3_context: three::H3Context,
    /// The next address to connect to.
    pub address: usize,
    /// The request quota is used up.
    pub is_quota_used_up: bool,
    /// Number of failed connections.
    pub failed: u64,
    /// Clients with more input than one turn reads, or with an end of the connection to detect.
    pub unread_clients: Vec<u32>,
    pub live: Arc<Mutex<LiveFigures>>,
}

/// The part of the run that a thread executes.
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
        // A thread gets every n-th client, so that all threads have about equally many.
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
            h2_context: two::H2Context::default(),
            h3_context: three::H3Context::default(),
            // Threads start with different addresses, so that even short runs use all addresses.
            address: share.thread as usize,
            is_quota_used_up: false,
            failed: 0,
            unread_clients: Vec::new(),
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
        while !self.is_finished() {
            let timeout = self.timeout(sweep_ns);
            let events = match epoll::wait(&self.epoll, &mut buffer, Some(&timeout)) {
                Ok((events, _)) => &*events,
                // Mostly EINTR by a signal; the loop checks the stop flag.
                Err(_) => &[],
            };
            self.now_ns = self.load.now_ns();
            for event in events {
                self.ready(event.data.u64() as u32, event.flags);
            }
            // Clients that stopped after READS_MAX reads: edge-triggered epoll does not report the remaining input
            // again.
            for client_index in std::mem::take(&mut self.unread_clients) {
                self.receive(client_index, true);
            }
            self.run_timers();
            // Due requests are sent after events and timers, which may have freed clients for them.
            self.issue_due();
            if self.now_ns >= sweep_ns {
                sweep_ns = self.now_ns + SWEEP_NS;
                self.sweep();
            }
        }
        // Early errors count only if they explain why there was no response.
        if !self.shared.reached.load(Relaxed) {
            self.tally.adopt_early_errors();
        }
        self.publish();
        self.count_unfinished();
        let bytes = self.clients.iter().map(|client| client.counted_bytes);
        (self.tally, bytes.collect(), self.now_ns)
    }

    /// Starts all clients: spread over the ramp, or immediately if there is none.
    fn start_clients(&mut self) {
        let count = self.clients.len().max(1) as u64;
        let ramp_ns = match self.load.pace {
            RequestPace::Closed => self.load.ramp.as_nanos() as u64,
            // In an open loop the rate is ramped, not the number of clients.
            RequestPace::Requests(_) | RequestPace::Connections(_) => 0,
        };
        for client_index in 0..self.clients.len() as u32 {
            match self.load.pace {
                // In an open loop of connections `issue_due` opens each one when it is due.
                RequestPace::Connections(_) => self.set_free(client_index),
                RequestPace::Closed | RequestPace::Requests(_) => {
                    let start_ns = self.shared.begin_ns + ramp_ns * u64::from(client_index) / count;
                    self.set_timer(client_index, start_ns);
                }
            }
        }
    }

    fn is_finished(&self) -> bool {
        // Otherwise a wrong address would keep the run connecting until its end.
        let hopeless = HOPELESS_TRIES * self.clients.len() as u64;
        if self.failed > hopeless && !self.shared.reached.load(Relaxed) {
            self.shared.stop.store(true, Relaxed);
        }
        self.now_ns >= self.shared.end_ns
            || self.shared.stop.load(Relaxed)
            || (self.is_quota_used_up && self.clients.iter().all(LoadClient::is_quiet))
            || (!self.can_open() && self.clients.iter().all(|client| client.link.is_none()))
    }

    fn timeout(&mut self, sweep_ns: u64) -> Timespec {
        // Pending reads must not wait for the next event.
        if !self.unread_clients.is_empty() {
            return Timespec::default();
        }
        self.now_ns = self.load.now_ns();
        let mut until_ns = sweep_ns.min(self.shared.end_ns);
        if let Some(Reverse((timer_ns, _))) = self.timers.peek() {
            until_ns = until_ns.min(*timer_ns);
        }
        // Without a free client no due request can be sent, so a due time must not wake the thread.
        if let (Some(schedule), false) = (
            &self.schedule,
            self.free.is_empty() || self.is_quota_used_up,
        ) {
            until_ns = until_ns.min(self.shared.begin_ns + schedule.next_ns());
        }
        if let Some(time) = &self.load.time {
            let mut links = self
                .clients
                .iter()
                .filter_map(|client| client.link.as_ref());
            let waits = links.any(ClientConnection::is_waiting);
            // A guest's clock advances only in `pass`; epoll then polls without waiting.
            time.pass(self.epoll.as_fd(), until_ns, waits);
            return Timespec::default();
        }
        let wait_ns = match until_ns.saturating_sub(self.now_ns) {
            // A sleep of such a short time would end too late.
            short_ns if short_ns < SPIN_NS => 0,
            far => far,
        };
        Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        }
    }

    fn run_timers(&mut self) {
        while let Some(Reverse((timer_ns, client_index))) = self.timers.peek().copied() {
            if timer_ns > self.now_ns {
                return;
            }
            self.timers.pop();
            let client = &mut self.clients[client_index as usize];
            // The heap keeps superseded entries: only the client's current timer counts.
            if client.timer_ns == Some(timer_ns) {
                client.timer_ns = None;
                self.wake(client_index);
            }
        }
    }

    /// Sets a client's timer, unless an earlier one is set.
    pub(crate) fn set_timer(&mut self, client_index: u32, timer_ns: u64) {
        let client = &mut self.clients[client_index as usize];
        if client
            .timer_ns
            .is_none_or(|scheduled_ns| timer_ns < scheduled_ns)
        {
            client.timer_ns = Some(timer_ns);
            self.timers.push(Reverse((timer_ns, client_index)));
        }
    }

    /// Assigns due requests to free clients.
    fn issue_due(&mut self) {
        while !self.free.is_empty() && !self.is_quota_used_up {
            let Some(due_ns) = self.next_due() else {
                return;
            };
            let Some(client_index) = self.free.pop_front() else {
                return;
            };
            self.clients[client_index as usize].is_free = false;
            match self.load.pace {
                RequestPace::Connections(_) => self.connect(client_index, Some(due_ns)),
                RequestPace::Closed | RequestPace::Requests(_) => {
                    self.send_due(client_index, due_ns)
                }
            }
        }
    }

    /// The next due time that has passed, beginning with the longest overdue.
    fn next_due(&mut self) -> Option<u64> {
        // The request keeps its original due time, so that the wait for a free client counts as latency.
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
    /// end are not counted.
    fn count_unfinished(&mut self) {
        let end_ns = self.shared.end_ns;
        let links = self
            .clients
            .iter()
            .filter_map(|client| client.link.as_ref());
        let pending = links.flat_map(|link| &link.pending);
        for request in pending.filter(|request| request.sent_ns < end_ns) {
            self.tally.unfinished(request.expected.class);
        }
        // Due requests of connections that are not established yet.
        let due = self
            .clients
            .iter()
            .filter_map(|client| client.link.as_ref()?.due_ns);
        self.tally.unfinished += due.filter(|due_ns| *due_ns < end_ns).count() as u64;
        while !self.is_quota_used_up
            && let Some(due_ns) = self.next_due()
        {
            self.tally.unfinished += u64::from(due_ns < end_ns);
        }
    }

    pub(crate) fn set_free(&mut self, client_index: u32) {
        let client = &mut self.clients[client_index as usize];
        if !client.is_free {
            client.is_free = true;
            self.free.push_back(client_index);
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
        // Requests of the warm-up do not use up the quota.
        if self.now_ns < self.shared.count_ns {
            return true;
        }
        // A plain subtraction would wrap around if threads compete for the last request.
        let decremented =
            quota.fetch_update(Relaxed, Relaxed, |remaining| remaining.checked_sub(1));
        self.is_quota_used_up = decremented.is_err();
        !self.is_quota_used_up
    }

    fn can_open(&self) -> bool {
        let connections_left = self.shared.connections_left.as_ref();
        connections_left.is_none_or(|remaining| remaining.load(Relaxed) > 0)
    }

    /// Takes one connection from the number that may be opened.
    pub(crate) fn take_opening(&self) -> bool {
        let connections_left = self.shared.connections_left.as_ref();
        connections_left.is_none_or(|remaining| {
            let decremented =
                remaining.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
            decremented.is_ok()
        })
    }

    /// Returns unsent requests to the quota.
    pub(crate) fn return_quota(&mut self, count: u64) {
        if let Some(quota) = &self.shared.quota
            && count > 0
        {
            quota.fetch_add(count, Relaxed);
            self.is_quota_used_up = false;
        }
    }

    /// Whether the quota is used up, so that a new connection would have no request to send.
    pub(crate) fn check_quota(&mut self) -> bool {
        let quota = self.shared.quota.as_ref();
        self.is_quota_used_up |= quota.is_some_and(|quota| quota.load(Relaxed) == 0);
        self.is_quota_used_up
    }

    fn sweep(&mut self) {
        let timeout_ns = self.load.timeout.as_nanos() as u64;
        for client_index in 0..self.clients.len() as u32 {
            let client = &self.clients[client_index as usize];
            let Some(link) = &client.link else {
                continue;
            };
            // A paused client does not read, so a lack of bytes is not the server's fault.
            if link.is_waiting()
                && !client.line_paused
                && self.now_ns > link.progress_ns + timeout_ns
            {
                self.timed_out(client_index);
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

    pub(crate) fn register(&self, client_index: u32) -> rustix::io::Result<()> {
        let Some(link) = &self.clients[client_index as usize].link else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(u64::from(client_index));
        // The socket is registered edge-triggered and for both directions from the start, so that no request needs an
        // epoll_ctl.
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
