//! Tunnels in the simulator: all bytes arrive in both directions, each direction ends separately, and if one side
//! breaks off, the other ends too.
//!
//! Each test case has a seed, which a failure prints.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::driver::{IoDriver, ListenerId};
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::service::{ConnectionRefusal, Exchange, HttpService, ServiceOutcome};
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::stream::{BodySender, StreamItem};
use lowroad_engine::tunnel::{ClientTunnel, TunnelPeer};
use lowroad_engine::worker::{MailboxMessage, Worker, WorkerMessage};
use lowroad_engine::{ExchangeId, ResponseWriter};
use lowroad_engine_sim::{FaultRates, SharedWorld, SimDriver};
use lowroad_http::fields::ResponseFields;
use lowroad_http::h1::BodyLen;
use lowroad_http::limits::RequestLimits;
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::status::StatusCode;
use lowroad_limits::ConnectionLimit;

type UpgradeMailbox = WorkerMailbox<WorkerMessage<SimDriver, Upgrading>>;

/// The behavior of the program at the other end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ProgramBehavior {
    /// Echoes, and ends its direction when the client does.
    Echo,
    /// Sends this many bytes, ends its direction, and continues to read.
    SendAndRead(usize),
    /// Sends this many bytes, and drops its end of the tunnel.
    SendAndDrop(usize),
    /// Echoes this many bytes and breaks off.
    Break(usize),
    /// Does nothing until the behavior is changed.
    Idle,
}

/// The program at the other end of a tunnel.
struct Program {
    world: SharedWorld,
    tunnel_peer: Option<TunnelPeer>,
    /// The direction to the client has ended.
    is_output_ended: bool,
    unsent_bytes: Option<Bytes>,
    behavior: ProgramBehavior,
    received: Vec<u8>,
    sent: usize,
    /// The end of the direction from the client.
    ended: Option<StreamItem>,
}

/// Polls a program after a random delay.
struct DelayedWaker(Arc<Mutex<Program>>, SharedWorld);

impl Wake for DelayedWaker {
    fn wake(self: Arc<Self>) {
        let program = self.0.clone();
        self.1.call_later(move || Program::poll_program(&program));
    }
}

impl Program {
    fn poll_program(shared: &Arc<Mutex<Program>>) {
        let mut program = shared.lock().expect("no panic");
        let waker = Waker::from(Arc::new(DelayedWaker(
            shared.clone(),
            program.world.clone(),
        )));
        program.work(&mut Context::from_waker(&waker));
    }

    fn work(&mut self, context: &mut Context<'_>) {
        match self.behavior {
            ProgramBehavior::Idle => {}
            ProgramBehavior::SendAndDrop(len) | ProgramBehavior::SendAndRead(len)
                if !self.is_output_ended =>
            {
                let Some(tunnel_peer) = self.tunnel_peer.take() else {
                    return;
                };
                let _ = tunnel_peer.to_client.push(content(len).into());
                tunnel_peer.to_client.end();
                self.is_output_ended = true;
                if matches!(self.behavior, ProgramBehavior::SendAndRead(_)) {
                    // A sender without receiver replaces the ended direction.
                    let (unused, _) = lowroad_engine::stream::stream(1);
                    self.tunnel_peer = Some(TunnelPeer {
                        from_client: tunnel_peer.from_client,
                        to_client: unused,
                    });
                    self.listen(context);
                }
            }
            ProgramBehavior::SendAndRead(_) => self.listen(context),
            _ => self.echo(context),
        }
    }

    fn listen(&mut self, context: &mut Context<'_>) {
        while let Some(tunnel_peer) = &self.tunnel_peer {
            match tunnel_peer.from_client.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(StreamItem::Bytes(bytes)) => self.received.extend_from_slice(&bytes),
                Poll::Ready(ended) => {
                    self.ended = Some(ended);
                    self.tunnel_peer = None;
                }
            }
        }
    }

    fn echo(&mut self, context: &mut Context<'_>) {
        while let Some(tunnel_peer) = &self.tunnel_peer {
            if let Some(bytes) = self.unsent_bytes.take() {
                match tunnel_peer.to_client.poll_room(context) {
                    Poll::Pending => return self.unsent_bytes = Some(bytes),
                    Poll::Ready(Err(_)) => return self.tunnel_peer = None,
                    Poll::Ready(Ok(())) => {
                        self.sent += bytes.len();
                        let _ = tunnel_peer.to_client.push(bytes);
                    }
                }
            }
            if matches!(self.behavior, ProgramBehavior::Break(len) if self.sent >= len) {
                return self.tunnel_peer = None;
            }
            match tunnel_peer.from_client.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(StreamItem::Bytes(bytes)) => self.unsent_bytes = Some(bytes),
                Poll::Ready(ended) => {
                    let tunnel_peer = self.tunnel_peer.take();
                    if ended == StreamItem::End {
                        tunnel_peer
                            .into_iter()
                            .for_each(|tunnel_peer| BodySender::end(tunnel_peer.to_client));
                    }
                    self.ended = Some(ended);
                }
            }
        }
    }
}

