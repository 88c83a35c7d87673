//! Pass-through in the simulator: the other server receives all bytes from the start of the request, its bytes follow
//! the responses to earlier requests, and the end of each side is forwarded to the other.
//!
//! Each test case has a seed, which a failure prints.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lowroad_engine::ResponseWriter;
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::driver::{IoDriver, ListenerId};
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::pass_through::PassThroughTarget;
use lowroad_engine::service::{ConnectionRefusal, Exchange, HttpService, ServiceOutcome};
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::{MailboxMessage, Worker};
use lowroad_engine_sim::{FaultRates, PeerBehavior, SharedWorld, SimDriver};
use lowroad_http::h1::{BodyLen, H1RequestHead};
use lowroad_http::limits::RequestLimits;
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::status::StatusCode;
use lowroad_limits::ConnectionLimit;

/// A service that answers requests for `/own`, and passes through connections with any other request.
#[derive(Default)]
struct PassThroughHandler {
    /// For each connection that was passed through: the number of bytes sent to the client, and whether these are all.
    passed: Rc<RefCell<Vec<(u64, bool)>>>,
}

impl HttpService for PassThroughHandler {
    type Pending = ();
    type Outcome = ();
    type Record = ();
    type Command = ();

    fn pass_through(
        &mut self,
        _: ListenerId,
        head: Option<&H1RequestHead<'_>>,
    ) -> Option<PassThroughTarget> {
        let is_own = head.is_some_and(|head| head.request.raw_target() == b"/own");
        (!is_own).then_some(PassThroughTarget {
            server: ([192, 0, 2, 1], 80).into(),
            source: None,
            connect_timeout_ms: 10_000,
            idle_timeout_ms: IDLE_MS,
        })
    }

    fn passed_through(
        &mut self,
        _: Option<&H1RequestHead<'_>>,
        input: &[u8],
        _: &Exchange,
    ) -> Option<()> {
        assert!(!input.is_empty());
        Some(())
    }

    fn request(
        &mut self,
        _: &Request<'_>,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        response.head(StatusCode::OK).end(BodyLen::Known(3));
        response.write_copied(b"own");
        ServiceOutcome::Ready(None)
    }

    fn resume(
        &mut self,
        (): (),
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        panic!("nothing is deferred")
    }

    fn body_dropped(
        &mut self,
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        panic!("nothing is deferred")
    }

    fn refuse(
        &mut self,
        _: ConnectionRefusal,
        _: &PartialRequest<'_>,
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> Option<()> {
        panic!("nothing is refused")
    }

    fn sent(&mut self, (): (), len: u64, is_whole: bool, _: u64) {
        self.passed.borrow_mut().push((len, is_whole));
    }

    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _: u64) {}
}

struct TransferCase {
    seed: u64,
    world: SharedWorld,
    worker: Worker<SimDriver, PassThroughHandler>,
    counters: Arc<WorkerCounters>,
    admission: Arc<ConnectionLimit>,
    passed: Rc<RefCell<Vec<(u64, bool)>>>,
    client: usize,
}

/// The idle timeout of connections that are passed through.
const IDLE_MS: u64 = 100_000;

const OWN_REQUEST: &[u8] = b"GET /own HTTP/1.1\r\nHost: sim\r\n\r\n";

/// First bytes that are not a request, an incomplete one, or one that the service passes through.
const FIRST_BYTES: [&[u8]; 5] = [
    b"no request\r\n\r\n",
    b"GET /a/../b HTTP/1.1\r\nHost: sim\r\nHost: sim\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /other HTTP/1.1\r\nHost: sim\r\nContent-Length: 9\r\n\r\nabc",
    b"GET /cut HTTP/1.1\r\nHo",
];

impl TransferCase {
    fn new(seed: u64) -> TransferCase {
        let pick = |at: u64, from: &[usize]| from[((seed >> at) % from.len() as u64) as usize];
        let faults = FaultRates {
            piece_len_max: pick(0, &[40, 700, 9000, 50_000]),
            delay_ms_max: pick(2, &[0, 3, 40]) as u64,
            window_len: pick(1, &[900, 20_000, 1_000_000]),
            clock_jumps: 0,
            accept_failures: 0,
            file_failures: 0,
            late_sends: pick(3, &[0, 400, 1000]) as u64,
        };
        let world = SharedWorld::new(seed, faults);
        let driver = world.driver();
        let mailbox = WorkerMailbox::new(driver.waker());
        let settings = WorkerSettings {
            accept_max: 4,
            header_timeout_ms: 60_000,
            body_timeout_ms: 60_000,
            idle_timeout_ms: 60_000,
            send_timeout_ms: 60_000,
            rate_min: 1000,
            rate_grace_ms: 10_000,
            connections_max: 1000,
            connections_per_address_max: 1000,
            requests_max: 0,
            proxy_protocol_listeners: Vec::new(),
            h2: lowroad_http::h2::H2Settings::default(),
            h3: lowroad_http::h3::H3Settings::default(),
            http: RequestLimits::default(),
        };
        let counters = Arc::new(WorkerCounters::default());
        let admission = Arc::new(ConnectionLimit::default());
        let service = PassThroughHandler::default();
        let passed = service.passed.clone();
        let worker = Worker::new(
            driver,
            service,
            mailbox.clone(),
            Arc::new(settings),
            admission.clone(),
            counters.clone(),
        );
        mailbox.post(MailboxMessage::Listen(ListenerId(0), ()));
        let client = world.connect();
        TransferCase {
            seed,
            world,
            worker,
            counters,
            admission,
            passed,
            client,
        }
    }

