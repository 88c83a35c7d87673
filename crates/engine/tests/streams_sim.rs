//! Streamed bodies in both directions in the simulator: a handler that reads and writes at random times receives all
//! bytes of the request, and the client all bytes of the response.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::driver::{IoDriver, ListenerId};
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::service::{ConnectionRefusal, Exchange, HttpService, ServiceOutcome};
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem, stream};
use lowroad_engine::worker::{MailboxMessage, Worker, WorkerMessage};
use lowroad_engine::{ExchangeId, ResponseWriter};
use lowroad_engine_sim::{FaultRates, SharedWorld, SimDriver};
use lowroad_http::body::{BodyFraming, BodyReader};
use lowroad_http::h1::BodyLen;
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_limits::ConnectionLimit;

type EchoMailbox = WorkerMailbox<WorkerMessage<SimDriver, Echo>>;

/// The behavior of an echo program.
#[derive(Clone, Copy, PartialEq)]
enum ProgramBehavior {
    /// Echoes all bytes.
    Echo,
    /// Drops its sender after this many bytes, so the response is cut.
    Break(usize),
    /// Ends the response after this many bytes.
    EndEarly(usize),
}

/// A handler that sends received bytes back, one piece per poll.
struct Program {
    world: SharedWorld,
    from: BodyReceiver,
    to: Option<BodySender>,
    unsent_bytes: Option<Bytes>,
    behavior: ProgramBehavior,
    len: usize,
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
        while let Some(to) = &self.to {
            if let Some(bytes) = self.unsent_bytes.take() {
                match to.poll_room(context) {
                    Poll::Pending => {
                        self.unsent_bytes = Some(bytes);
                        return;
                    }
                    Poll::Ready(Err(_)) => return self.to = None,
                    Poll::Ready(Ok(())) => {
                        self.len += bytes.len();
                        to.push(bytes).expect("the receiver is there");
                    }
                }
            }
            match self.behavior {
                ProgramBehavior::Break(len) if self.len >= len => return self.to = None,
                ProgramBehavior::EndEarly(len) if self.len >= len => {
                    return self.to.take().into_iter().for_each(BodySender::end);
                }
                _ => {}
            }
            match self.from.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(StreamItem::Bytes(bytes)) => self.unsent_bytes = Some(bytes),
                Poll::Ready(StreamItem::End) => {
                    let trailers = self.from.take_trailers();
                    let to = self.to.take().into_iter();
                    return to.for_each(|to| to.end_with(trailers.clone()));
                }
                Poll::Ready(StreamItem::Cut) => return self.to = None,
            }
        }
    }
}

/// A service that echoes request bodies.
struct Echo {
    world: SharedWorld,
    mailbox: EchoMailbox,
    behavior: ProgramBehavior,
    answers: HashMap<ExchangeId, BodyReceiver>,
    /// The senders of responses to `/quiet`, which the test controls.
    quiet: Arc<Mutex<Vec<BodySender>>>,
    whole: Vec<bool>,
}

impl HttpService for Echo {
    /// The response's Content-Length; `None`: chunked.
    type Pending = Option<u64>;
    type Outcome = u64;
    type Record = ();
    type Command = ();

    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Option<u64>, ()> {
        if matches!(
            request.target,
            RequestTarget::Origin {
                path: b"/quiet",
                ..
            }
        ) {
            let (to, from) = stream(700);
            self.quiet.lock().expect("no panic").push(to);
            response.head(StatusCode::OK).end(BodyLen::Unknown);
            response.write_stream(from);
            return ServiceOutcome::Ready(Some(()));
        }
        if request.method == Method::Get {
            let body = content(PLAIN_LEN);
            response
                .head(StatusCode::OK)
                .end(BodyLen::Known(body.len() as u64));
            response.write_copied(&body);
            return ServiceOutcome::Ready(None);
        }
        let id = exchange.id;
        let (to, answer) = stream(700);
        let program = Program {
            world: self.world.clone(),
            from: exchange.body.take().expect("it was promised"),
            to: Some(to),
            unsent_bytes: None,
            behavior: self.behavior,
            len: 0,
        };
        self.answers.insert(id, answer);
        Program::poll_program(&Arc::new(Mutex::new(program)));
        let mailbox = self.mailbox.clone();
        self.world
            .call_later(move || mailbox.post(MailboxMessage::Outcome(id, 0)));
        let RequestTarget::Origin { path, .. } = request.target else {
            panic!("a path")
        };
        ServiceOutcome::Deferred {
            pending: std::str::from_utf8(&path[1..]).expect("ASCII").parse().ok(),
            cancel_on_disconnect: false,
        }
    }