type Programs = Arc<Mutex<Vec<Arc<Mutex<Program>>>>>;

/// A service that accepts all upgrades, immediately or deferred.
struct Upgrading {
    world: SharedWorld,
    mailbox: UpgradeMailbox,
    behavior: ProgramBehavior,
    idle_timeout_ms: Option<u64>,
    programs: Programs,
    sent: Vec<u64>,
}

const BUFFER_LEN: usize = 700;

impl Upgrading {
    fn upgrade(&mut self, response: &mut ResponseWriter<'_>) -> ServiceOutcome<(), ()> {
        let (tunnel, tunnel_peer) = ClientTunnel::new(BUFFER_LEN);
        let program = Arc::new(Mutex::new(Program {
            world: self.world.clone(),
            tunnel_peer: Some(tunnel_peer),
            is_output_ended: false,
            unsent_bytes: None,
            behavior: self.behavior,
            received: Vec::new(),
            sent: 0,
            ended: None,
        }));
        let tunnel = match self.idle_timeout_ms {
            Some(ms) => tunnel.with_idle_timeout(ms),
            None => tunnel,
        };
        let upgraded = response.upgrade(b"echo", &ResponseFields::new(), tunnel);
        assert!(upgraded.is_ok(), "it can be");
        let mut programs = self.programs.lock().expect("no panic");
        programs.push(program.clone());
        drop(programs);
        Program::poll_program(&program);
        ServiceOutcome::Ready(Some(()))
    }
}

impl HttpService for Upgrading {
    type Pending = ();
    type Outcome = u64;
    type Record = ();
    type Command = ();

    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        if request.raw_target() == b"/plain" {
            response.head(StatusCode::OK).end(BodyLen::Known(2));
            response.write_copied(b"ok");
            return ServiceOutcome::Ready(None);
        }
        if request.raw_target() == b"/now" {
            return self.upgrade(response);
        }
        let (mailbox, id): (UpgradeMailbox, ExchangeId) = (self.mailbox.clone(), exchange.id);
        self.world
            .call_later(move || mailbox.post(MailboxMessage::Outcome(id, 0)));
        ServiceOutcome::Deferred {
            pending: (),
            cancel_on_disconnect: false,
        }
    }

    fn resume(
        &mut self,
        (): (),
        _: u64,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        self.upgrade(response)
    }

    fn body_dropped(
        &mut self,
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        panic!("there are no bodies")
    }

    fn refuse(
        &mut self,
        _: ConnectionRefusal,
        _: &PartialRequest<'_>,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<()> {
        response.head(StatusCode::BAD_REQUEST).end(BodyLen::None);
        None
    }

    fn sent(&mut self, (): (), body_len: u64, _is_complete: bool, _now_ms: u64) {
        self.sent.push(body_len);
    }

    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _now_ms: u64) {}
}

struct Case {
    seed: u64,
    world: SharedWorld,
    worker: Worker<SimDriver, Upgrading>,
    mailbox: UpgradeMailbox,
    counters: Arc<WorkerCounters>,
    admission: Arc<ConnectionLimit>,
    client: usize,
    programs: Programs,
}

const IDLE_MS: u64 = 120_000;

fn settings() -> WorkerSettings {
    WorkerSettings {
        accept_max: 4,
        header_timeout_ms: 60_000,
        body_timeout_ms: 60_000,
        idle_timeout_ms: IDLE_MS,
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
    }
}

fn faults(seed: u64) -> FaultRates {
    let pick = |at: u64, from: &[usize]| from[((seed >> at) % from.len() as u64) as usize];
    FaultRates {
        piece_len_max: pick(0, &[40, 700, 9000, 50_000]),
        delay_ms_max: pick(2, &[0, 3, 40]) as u64,
        window_len: pick(1, &[900, 20_000, 1_000_000]),
        clock_jumps: 0,
        accept_failures: 0,
        file_failures: 0,
        late_sends: pick(3, &[0, 400, 1000]) as u64,
    }
}

