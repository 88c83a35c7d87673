//! State that the connections of a worker share: driver and service, the buffers for responses, clocks and counters.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

use crate::counters::WorkerCounters;
use crate::driver::{ConnectionToken, IoDriver};
use crate::h2::state::SharedHttp2;
use crate::h3::ports::QuicPorts;
use crate::h3::state::SharedHttp3;
use crate::mailbox::WorkerMailbox;
use crate::message::WorkerMessage;
use crate::multiplexed::unframed::UnframedResponses;
use crate::response_body::OutputBuffer;
use crate::send_queue::PendingRecord;
use crate::service::HttpService;
use crate::settings::WorkerSettings;
use crate::timers::TICK_MS;
use crate::transport::Plaintext;
use crate::worker_handle::WorkerHandle;
use lowroad_limits::{ConnectionLimit, DeniedAddresses};
use lowroad_timer_wheel::TimerWheel;

/// The size of the cache of wakers.
const WAKERS: usize = 64;
/// How long connections may stay idle once the worker drains.
pub(crate) const DRAIN_IDLE_MS: u64 = 500;

/// The parts of a worker that its connections use.
pub(crate) struct WorkerContext<D: IoDriver, V: HttpService> {
    pub driver: D,
    pub service: V,
    pub settings: Arc<WorkerSettings>,
    pub counters: Arc<WorkerCounters>,
    /// Deadlines of connections, by slot.
    pub wheel: TimerWheel<TICK_MS>,
    pub out: OutputBuffer,
    /// A buffer for decrypted bytes.
    pub plain: Vec<u8>,
    /// Records of the responses in `out`.
    pub records: Vec<PendingRecord<V::Record>>,
    /// Connections that used up the reads of this turn of the event loop before their socket was empty.
    pub unfinished: Vec<ConnectionToken>,
    /// Seconds since 1970; `date` is the same time in the format of a Date field.
    pub unix_s: u64,
    pub date: [u8; 29],
    /// When the drain ends, if it has started.
    pub drain_until_ms: Option<u64>,
    pub admission: Arc<ConnectionLimit>,
    /// The addresses that operators deny.
    pub denied: Arc<DeniedAddresses>,
    pub mailbox: WorkerMailbox<WorkerMessage<D, V>>,
    pub worker_handle: WorkerHandle,
    pub wakers: ConnectionWakers,
    /// Written responses of connections with interleaved responses that were not moved to their streams.
    pub unframed: UnframedResponses<V::Record>,
    pub h2: SharedHttp2,
    pub h3: SharedHttp3,
    pub quic: QuicPorts,
    /// The mailboxes of all workers, for datagrams that reach the wrong one.
    pub peers: Arc<[WorkerMailbox<WorkerMessage<D, V>>]>,
    date_until_ms: u64,
}

struct StreamWake<M> {
    mailbox: WorkerMailbox<M>,
    token: ConnectionToken,
}

impl<M: From<ConnectionToken> + Send> std::task::Wake for StreamWake<M> {
    fn wake(self: Arc<Self>) {
        self.mailbox.post(self.token.into());
    }
}

/// Caches the wakers that report body progress of a connection to its worker, so that a poll allocates none;
/// direct-mapped: a connection's entry is its slot modulo the size of the cache.
pub(crate) struct ConnectionWakers([Option<(ConnectionToken, Waker)>; WAKERS]);

impl ConnectionWakers {
    /// The waker of a connection.
    pub fn waker_for<M: From<ConnectionToken> + Send + 'static>(
        &mut self,
        mailbox: &WorkerMailbox<M>,
        token: ConnectionToken,
    ) -> &Waker {
        let slot = &mut self.0[token.slot as usize % WAKERS];
        if slot.as_ref().is_none_or(|(owner, _)| *owner != token) {
            // The waker belongs to another connection with the same entry.
            *slot = None;
        }
        let (_, waker) = slot.get_or_insert_with(|| {
            let mailbox = mailbox.clone();
            (token, Waker::from(Arc::new(StreamWake { mailbox, token })))
        });
        waker
    }
}

impl<D: IoDriver, V: HttpService> WorkerContext<D, V> {
    /// The context of a new worker.
    pub fn new(
        driver: D,
        service: V,
        mailbox: WorkerMailbox<WorkerMessage<D, V>>,
        settings: Arc<WorkerSettings>,
        admission: Arc<ConnectionLimit>,
        counters: Arc<WorkerCounters>,
    ) -> Self {
        let now_ms = driver.now_ms();
        let local = driver.worker_handle().clone();
        WorkerContext {
            driver,
            service,
            settings,
            counters,
            wheel: TimerWheel::new(0, now_ms),
            out: OutputBuffer::default(),
            plain: Vec::new(),
            records: Vec::new(),
            unfinished: Vec::new(),
            unix_s: 0,
            date: [b' '; 29],
            drain_until_ms: None,
            admission,
            denied: Arc::default(),
            mailbox,
            worker_handle: local,
            wakers: ConnectionWakers([const { None }; WAKERS]),
            unframed: UnframedResponses::default(),
            h2: SharedHttp2::default(),
            h3: SharedHttp3::default(),
            quic: QuicPorts::default(),
            peers: Arc::new([]),
            date_until_ms: 0,
        }
    }