    fn resume(
        &mut self,
        len: Option<u64>,
        _: u64,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Option<u64>, ()> {
        let answer = self.answers.remove(&exchange.id).expect("a program");
        let len = len.map_or(BodyLen::Unknown, BodyLen::Known);
        if response.head(StatusCode::OK).end(len) {
            response.write_stream(answer);
        }
        ServiceOutcome::Ready(Some(()))
    }

    fn body_dropped(
        &mut self,
        _: Option<u64>,
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Option<u64>, ()> {
        panic!("all bodies are wanted")
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

    fn sent(&mut self, (): (), _body_len: u64, whole: bool, _now_ms: u64) {
        self.whole.push(whole);
    }

    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _now_ms: u64) {}
}

struct Case {
    world: SharedWorld,
    worker: Worker<SimDriver, Echo>,
    counters: Arc<WorkerCounters>,
    admission: Arc<ConnectionLimit>,
    quiet: Arc<Mutex<Vec<BodySender>>>,
}

fn settings() -> WorkerSettings {
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
        http: RequestLimits::default(),
    }
}

fn faults(seed: u64) -> FaultRates {
    let pick = |at: u64, from: &[usize]| from[((seed >> at) % from.len() as u64) as usize];
    FaultRates {
        piece_len_max: pick(0, &[40, 700, 9000, 50_000]),
        delay_ms_max: pick(2, &[0, 3, 400]) as u64,
        window_len: pick(1, &[900, 20_000, 1_000_000]),
        clock_jumps: 0,
        accept_failures: 0,
        file_failures: 0,
        late_sends: pick(3, &[0, 400, 1000]) as u64,
    }
}

impl Case {
    fn new(seed: u64, behavior: ProgramBehavior) -> Case {
        let world = SharedWorld::new(seed, faults(seed));
        let driver = world.driver();
        let mailbox: EchoMailbox = WorkerMailbox::new(driver.waker());
        let quiet: Arc<Mutex<Vec<BodySender>>> = Arc::default();
        let service = Echo {
            world: world.clone(),
            mailbox: mailbox.clone(),
            behavior,
            answers: HashMap::new(),
            quiet: quiet.clone(),
            whole: Vec::new(),
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
        Case {
            world,
            worker,
            counters,
            admission,
            quiet,
        }
    }

    fn turn_until_over(&mut self, seed: u64, client: usize) {
        for _ in 0..400_000 {
            if self.world.is_over(client) {
                return self.linger();
            }
            self.worker.turn();
        }
        panic!("seed {seed}: the connection does not end");
    }
}

impl Case {
    /// Runs turns until lingering connections are closed.
    fn linger(&mut self) {
        self.turn_for(10_000);
    }