impl Case {
    /// A case with a client that has sent a request, and then one for an upgrade.
    fn new(seed: u64, behavior: ProgramBehavior) -> Case {
        Case::with(seed, behavior, None)
    }

    fn with(seed: u64, behavior: ProgramBehavior, idle_timeout_ms: Option<u64>) -> Case {
        let world = SharedWorld::new(seed, faults(seed));
        let driver = world.driver();
        let mailbox: UpgradeMailbox = WorkerMailbox::new(driver.waker());
        let programs = Programs::default();
        let service = Upgrading {
            world: world.clone(),
            mailbox: mailbox.clone(),
            behavior,
            idle_timeout_ms,
            programs: programs.clone(),
            sent: Vec::new(),
        };
        let counters = Arc::new(WorkerCounters::default());
        let admission = Arc::new(ConnectionLimit::default());
        let worker = Worker::new(
            driver,
            service,
            mailbox.clone(),
            Arc::new(settings()),
            admission.clone(),
            counters.clone(),
        );
        mailbox.post(MailboxMessage::Listen(ListenerId(0), ()));
        let client = world.connect();
        let path = if seed.is_multiple_of(2) {
            "now"
        } else {
            "later"
        };
        let ask = "HTTP/1.1\r\nHost: sim\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        let requests = format!("GET /plain HTTP/1.1\r\nHost: sim\r\n\r\nGET /{path} {ask}");
        world.send(client, requests.as_bytes());
        Case {
            seed,
            world,
            worker,
            mailbox,
            counters,
            admission,
            client,
            programs,
        }
    }

    fn turn_until(&mut self, what: &str, done: impl Fn(&Case) -> bool) {
        for _ in 0..400_000 {
            if done(self) {
                return;
            }
            self.worker.turn();
        }
        panic!("seed {}: {what} does not happen", self.seed);
    }

    fn turn_until_over(&mut self) {
        self.turn_until("the end", |case| {
            case.world.is_over(case.client) && case.admission.open() == 0
        });
    }

    fn turn_for(&mut self, ms: u64) {
        let until_ms = self.world.now_ms() + ms;
        self.world.alarm(until_ms);
        while self.world.now_ms() < until_ms {
            self.worker.turn();
        }
    }

    /// The bytes that the client has received after the head of the 101 response.
    fn read(&self) -> Vec<u8> {
        let read = self.world.read(self.client);
        let head = b"Upgrade: echo\r\nConnection: upgrade\r\n\r\n";
        let at = read.windows(head.len()).position(|w| w == head);
        at.map_or_else(Vec::new, |at| read[at + head.len()..].to_vec())
    }

    /// The program of the tunnel, once it is started.
    fn program(&mut self) -> Arc<Mutex<Program>> {
        self.turn_until("the upgrade", |case| !case.programs().is_empty());
        self.programs()[0].clone()
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Arc<Mutex<Program>>>> {
        self.programs.lock().expect("no panic")
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 23) as u8).collect()
}

#[test]
fn tunnel_echoes_all_bytes_and_ends_both_directions() {
    for seed in 0..150 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let content = content([0, 1, 5000, 300_000][(seed % 4) as usize]);
        case.world.send(case.client, &content);
        case.world.end(case.client);
        case.turn_until_over();
        assert!(case.read() == content, "seed {seed}: {}", case.read().len());
        let counters = &case.counters;
        assert_eq!(counters.tunnels.value(), 1, "seed {seed}");
        let bad = [
            &counters.broken,
            &counters.streams_cut,
            &counters.rate_too_low,
        ];
        assert_eq!(bad.map(|it| it.value()), [0; 3], "seed {seed}");
    }
}

#[test]
fn server_that_half_closes_a_tunnel_still_receives() {
    for seed in 0..100 {
        let mut case = Case::new(seed, ProgramBehavior::SendAndRead(5000));
        case.turn_until("all that is said", |case| case.read().len() == 5000);
        let content = content(100_000);
        case.world.send(case.client, &content);
        case.world.end(case.client);
        case.turn_until_over();
        case.turn_for(1000);
        assert!(case.read() == self::content(5000), "seed {seed}");
        let program = case.program();
        let program = program.lock().expect("no panic");
        assert!(program.received == content, "seed {seed}");
        assert_eq!(program.ended, Some(StreamItem::End), "seed {seed}");
        assert_eq!(case.counters.broken.value(), 0, "seed {seed}");
    }
}

