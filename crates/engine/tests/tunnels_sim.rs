//! Tunnels in the simulator: all bytes arrive in both directions, each direction ends by itself, and the loss of one
//! side ends the other.
//!
//! Each case is a seed; a failure prints it.

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

type Box_ = WorkerMailbox<WorkerMessage<SimDriver, Upgrading>>;

/// The behavior of a tunnel's far end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Habit {
    /// Echoes, and ends when the client does.
    Echo,
    /// Sends this many bytes and ends its direction; continues to read.
    SayAndListen(usize),
    /// Sends this many bytes, and drops its end.
    SayAndGo(usize),
    /// Echoes this many bytes and breaks off.
    Break(usize),
    /// Does nothing until this is changed.
    Sleep,
}

/// The far end.
struct Program {
    world: SharedWorld,
    far: Option<TunnelPeer>,
    /// The direction to the client has ended.
    listens_only: bool,
    held: Option<Bytes>,
    habit: Habit,
    got: Vec<u8>,
    sent: usize,
    /// The end of the direction from the client.
    ended: Option<StreamItem>,
}

/// Wakes a program after a while.
struct Later(Arc<Mutex<Program>>, SharedWorld);

impl Wake for Later {
    fn wake(self: Arc<Self>) {
        let program = self.0.clone();
        self.1.call_later(move || Program::go_on(&program));
    }
}

impl Program {
    fn go_on(shared: &Arc<Mutex<Program>>) {
        let mut program = shared.lock().expect("no panic");
        let waker = Waker::from(Arc::new(Later(shared.clone(), program.world.clone())));
        program.work(&mut Context::from_waker(&waker));
    }

    fn work(&mut self, context: &mut Context<'_>) {
        match self.habit {
            Habit::Sleep => {}
            Habit::SayAndGo(len) | Habit::SayAndListen(len) if !self.listens_only => {
                let Some(far) = self.far.take() else { return };
                let _ = far.to_client.push(content(len).into());
                far.to_client.end();
                self.listens_only = true;
                if matches!(self.habit, Habit::SayAndListen(_)) {
                    // A sender without a receiver replaces the dropped end.
                    let (unheard, _) = lowroad_engine::stream::stream(1);
                    self.far = Some(TunnelPeer {
                        from_client: far.from_client,
                        to_client: unheard,
                    });
                    self.listen(context);
                }
            }
            Habit::SayAndListen(_) => self.listen(context),
            _ => self.echo(context),
        }
    }

    fn listen(&mut self, context: &mut Context<'_>) {
        while let Some(far) = &self.far {
            match far.from_client.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(StreamItem::Bytes(bytes)) => self.got.extend_from_slice(&bytes),
                Poll::Ready(ended) => {
                    self.ended = Some(ended);
                    self.far = None;
                }
            }
        }
    }

    fn echo(&mut self, context: &mut Context<'_>) {
        while let Some(far) = &self.far {
            if let Some(bytes) = self.held.take() {
                match far.to_client.poll_room(context) {
                    Poll::Pending => return self.held = Some(bytes),
                    Poll::Ready(Err(_)) => return self.far = None,
                    Poll::Ready(Ok(())) => {
                        self.sent += bytes.len();
                        let _ = far.to_client.push(bytes);
                    }
                }
            }
            if matches!(self.habit, Habit::Break(len) if self.sent >= len) {
                return self.far = None;
            }
            match far.from_client.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(StreamItem::Bytes(bytes)) => self.held = Some(bytes),
                Poll::Ready(ended) => {
                    let far = self.far.take();
                    if ended == StreamItem::End {
                        far.into_iter()
                            .for_each(|far| BodySender::end(far.to_client));
                    }
                    self.ended = Some(ended);
                }
            }
        }
    }
}

type Programs = Arc<Mutex<Vec<Arc<Mutex<Program>>>>>;

/// Accepts upgrades of all requests, at once or later.
struct Upgrading {
    world: SharedWorld,
    mailbox: Box_,
    habit: Habit,
    idle_timeout_ms: Option<u64>,
    programs: Programs,
    sent: Vec<u64>,
}

const WAITING: usize = 700;

