//! A worker in the simulator, with a service that answers `/KIND/LEN`, for tests of the engine.

#![allow(dead_code, reason = "each test has a use for some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lowroad_engine::arena::{ArenaBlock, ResponseArena};
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::driver::{IoDriver, ListenerId};
use lowroad_engine::file::OpenFile;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::service::{ConnectionRefusal, Exchange, HttpService, ServiceOutcome};
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::stream::BodyReceiver;
use lowroad_engine::tls_session::TlsSession;
use lowroad_engine::worker::{MailboxMessage, Worker, WorkerMessage};
use lowroad_engine::{
    BodyPart, ExchangeId, InterimResponse, ResponseRate, ResponseWriter, WorkerHandle,
};
use lowroad_engine_sim::{FakeTls, FaultRates, SharedWorld, SimDriver};
use lowroad_file_stamp::FileStamp;
use lowroad_http::fields::ResponseFields;
use lowroad_http::h1::BodyLen;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_limits::ConnectionLimit;

pub type EchoMailbox = WorkerMailbox<WorkerMessage<SimDriver, Echo>>;

/// A service that answers `/KIND/LEN` with a body of LEN bytes; KIND is the type of the body's source, and whether the
/// request is deferred.
pub struct Echo {
    world: SharedWorld,
    mailbox: EchoMailbox,
    block: ArenaBlock,
    file: Arc<OpenFile>,
    /// A file that is only appended to, and contains the pattern after other bytes.
    segment: Arc<OpenFile>,
    sent: Vec<(u64, bool)>,
    /// The clients use TLS.
    has_tls_session: bool,
    /// Bodies of `/taken` requests, which are never read.
    bodies: Vec<BodyReceiver>,
}

pub const BLOCK_LEN: usize = 200_000;
/// The offset of the pattern in [`Echo::segment`].
const SEGMENT_AT: usize = 12_345;

pub fn pattern(at: usize) -> u8 {
    b'a' + (at % 23) as u8
}

pub fn pattern_bytes(len: usize) -> Vec<u8> {
    (0..len).map(pattern).collect()
}

/// The limit of bodies with a kind that begins with `paced-`.
pub const RATE: ResponseRate = ResponseRate {
    bytes_per_s: 80_000,
    after: 30_000,
};

/// The minimum time of a limited body, in ms: without the bytes before the limit and a slice of an eighth of a second.
pub fn paced_ms(len: u64) -> u64 {
    len.saturating_sub(RATE.after + RATE.bytes_per_s / 8) * 1000 / RATE.bytes_per_s
}

/// The number of interim responses to a `/hinted` request.
pub const HINTS: usize = 3;

pub fn hint() -> InterimResponse {
    let mut fields = ResponseFields::new();
    fields.push("Link", b"</style.css>; rel=preload");
    fields.push("Content-Length", b"7");
    InterimResponse {
        status: StatusCode::EARLY_HINTS,
        fields,
    }
}

/// Posts `left` interim responses, one after the other, and then the outcome.
fn post_interims(world: &SharedWorld, mailbox: EchoMailbox, id: ExchangeId, left: usize) {
    let again = world.clone();
    world.call_later(move || match left {
        0 => mailbox.post(MailboxMessage::Outcome(id, 7)),
        _ => {
            mailbox.post(MailboxMessage::Interim(id, Box::new(hint())));
            post_interims(&again, mailbox, id, left - 1);
        }
    });
}