    fn turn_for(&mut self, time_ms: u64) {
        let until_ms = self.world.now_ms() + time_ms;
        self.world.alarm(until_ms);
        while self.world.now_ms() < until_ms {
            self.worker.turn();
        }
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 23) as u8).collect()
}

/// A request with the body `content`, with Content-Length or chunked; then it has trailers, one of which is forbidden
/// in trailers.
fn request_of(path: &str, content: &[u8], chunked: bool) -> Vec<u8> {
    let mut request =
        format!("POST /{path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n").into_bytes();
    if !chunked {
        request.extend(format!("Content-Length: {}\r\n\r\n", content.len()).into_bytes());
        request.extend_from_slice(content);
        return request;
    }
    request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for chunk in content.chunks(1234) {
        request.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\nX-Sum: 5\r\nHost: evil\r\n\r\n");
    request
}

/// Decodes a chunked body; `None` if it is incomplete.
fn dechunked(body: &[u8]) -> Option<Vec<u8>> {
    let limits = RequestLimits {
        body_len_max: u64::MAX,
        ..RequestLimits::default()
    };
    let mut reader = BodyReader::new(BodyFraming::Chunked, &limits).expect("chunks");
    let (mut at, mut all) = (0, Vec::new());
    loop {
        let progress = reader.feed(&body[at..]).expect("good chunks");
        all.extend_from_slice(progress.data);
        at += progress.consumed;
        if progress.done {
            return (at == body.len()).then_some(all);
        }
        if progress.consumed == 0 {
            return None;
        }
    }
}

fn body_of(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n");
    &answer[end.expect("a head") + 4..]
}

/// The length of the response to a GET.
const PLAIN_LEN: usize = 15_000;

#[test]
fn request_body_that_arrives_during_a_previous_response_is_complete() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let client = case.world.connect();
        let content = content(400_000);
        let mut requests = b"GET /plain HTTP/1.1\r\nHost: sim\r\n\r\n".to_vec();
        requests.extend(request_of("400000", &content, seed % 2 == 0));
        case.world.send(client, &requests);
        case.turn_until_over(seed, client);
        let answers = case.world.read(client);
        let (plain, rest) = body_of(&answers).split_at(PLAIN_LEN);
        assert!(plain == self::content(PLAIN_LEN), "seed {seed}");
        assert!(body_of(rest) == content, "seed {seed}");
    }
}

#[test]
fn streamed_body_is_echoed_completely() {
    for seed in 0..150 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let len = [0, 1, 700, 70_000, 400_000][(seed % 5) as usize];
        let content = content(len);
        let (in_chunks, out_chunks) = (seed % 2 == 0 || len == 0, seed % 3 == 0);
        let path = if out_chunks {
            "chunks".into()
        } else {
            len.to_string()
        };
        let client = case.world.connect();
        case.world
            .send(client, &request_of(&path, &content, in_chunks));
        case.turn_until_over(seed, client);
        let answer = case.world.read(client);
        let body = body_of(&answer);
        if out_chunks {
            assert!(dechunked(body).as_deref() == Some(&content), "seed {seed}");
            let end: &[u8] = match in_chunks {
                true => b"0\r\nX-Sum: 5\r\n\r\n",
                false => b"0\r\n\r\n",
            };
            assert!(body.ends_with(end), "seed {seed}: trailers");
        } else {
            assert!(body == content, "seed {seed}: {} of {len}", body.len());
        }
        let sent_bytes = case.counters.sent_bytes.value();
        assert_eq!(sent_bytes, answer.len() as u64, "seed {seed}");
        assert_eq!(case.counters.broken.value(), 0, "seed {seed}");
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn handler_that_breaks_off_closes_the_connection_without_last_chunk() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::Break(50_000));
        let client = case.world.connect();
        case.world
            .send(client, &request_of("chunks", &content(400_000), false));
        case.turn_until_over(seed, client);
        let answer = case.world.read(client);
        // Bytes that the client still sends may cause a reset, so even the head may be lost.
        let whole = answer.ends_with(b"\r\n0\r\n\r\n");
        assert!(!whole, "seed {seed}");
        assert_eq!(case.counters.streams_cut.value(), 1, "seed {seed}");
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn incomplete_body_without_length_ends_with_a_reset() {
    for seed in 0..60 {
        let behavior = if seed % 2 == 0 {
            ProgramBehavior::Break(50_000)
        } else {
            ProgramBehavior::EndEarly(50_000)
        };
        let mut case = Case::new(seed, behavior);
        let client = case.world.connect();
        let request = request_of("chunks", &content(60_000), false);
        let version = request.windows(3).position(|three| three == b"1.1");
        let mut request = request.clone();
        request[version.expect("a version") + 2] = b'0';
        case.world.send(client, &request);
        case.turn_until_over(seed, client);
        let is_cut = case.counters.streams_cut.value() == 1;
        assert_eq!(is_cut, seed % 2 == 0, "seed {seed}");
        assert_eq!(case.world.was_reset(client), is_cut, "seed {seed}");
    }
}