    /// Empties the buffers and lists that connections share, after all connections have ended.
    pub fn reset(&mut self) {
        self.wheel = TimerWheel::new(0, self.driver.now_ms());
        self.out = OutputBuffer::default();
        self.plain = Vec::new();
        self.unfinished.clear();
        self.wakers = ConnectionWakers([const { None }; WAKERS]);
        // The counters only increase.
        let counters = std::mem::take(&mut self.h2.counters);
        self.h2 = SharedHttp2 {
            counters,
            ..SharedHttp2::default()
        };
        let counters = std::mem::take(&mut self.h3.counters);
        self.h3 = SharedHttp3 {
            counters,
            ..SharedHttp3::default()
        };
    }

    /// Updates the date.
    pub fn update_date(&mut self) {
        let now_ms = self.driver.now_ms();
        if now_ms >= self.date_until_ms {
            let unix_ms = self.driver.unix_ms();
            self.unix_s = unix_ms / 1000;
            self.date = lowroad_http::date::format(self.unix_s);
            // The date is valid until the next full second.
            self.date_until_ms = now_ms + 1000 - unix_ms % 1000;
        }
    }

    /// Whether an operator denies this address.
    #[inline]
    pub fn is_denied(&self, address: IpAddr) -> bool {
        self.denied.contains(address, self.unix_s)
    }

    /// Maximum time between two requests of a connection.
    pub fn idle_timeout_ms(&self) -> u64 {
        match self.drain_until_ms {
            None => self.settings.idle_timeout_ms,
            Some(_) => self.settings.idle_timeout_ms.min(DRAIN_IDLE_MS),
        }
    }

    /// Returns the buffer with received bytes for reuse.
    pub fn return_buffer(&mut self, plaintext: Plaintext<D::RecvBuffer>) {
        match plaintext {
            Plaintext::Lent(buffer) => self.driver.return_buffer(buffer),
            Plaintext::Plain(plain) => self.plain = plain,
        }
    }

    /// Adds the record of the response at the end of the output; the service gets it back once the response was sent.
    pub fn push_record(&mut self, record: V::Record) {
        let len = self.out.bytes.len() as u64;
        // Records are in the order of the output.
        self.records.push(PendingRecord {
            record,
            // The body is at the end of the output.
            body_at: len - self.out.body_in_bytes,
            // If the body has parts, the response ends after the last part.
            end: self.out.parts.is_empty().then_some(len),
            framed_len: None,
        });
    }

    /// Adds the record of a response that has its last frames in the output; the service gets it back once they were
    /// sent.
    pub fn push_framed_record(&mut self, record: Option<V::Record>, body_len: u64) {
        if let Some(record) = record {
            let end = self.out.bytes.len() as u64;
            self.records
                .push(PendingRecord::from_frames(record, end, body_len));
        }
    }

    /// Reports to the service that all responses in the output, `len` bytes, were sent.
    pub fn report_sent(&mut self, len: u64) {
        let now_ms = self.driver.now_ms();
        for pending_record in self.records.drain(..) {
            let ended_record = pending_record.into_ended(len);
            self.service
                .sent(ended_record.record, ended_record.body_len, true, now_ms);
        }
    }

    pub fn discard_out(&mut self) {
        let now_ms = self.driver.now_ms();
        self.out.bytes.clear();
        self.out.parts.clear();
        for leaving in self.records.drain(..) {
            self.service.sent(leaving.record, 0, false, now_ms);
        }
    }

    /// Copies the counters of HTTP/2 to the counters that other threads read.
    pub fn publish_h2_counters(&self) {
        let (from, to) = (&self.h2.counters, &self.counters);
        to.h2_resets.set(from.resets);
        to.h2_faults.set(from.faults);
        to.h2_refused.set(from.refused);
        to.h2_glitches.set(from.glitches);
        to.h2_ended.set(from.ended);
        to.h2_floods.set(from.floods);
    }

    /// Copies the counters of HTTP/3 to the counters that other threads read.
    pub fn publish_h3_counters(&self) {
        let (from, to) = (&self.h3.counters, &self.counters);
        to.h3_resets.set(from.resets);
        to.h3_faults.set(from.faults);
        to.h3_refused.set(from.refused);
        to.h3_glitches.set(from.glitches);
        to.h3_ended.set(from.ended);
        to.h3_floods.set(from.floods);
    }
}