#[test]
fn server_that_ends_both_directions_closes_the_connection() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::SendAndDrop(50_000));
        case.world.send(case.client, &content(3000));
        case.turn_until("the end", |case| case.world.is_over(case.client));
        assert!(case.read() == content(50_000), "seed {seed}");
        // If the client continues to send, its bytes are read only for a limited time.
        case.turn_for(10_000);
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn server_that_breaks_off_cuts_the_connection() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::Break(50_000));
        case.world.send(case.client, &content(300_000));
        case.turn_until_over();
        let read = case.read();
        assert!(content(300_000).starts_with(&read), "seed {seed}");
        assert_eq!(case.counters.streams_cut.value(), 1, "seed {seed}");
    }
}

#[test]
fn client_reset_cuts_the_tunnel_of_the_server() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let program = case.program();
        case.world.send(case.client, &content(20_000));
        case.world.reset(case.client);
        case.turn_until("the end", |case| case.admission.open() == 0);
        case.turn_for(1000);
        let program = program.lock().expect("no panic");
        assert!(program.tunnel_peer.is_none(), "seed {seed}: it has noticed");
        assert_ne!(program.ended, Some(StreamItem::End), "seed {seed}");
    }
}

#[test]
fn slow_server_applies_backpressure_without_loss() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::Idle);
        let content = content(300_000);
        let program = case.program();
        case.world.send(case.client, &content);
        case.world.end(case.client);
        case.turn_for(10_000);
        let waiting = {
            let mut program = program.lock().expect("no panic");
            let waker = Waker::noop();
            let tunnel_peer = program.tunnel_peer.as_ref().expect("it sleeps");
            let mut context = Context::from_waker(waker);
            let mut all = Vec::new();
            while let Poll::Ready(StreamItem::Bytes(bytes)) =
                tunnel_peer.from_client.poll_next(&mut context)
            {
                all.extend_from_slice(&bytes);
            }
            program.received = all;
            program.behavior = ProgramBehavior::Echo;
            program.received.len()
        };
        // The last receive may exceed the limit.
        assert!(waiting <= BUFFER_LEN + 32 * 1024, "seed {seed}: {waiting}");
        Program::poll_program(&program);
        case.turn_until_over();
        assert!(case.read() == content[waiting..], "seed {seed}");
    }
}

#[test]
fn client_that_receives_nothing_is_disconnected() {
    for seed in 0..20 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        drop(case.program());
        case.world.hold(case.client, true);
        case.world.send(case.client, &content(2_000_000));
        case.turn_for(400_000);
        assert_eq!(case.admission.open(), 0, "seed {seed}");
        let counters = &case.counters;
        let ends = [
            &counters.send_timeouts,
            &counters.rate_too_low,
            &counters.tunnel_timeouts,
        ];
        let ends: u64 = ends.iter().map(|it| it.value()).sum();
        assert_eq!(ends, 1, "seed {seed}");
    }
}

#[test]
fn tunnel_times_out_only_without_activity() {
    for seed in 0..30 {
        let own_ms = (seed % 3 == 0).then_some(30_000);
        let idle_ms = own_ms.unwrap_or(IDLE_MS);
        let mut case = Case::with(seed, ProgramBehavior::Echo, own_ms);
        let program = case.program();
        for beat in 1..=6 {
            case.world.send(case.client, b"!");
            case.turn_for(idle_ms * 2 / 3);
            assert_eq!(case.read().len(), beat, "seed {seed}: it is there");
        }
        case.turn_for(idle_ms * 4 / 3);
        assert_eq!(case.admission.open(), 0, "seed {seed}: it is not");
        assert_eq!(case.counters.tunnel_timeouts.value(), 1, "seed {seed}");
        let program = program.lock().expect("no panic");
        assert_eq!(program.ended, Some(StreamItem::Cut), "seed {seed}");
    }
}

#[test]
fn drain_closes_tunnels_after_its_timeout() {
    for seed in 0..20 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        drop(case.program());
        let timeout_ms = 20_000;
        case.mailbox.post(MailboxMessage::Drain { timeout_ms });
        case.turn_for(timeout_ms / 2);
        case.world.send(case.client, b"still there?");
        case.turn_for(timeout_ms / 4);
        assert_eq!(case.read(), b"still there?", "seed {seed}");
        assert!(!case.worker.drained(), "seed {seed}");
        case.turn_until("the end of the drain", |case| case.worker.drained());
    }
}