    fn first_bytes(&self) -> &'static [u8] {
        FIRST_BYTES[(self.seed % FIRST_BYTES.len() as u64) as usize]
    }

    fn turn_until(&mut self, what: &str, done: impl Fn(&TransferCase) -> bool) {
        for _ in 0..400_000 {
            if done(self) {
                return;
            }
            self.worker.turn();
        }
        panic!("seed {}: {what} does not happen", self.seed);
    }

    /// The server's side of the connection, once it is established.
    fn server(&mut self) -> usize {
        for _ in 0..400_000 {
            if let Some(server) = self.world.dialed().pop() {
                return server;
            }
            self.worker.turn();
        }
        panic!("seed {}: no connection", self.seed);
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 23) as u8).collect()
}

#[test]
fn bytes_and_ends_are_forwarded_in_both_directions() {
    for seed in 0..150 {
        let mut case = TransferCase::new(seed);
        let (first_bytes, rest) = (
            case.first_bytes(),
            content([0, 5000, 300_000][(seed % 3) as usize]),
        );
        let sent = [first_bytes, &rest].concat();
        // The service answers the two requests before it.
        case.world
            .send(case.client, &[OWN_REQUEST, OWN_REQUEST, &sent].concat());
        case.world.end(case.client);
        let server = case.server();
        case.turn_until("all of it", |case| case.world.read(server) == sent);
        // A client that has half-closed still receives.
        let server_bytes = content(200_000);
        case.world.send(server, &server_bytes);
        case.world.end(server);
        case.turn_until("the end", |case| {
            case.world.is_over(case.client) && case.admission.open() == 0
        });
        let read = case.world.read(case.client);
        assert!(
            read.ends_with(&server_bytes),
            "seed {seed}: {} bytes",
            read.len()
        );
        let before = &read[..read.len() - server_bytes.len()];
        let answers = before.windows(7).filter(|seven| seven == b"\r\n\r\nown");
        assert_eq!(answers.count(), 2, "seed {seed}");
        let counters = [
            &case.counters.passed_through,
            &case.counters.refused,
            &case.counters.broken,
            &case.counters.streams_cut,
        ];
        assert_eq!(counters.map(|it| it.value()), [1, 0, 0, 0], "seed {seed}");
        let passed = case.passed.borrow().clone();
        assert_eq!(passed, [(server_bytes.len() as u64, true)], "seed {seed}");
    }
}

#[test]
fn unreachable_server_closes_the_client_connection() {
    for seed in 0..40 {
        let mut case = TransferCase::new(seed);
        case.world.set_peer_behavior(PeerBehavior {
            refused: if seed % 2 == 0 { 1000 } else { 0 },
            unanswered: 1000,
            queue_full: 0,
        });
        let first_bytes = case.first_bytes();
        case.world.send(case.client, first_bytes);
        if first_bytes.ends_with(b"Ho") {
            case.world.end(case.client);
        }
        case.turn_until("the end", |case| case.admission.open() == 0);
        assert!(case.world.read(case.client).is_empty(), "seed {seed}");
    }
}

#[test]
fn reset_of_one_side_ends_the_other() {
    for seed in 0..60 {
        let mut case = TransferCase::new(seed);
        let first_bytes = FIRST_BYTES[(seed % 4) as usize];
        case.world.send(case.client, first_bytes);
        let server = case.server();
        let lost = if seed % 2 == 0 { server } else { case.client };
        case.world.reset(lost);
        case.turn_until("the end", |case| case.admission.open() == 0);
        case.turn_until("the other end", |case| case.world.is_over(server));
        // If the server is lost, only a reset shows the client that the response is incomplete.
        let client_sees_reset = lost == case.client || case.world.was_reset(case.client);
        assert!(client_sees_reset, "seed {seed}");
    }
}

#[test]
fn idle_connection_is_closed() {
    for seed in 0..20 {
        let mut case = TransferCase::new(seed);
        case.world
            .send(case.client, FIRST_BYTES[(seed % 4) as usize]);
        let server = case.server();
        case.turn_until("the end", |case| case.admission.open() == 0);
        assert_eq!(case.counters.tunnel_timeouts.value(), 1, "seed {seed}");
        case.turn_until("the other end", |case| case.world.is_over(server));
    }
}

/// The timeout of the other server applies to the rest of the head.
#[test]
fn slow_head_is_passed_through() {
    for seed in (0..50).filter(|seed| seed % 5 == 4) {
        let mut case = TransferCase::new(seed);
        case.world.send(case.client, case.first_bytes());
        let server = case.server();
        case.world.send(case.client, b"st: sim\r\n\r\n");
        let whole = [case.first_bytes(), b"st: sim\r\n\r\n"].concat();
        case.turn_until("the head", |case| case.world.read(server) == whole);
        assert_eq!(case.counters.header_timeouts.value(), 0, "seed {seed}");
    }
}

#[test]
fn client_connection_is_closed_soon_after_the_end_of_the_server() {
    for seed in 0..60 {
        let mut case = TransferCase::new(seed);
        let first_bytes = FIRST_BYTES[(seed % 4) as usize];
        case.world.send(case.client, first_bytes);
        let server = case.server();
        case.turn_until("the request", |case| case.world.read(server) == first_bytes);
        let since_ms = case.world.now_ms();
        case.world.send(server, b"bye");
        case.world.end(server);
        case.turn_until("the end", |case| case.admission.open() == 0);
        assert_eq!(case.world.read(case.client), b"bye", "seed {seed}");
        let elapsed_ms = case.world.now_ms() - since_ms;
        assert!(elapsed_ms < IDLE_MS / 2, "seed {seed}: {elapsed_ms} ms");
    }
}