impl Upgrading {
    fn upgrade(&mut self, response: &mut ResponseWriter<'_>) -> ServiceOutcome<(), ()> {
        let (tunnel, far) = ClientTunnel::new(WAITING);
        let program = Arc::new(Mutex::new(Program {
            world: self.world.clone(),
            far: Some(far),
            listens_only: false,
            held: None,
            habit: self.habit,
            got: Vec::new(),
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
        Program::go_on(&program);
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
        let (mailbox, id): (Box_, ExchangeId) = (self.mailbox.clone(), exchange.id);
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

    fn sent(&mut self, (): (), body_len: u64, _whole: bool, _now_ms: u64) {
        self.sent.push(body_len);
    }

    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _now_ms: u64) {}
}

struct Case {
    seed: u64,
    world: SharedWorld,
    worker: Worker<SimDriver, Upgrading>,
    mailbox: Box_,
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
    /// A client that has requested an upgrade, after another request.
    fn new(seed: u64, habit: Habit) -> Case {
        Case::with(seed, habit, None)
    }

    fn with(seed: u64, habit: Habit, idle_timeout_ms: Option<u64>) -> Case {
        let world = SharedWorld::new(seed, faults(seed));
        let driver = world.driver();
        let mailbox: Box_ = WorkerMailbox::new(driver.waker());
        let programs = Programs::default();
        let service = Upgrading {
            world: world.clone(),
            mailbox: mailbox.clone(),
            habit,
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

    /// The client's bytes behind the head of the 101.
    fn read(&self) -> Vec<u8> {
        let read = self.world.read(self.client);
        let head = b"Upgrade: echo\r\nConnection: upgrade\r\n\r\n";
        let at = read.windows(head.len()).position(|w| w == head);
        at.map_or_else(Vec::new, |at| read[at + head.len()..].to_vec())
    }

    /// The far end of the started tunnel.
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
fn what_goes_in_comes_back_whole_and_both_ways_end() {
    for seed in 0..150 {
        let mut case = Case::new(seed, Habit::Echo);
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
fn who_has_said_all_may_still_listen() {
    for seed in 0..100 {
        let mut case = Case::new(seed, Habit::SayAndListen(5000));
        case.turn_until("all that is said", |case| case.read().len() == 5000);
        let content = content(100_000);
        case.world.send(case.client, &content);
        case.world.end(case.client);
        case.turn_until_over();
        case.turn_for(1000);
        assert!(case.read() == self::content(5000), "seed {seed}");
        let program = case.program();
        let program = program.lock().expect("no panic");
        assert!(program.got == content, "seed {seed}");
        assert_eq!(program.ended, Some(StreamItem::End), "seed {seed}");
        assert_eq!(case.counters.broken.value(), 0, "seed {seed}");
    }
}

#[test]
fn who_has_said_all_and_listens_no_more_ends_the_connection() {
    for seed in 0..60 {
        let mut case = Case::new(seed, Habit::SayAndGo(50_000));
        case.world.send(case.client, &content(3000));
        case.turn_until("the end", |case| case.world.is_over(case.client));
        assert!(case.read() == content(50_000), "seed {seed}");
        // The bytes of a client that continues to send are read for a moment, and not for ever.
        case.turn_for(10_000);
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn who_breaks_off_breaks_the_connection() {
    for seed in 0..60 {
        let mut case = Case::new(seed, Habit::Break(50_000));
        case.world.send(case.client, &content(300_000));
        case.turn_until_over();
        let read = case.read();
        assert!(content(300_000).starts_with(&read), "seed {seed}");
        assert_eq!(case.counters.streams_cut.value(), 1, "seed {seed}");
    }
}

#[test]
fn a_client_that_is_lost_is_no_more_to_be_heard_and_told() {
    for seed in 0..60 {
        let mut case = Case::new(seed, Habit::Echo);
        let program = case.program();
        case.world.send(case.client, &content(20_000));
        case.world.reset(case.client);
        case.turn_until("the end", |case| case.admission.open() == 0);
        case.turn_for(1000);
        let program = program.lock().expect("no panic");
        assert!(program.far.is_none(), "seed {seed}: it has noticed");
        assert_ne!(program.ended, Some(StreamItem::End), "seed {seed}");
    }
}

#[test]
fn a_slow_far_end_holds_the_client_up_and_nothing_is_lost() {
    for seed in 0..60 {
        let mut case = Case::new(seed, Habit::Sleep);
        let content = content(300_000);
        let program = case.program();
        case.world.send(case.client, &content);
        case.world.end(case.client);
        case.turn_for(10_000);
        let waiting = {
            let mut program = program.lock().expect("no panic");
            let waker = Waker::noop();
            let far = program.far.as_ref().expect("it sleeps");
            let mut context = Context::from_waker(waker);
            let mut all = Vec::new();
            while let Poll::Ready(StreamItem::Bytes(bytes)) =
                far.from_client.poll_next(&mut context)
            {
                all.extend_from_slice(&bytes);
            }
            program.got = all;
            program.habit = Habit::Echo;
            program.got.len()
        };
        // One receive more than the limit.
        assert!(waiting <= WAITING + 32 * 1024, "seed {seed}: {waiting}");
        Program::go_on(&program);
        case.turn_until_over();
        assert!(case.read() == content[waiting..], "seed {seed}");
    }
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    for seed in 0..20 {
        let mut case = Case::new(seed, Habit::Echo);
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
fn a_tunnel_lasts_for_as_long_as_something_moves_on_it() {
    for seed in 0..30 {
        let own_ms = (seed % 3 == 0).then_some(30_000);
        let idle_ms = own_ms.unwrap_or(IDLE_MS);
        let mut case = Case::with(seed, Habit::Echo, own_ms);
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
fn a_drain_ends_tunnels_when_its_time_is_over() {
    for seed in 0..20 {
        let mut case = Case::new(seed, Habit::Echo);
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