#[test]
fn response_before_the_end_of_the_request_body_is_complete() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::EndEarly(50_000));
        let client = case.world.connect();
        let content = content(400_000);
        case.world
            .send(client, &request_of("chunks", &content, seed % 2 == 0));
        case.turn_until_over(seed, client);
        let answer = case.world.read(client);
        let body = dechunked(body_of(&answer)).expect("a whole body");
        assert!(
            body.len() >= 50_000 && content.starts_with(&body),
            "seed {seed}"
        );
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn connections_of_disconnected_clients_are_released() {
    for seed in 0..60 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let client = case.world.connect();
        let request = request_of("chunks", &content(200_000), false);
        case.world.send(client, &request[..100_000]);
        match seed % 2 {
            0 => case.world.end(client),
            _ => case.world.reset(client),
        }
        for _ in 0..20_000 {
            if case.admission.open() == 0 && case.world.is_over(client) {
                break;
            }
            case.worker.turn();
        }
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn stalled_request_body_times_out() {
    for seed in 0..20 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let client = case.world.connect();
        let request = request_of("chunks", &content(200_000), false);
        case.world.send(client, &request[..1000]);
        let until_ms = case.world.now_ms() + 300_000;
        case.world.alarm(until_ms);
        while case.world.now_ms() < until_ms {
            case.worker.turn();
        }
        assert_eq!(case.admission.open(), 0, "seed {seed}");
        assert_eq!(case.counters.body_timeouts.value(), 1, "seed {seed}");
    }
}

/// A client that has received the start of a response, and the sender of its rest.
fn client_of_paused_response(case: &mut Case) -> (usize, BodySender) {
    let client = case.world.connect();
    case.world
        .send(client, b"GET /quiet HTTP/1.1\r\nHost: sim\r\n\r\n");
    case.turn_for(5_000);
    let sender = case.quiet.lock().expect("no panic").pop().expect("asked");
    sender.push(Bytes::from_static(b"begun")).expect("open");
    case.turn_for(1_000);
    assert!(!case.world.read(client).is_empty());
    (client, sender)
}

#[test]
fn reset_during_a_paused_response_is_detected() {
    for seed in 0..20 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let (client, sender) = client_of_paused_response(&mut case);
        case.world.reset(client);
        case.turn_for(10_000);
        assert_eq!(case.admission.open(), 0, "seed {seed}");
        assert!(sender.push(Bytes::from_static(b"more")).is_err());
    }
}

/// A half-close by the client only means that no other request follows (RFC 9112 §9.6).
#[test]
fn half_closed_client_gets_the_whole_response() {
    for seed in 0..20 {
        let mut case = Case::new(seed, ProgramBehavior::Echo);
        let (client, sender) = client_of_paused_response(&mut case);
        case.world.end(client);
        for _ in 0..20 {
            case.turn_for(12_000);
            let room = sender.push(Bytes::from_static(b"more"));
            assert!(room.is_ok(), "seed {seed}");
        }
        sender.end();
        case.turn_until_over(seed, client);
        let body = dechunked(body_of(&case.world.read(client))).expect("whole");
        assert_eq!(body, [&b"begun"[..], &b"more".repeat(20)].concat());
    }
}
