//! A connection that speaks HTTP/2, as its exchanges share it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use lowroad_engine::WorkerHandle;
use lowroad_engine::tasks::WorkerTasks;
use lowroad_engine::timers::WorkerTimers;
use lowroad_http::h2::{ConnectionTurn, GlitchCounters, H2Client};
use lowroad_origin::MultiplexedConnection;

use super::driver::{LinkDriver, LinkOwner};
use super::exchange::H2Exchange;
use super::slots::{ExchangeSlots, LinkFault, RequestHead};
use super::{SETTINGS, STREAMS_MAX, UNSETTLED_STREAMS_MAX};
use crate::proxy::forwarding::DateCache;

/// A connection to an origin with concurrent requests.
pub struct H2Link {
    state: Mutex<LinkState>,
    worker: usize,
    pub(super) tasks: WorkerTasks,
    pub(super) timers: WorkerTimers,
}

/// The state that the connection's task and the exchanges share.
pub struct LinkState {
    pub http: H2Client,
    pub counters: GlitchCounters,
    /// Output, of which the task has sent a part.
    pub out: Vec<u8>,
    pub slots: ExchangeSlots,
    pub phase: LinkPhase,
    /// Whether a response has arrived on the connection.
    pub has_answered: bool,
    /// When the unanswered PING was sent.
    pub ping_ms: Option<u64>,
    /// Whether requests are sent although the origin's settings are unknown.
    pub presumes_settings: bool,
    /// Woken when the settings arrive, or the connection ends.
    pub settled: Option<Waker>,
    /// When the last exchange ended.
    pub idle_since_ms: u64,
    pub dates: DateCache,
    pub driver: Waker,
}

/// Whether a connection takes new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPhase {
    Open,
    /// The origin has sent GOAWAY: requests in progress may still be answered.
    Leaving,
    Closed,
}

impl H2Link {
    /// Starts the task of a new connection. It must be called for the worker with the socket in its driver.
    pub fn start(owner: LinkOwner, worker: usize, worker_handle: &WorkerHandle) -> Arc<H2Link> {
        let (mut out, mut counters) = (Vec::new(), GlitchCounters::default());
        let now_ms = worker_handle.timers.now_ms();
        let http = H2Client::new(&mut ConnectionTurn {
            now_ms,
            settings: &SETTINGS,
            out: &mut out,
            counters: &mut counters,
        });
        let state = LinkState {
            http,
            counters,
            out,
            slots: ExchangeSlots::default(),
            phase: LinkPhase::Open,
            has_answered: false,
            ping_ms: None,
            presumes_settings: false,
            settled: None,
            idle_since_ms: now_ms,
            dates: DateCache::default(),
            // The first poll of the task, which follows from spawning it, replaces this waker.
            driver: Waker::noop().clone(),
        };
        let link = Arc::new(H2Link {
            state: Mutex::new(state),
            worker,
            tasks: worker_handle.tasks.clone(),
            timers: worker_handle.timers.clone(),
        });
        let mut driver = LinkDriver::new(link.clone(), owner);
        let task = async move { std::future::poll_fn(|context| driver.poll(context)).await };
        worker_handle.tasks.spawn(task).detach();
        link
    }

    /// Begins an exchange. If the connection has no room, the request waits.
    pub fn begin(self: &Arc<Self>, head: RequestHead) -> H2Exchange {
        let mut state = self.lock();
        let is_reused = state.has_answered;
        let key = state.slots.add(head);
        match state.phase {
            LinkPhase::Open => {
                // Opened here, so that the exchange knows at once whether it has to wait for a stream.
                state.open_waiting();
                state.driver.wake_by_ref();
            }
            // The connection was lost since it was chosen.
            LinkPhase::Leaving | LinkPhase::Closed => state.slots.fail_waiting(),
        }
        drop(state);
        H2Exchange::new(self.clone(), key, is_reused)
    }

    /// Closes the connection as soon as it has no exchanges. Exchanges that wait for a stream fail as unprocessed.
    pub fn close_soon(&self) {
        let mut state = self.lock();
        if state.phase == LinkPhase::Open {
            state.phase = LinkPhase::Leaving;
        }
        state.slots.fail_waiting();
        state.driver.wake_by_ref();
    }

    /// Whether a response has arrived on the connection.
    pub fn has_answered(&self) -> bool {
        self.lock().has_answered
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkState {
    /// The maximum number of streams at present; 0 if the origin allows none (RFC 9113 §6.5.2), or its settings are awaited.
    pub fn streams_max(&self) -> usize {
        match self.http.is_open() {
            true => STREAMS_MAX.min(self.http.streams_max() as usize),
            false if self.presumes_settings => UNSETTLED_STREAMS_MAX,
            false => 0,
        }
    }

    /// Whether the maximum number of streams is known or presumed, or the connection has ended.
    pub fn is_settled(&self) -> bool {
        self.http.is_open() || self.presumes_settings || self.phase != LinkPhase::Open
    }

    /// Wakes the request that waits for the settings, if it need not wait any longer.
    pub fn wake_if_settled(&mut self) {
        if self.is_settled() {
            self.settled.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the connection.
    pub fn close(&mut self, fault: &LinkFault) {
        self.phase = LinkPhase::Closed;
        self.slots.fail_all(fault);
        self.wake_if_settled();
    }
}

impl MultiplexedConnection for H2Link {
    fn worker(&self) -> usize {
        self.worker
    }

    fn has_room(&self) -> bool {
        let state = self.lock();
        // A connection that may be dead takes no new requests.
        state.phase == LinkPhase::Open
            && state.ping_ms.is_none()
            && state.slots.len() < state.streams_max()
    }

    async fn settle(&self) {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.is_settled() {
                return Poll::Ready(());
            }
            state.settled = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn allows_requests(&self) -> bool {
        self.lock().streams_max() > 0
    }

    fn is_closed(&self) -> bool {
        self.lock().phase != LinkPhase::Open
    }

    fn requests(&self) -> usize {
        self.lock().slots.len()
    }
}