impl Echo {
    fn begin(
        &self,
        kind: &str,
        len: usize,
        exchange: &Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(String, usize), u64> {
        if kind == "peer" {
            let peer = exchange.peer.to_string();
            let len = BodyLen::Known(peer.len() as u64);
            if response.head(StatusCode::OK).end(len) {
                response.write_copied(peer.as_bytes());
            }
            return ServiceOutcome::Ready(None);
        }
        if !["deferred", "hinted", "twice", "undecided"].contains(&kind) {
            return self.write(kind, len, response);
        }
        let (mailbox, id) = (self.mailbox.clone(), exchange.id);
        let (world, is_twice) = (self.world.clone(), kind == "twice");
        if kind == "hinted" {
            post_interims(&world, mailbox, id, HINTS);
        } else {
            self.world.call_later(move || {
                mailbox.post(MailboxMessage::Outcome(id, 7));
                if is_twice {
                    // A second outcome, which the engine must drop.
                    world.call_later(move || mailbox.post(MailboxMessage::Outcome(id, 8)));
                }
            });
        }
        ServiceOutcome::Deferred {
            pending: (kind.into(), len),
            cancel_on_disconnect: false,
        }
    }

    fn write(
        &self,
        kind: &str,
        len: usize,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(String, usize), u64> {
        let is_wanted = response
            .head(StatusCode::OK)
            .end(BodyLen::Known(len as u64));
        let kind = match kind.strip_prefix("paced-") {
            None => kind,
            Some(kind) => {
                response.set_rate(Some(RATE));
                kind
            }
        };
        if is_wanted {
            match kind {
                "block" => response.write_part(BodyPart::Block {
                    block: self.block.clone(),
                    range: 0..len,
                }),
                "file" => response.write_part(BodyPart::File {
                    file: self.file.clone(),
                    range: 0..len as u64,
                }),
                "segment" => response.write_part(BodyPart::File {
                    file: self.segment.clone(),
                    range: SEGMENT_AT as u64..(SEGMENT_AT + len) as u64,
                }),
                _ => response.write_copied(&pattern_bytes(len)),
            }
        }
        ServiceOutcome::Ready(Some(if is_wanted { len as u64 } else { 0 }))
    }
}

impl HttpService for Echo {
    /// The kind of body, and its length.
    type Pending = (String, usize);
    type Outcome = u64;
    type Record = u64;
    type Command = ();

    fn has_tls(&self, _: ListenerId) -> bool {
        self.has_tls_session
    }

    fn tls_session(&mut self, _: ListenerId) -> Option<Box<dyn TlsSession>> {
        self.has_tls_session
            .then(|| Box::new(FakeTls::default()) as _)
    }

    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(String, usize), u64> {
        let RequestTarget::Origin { path, .. } = request.target else {
            panic!("a path")
        };
        let path = std::str::from_utf8(path).expect("ASCII");
        let mut parts = path[1..].split('/');
        let (kind, len) = (parts.next().expect("kind"), parts.next().expect("len"));
        let len: usize = len.parse().expect("number");
        match kind {
            "panic" => panic!("as requested"),
            // These answer before the body has arrived; `early` drops the body, `taken` keeps it.
            "early" => return self.write(kind, len, response),
            "taken" => {
                self.bodies.extend(exchange.body.take());
                return self.write(kind, len, response);
            }
            "undecided" => {
                exchange.is_body_undecided = true;
                self.bodies.extend(exchange.body.take());
                return self.begin(kind, len, exchange, response);
            }
            _ => {}
        }
        if exchange.is_body_incomplete {
            return ServiceOutcome::AfterBody((kind.into(), len));
        }
        self.begin(kind, len, exchange, response)
    }

    fn body_dropped(
        &mut self,
        (kind, len): (String, usize),
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(String, usize), u64> {
        assert!(!exchange.is_body_incomplete);
        if kind == "undecided" {
            return self.write(&kind, len, response);
        }
        self.begin(&kind, len, exchange, response)
    }

    fn resume(
        &mut self,
        (kind, len): (String, usize),
        outcome: u64,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(String, usize), u64> {
        assert_eq!(outcome, 7);
        // Requests the body first if the response has an odd length.
        if kind == "undecided" && exchange.is_body_incomplete && len % 2 == 1 {
            return ServiceOutcome::AfterBody((kind, len));
        }
        self.write(&kind, len, response)
    }

    fn refuse(
        &mut self,
        _: ConnectionRefusal,
        _: &PartialRequest<'_>,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<u64> {
        response.head(StatusCode::BAD_REQUEST).end(BodyLen::None);
        None
    }

    fn sent(&mut self, record: u64, body_len: u64, is_complete: bool, _now_ms: u64) {
        if is_complete {
            assert_eq!(record, body_len, "the log tells what was sent");
        }
        self.sent.push((body_len, is_complete));
    }

    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _now_ms: u64) {}
}

pub struct Case {
    pub world: SharedWorld,
    pub worker: Worker<SimDriver, Echo>,
    pub local: WorkerHandle,
    pub mailbox: EchoMailbox,
    pub counters: Arc<WorkerCounters>,
    pub admission: Arc<ConnectionLimit>,
}

pub fn settings() -> WorkerSettings {
    WorkerSettings {
        accept_max: 4,
        header_timeout_ms: 60_000,
        body_timeout_ms: 60_000,
        idle_timeout_ms: 120_000,
        send_timeout_ms: 60_000,
        rate_min: 0,
        rate_grace_ms: 10_000,
        connections_max: 1000,
        connections_per_address_max: 1000,
        requests_max: 0,
        proxy_protocol_listeners: Vec::new(),
        h2: lowroad_http::h2::H2Settings::default(),
        h3: lowroad_http::h3::H3Settings::default(),
        http: lowroad_http::limits::RequestLimits::default(),
    }
}

pub fn mild_faults() -> FaultRates {
    FaultRates {
        piece_len_max: 500,
        delay_ms_max: 5,
        window_len: 5000,
        clock_jumps: 0,
        accept_failures: 0,
        file_failures: 0,
        late_sends: 0,
    }
}

impl Case {
    pub fn new(seed: u64, faults: FaultRates, settings: WorkerSettings) -> Case {
        Case::with(seed, faults, settings, false)
    }

    pub fn with(
        seed: u64,
        faults: FaultRates,
        settings: WorkerSettings,
        has_tls_session: bool,
    ) -> Case {
        let world = SharedWorld::new(seed, faults);
        let driver = world.driver();
        let local = driver.worker_handle().clone();
        let mailbox: EchoMailbox = WorkerMailbox::new(driver.waker());
        let arena = ResponseArena::new(1 << 20).expect("memory");
        let mut draft = arena.allocate(BLOCK_LEN).expect("space");
        draft.copy_from_slice(&pattern_bytes(BLOCK_LEN));
        // Other tests of this process may run with the same seed.
        static CASES: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), CASES.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("lowroad-sim-{process}-{number}"));
        std::fs::write(&path, pattern_bytes(BLOCK_LEN)).expect("write");
        let file = std::fs::File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("remove");
        let stamp = FileStamp::from_file(&file).expect("stat");
        let bytes = [
            vec![b'-'; SEGMENT_AT],
            pattern_bytes(BLOCK_LEN),
            vec![b'-'; 100],
        ]
        .concat();
        std::fs::write(&path, bytes).expect("write");
        let segment = std::fs::File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("remove");
        let service = Echo {
            world: world.clone(),
            mailbox: mailbox.clone(),
            block: draft.finish(),
            file: Arc::new(OpenFile::new(file, stamp)),
            segment: Arc::new(OpenFile::immutable(Arc::new(segment)).expect("stat")),
            sent: Vec::new(),
            has_tls_session,
            bodies: Vec::new(),
        };
        let (counters, admission) = (
            Arc::new(WorkerCounters::default()),
            Arc::new(ConnectionLimit::default()),
        );
        let worker = Worker::new(
            driver,
            service,
            mailbox.clone(),
            Arc::new(settings),
            admission.clone(),
            counters.clone(),
        );
        mailbox.post(MailboxMessage::Listen(ListenerId(0), ()));
        Case {
            world,
            worker,
            local,
            mailbox,
            counters,
            admission,
        }
    }

    /// Runs turns until `done`; panics after too many.
    pub fn turn_until(
        &mut self,
        seed: u64,
        what: &str,
        mut done: impl FnMut(&SharedWorld) -> bool,
    ) {
        for _ in 0..200_000 {
            if done(&self.world) {
                return;
            }
            self.worker.turn();
        }
        panic!("seed {seed}: {what} did not happen");
    }

    /// Runs turns for `ms` of virtual time.
    pub fn turn_for(&mut self, ms: u64) {
        let until_ms = self.world.now_ms() + ms;
        self.world.alarm(until_ms);
        while self.world.now_ms() < until_ms {
            self.worker.turn();
        }
    }
}
