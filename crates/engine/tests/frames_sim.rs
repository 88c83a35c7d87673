//! HTTP/2 in the simulator: despite faults of network, helpers and clocks, each stream gets its complete response, and
//! exchanges that a client cancels leave no state behind.
//!
//! Each test case has a seed, which a failure prints.

mod echo;

use std::collections::HashMap;

use lowroad_engine::settings::WorkerSettings;
use lowroad_engine_sim::{FakeTls, FaultRates, SharedWorld, for_each_seed};
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{self, ErrorCode, H2Client, H2ClientEvent, OutgoingRequest};
use lowroad_http::method::Method;

use echo::{BLOCK_LEN, Case, HINTS, RATE, mild_faults, paced_ms, pattern_bytes, settings};

/// The received response of a stream.
#[derive(Default)]
struct StreamResponse {
    status: u16,
    interims: usize,
    body: Vec<u8>,
    is_ended: bool,
    is_reset: bool,
}

/// A simulated HTTP/2 client.
struct SimH2Client {
    id: usize,
    http: H2Client,
    settings: h2::H2Settings,
    counters: h2::GlitchCounters,
    text: Vec<u8>,
    has_tls: bool,
    /// All bytes that the client has read.
    read: Vec<u8>,
    used: usize,
    got: HashMap<u32, StreamResponse>,
    is_broken: bool,
    goaway: Option<ErrorCode>,
}

impl SimH2Client {
    fn connect(world: &SharedWorld, has_tls: bool) -> SimH2Client {
        let id = world.connect();
        let (settings, mut counters) = (h2::H2Settings::default(), h2::GlitchCounters::default());
        let mut out = Vec::new();
        let http = H2Client::new(&mut h2::ConnectionTurn {
            now_ms: world.now_ms(),
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        });
        if has_tls {
            world.send(id, &FakeTls::hello());
        }
        let mut h2_client = SimH2Client {
            id,
            http,
            settings,
            counters,
            text: Vec::new(),
            has_tls,
            read: Vec::new(),
            used: 0,
            got: HashMap::new(),
            is_broken: false,
            goaway: None,
        };
        h2_client.send_bytes(world, &out);
        h2_client
    }

    fn send_bytes(&mut self, world: &SharedWorld, out: &[u8]) {
        match self.has_tls {
            true => world.send(self.id, &FakeTls::records(out)),
            false => world.send(self.id, out),
        }
    }

    /// Sends a request with a body of this length. Returns its stream.
    fn send_request(
        &mut self,
        world: &SharedWorld,
        path: &str,
        method: Method,
        body_len: usize,
    ) -> u32 {
        let mut out = Vec::new();
        let stream = self.write_head(path, method, body_len, FieldLines::NONE, &mut out);
        if body_len > 0 {
            self.http.body(stream, body_len as u64).expect("a body");
            self.http.end(stream, FieldLines::NONE).expect("its end");
        }
        self.write_ready(&mut out);
        self.send_bytes(world, &out);
        stream.0
    }

    /// Sends the head of a POST request, but not its body.
    fn post_head(&mut self, world: &SharedWorld, path: &str, body_len: usize) -> u32 {
        self.post_head_with(world, path, body_len, b"")
    }

    fn post_head_with(
        &mut self,
        world: &SharedWorld,
        path: &str,
        body_len: usize,
        lines: &[u8],
    ) -> u32 {
        let mut out = Vec::new();
        let stream = self.write_head(
            path,
            Method::Post,
            body_len,
            FieldLines::new(lines),
            &mut out,
        );
        self.send_bytes(world, &out);
        stream.0
    }

    /// Sends part of a body.
    fn send_body_part(&mut self, world: &SharedWorld, stream: u32, len: usize) {
        let ready = self.http.body(h2::StreamId(stream), len as u64);
        ready.expect("less than was announced");
        let mut out = Vec::new();
        self.write_ready(&mut out);
        self.send_bytes(world, &out);
    }

    fn write_head(
        &mut self,
        path: &str,
        method: Method,
        body_len: usize,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) -> h2::StreamId {
        let outgoing_request = OutgoingRequest {
            method,
            is_https: false,
            authority: b"sim",
            path: path.as_bytes(),
            protocol: None,
        };
        let len = match body_len {
            0 => BodyLen::None,
            len => BodyLen::Known(len as u64),
        };
        let stream = self.http.request(&outgoing_request, lines, len, out);
        let stream = stream.expect("room for a stream");
        self.got.insert(stream.0, StreamResponse::default());
        stream
    }

    /// Writes as much of the bodies as the flow-control windows allow.
    fn write_ready(&mut self, out: &mut Vec<u8>) {
        while let Some(piece) = self.http.send(1000, out) {
            out.resize(out.len() + piece.len as usize, b'b');
        }
    }

    /// Processes the received bytes, and sends the frames that they require.
    fn turn(&mut self, world: &SharedWorld) {
        self.read.extend(world.take_read(self.id));
        let plain = match self.has_tls {
            true => FakeTls::read(&self.read).0,
            false => self.read.clone(),
        };
        let mut out = Vec::new();
        let mut text = std::mem::take(&mut self.text);
        while !self.is_broken {
            let mut turn = h2::ConnectionTurn {
                now_ms: world.now_ms(),
                settings: &self.settings,
                out: &mut out,
                counters: &mut self.counters,
            };
            let step = self.http.next(&plain[self.used..], &mut text, &mut turn);
            let Ok(step) = step else {
                self.is_broken = true;
                break;
            };
            self.used += step.used;
            let mut taken = None;
            match step.event {
                None if step.used == 0 => break,
                None => {}
                Some(H2ClientEvent::Interim(head)) => self.response_mut(head.stream).interims += 1,
                Some(H2ClientEvent::Response(head)) => {
                    let (status, is_ended) = (head.status.code(), !head.has_body);
                    let got = self.response_mut(head.stream);
                    (got.status, got.is_ended) = (status, is_ended);
                }
                Some(H2ClientEvent::Data { stream, data }) => {
                    self.response_mut(stream).body.extend_from_slice(data);
                    taken = Some((stream, data.len()));
                }
                Some(H2ClientEvent::End { stream, .. }) => {
                    self.response_mut(stream).is_ended = true
                }
                Some(H2ClientEvent::Reset { stream, .. }) => {
                    self.response_mut(stream).is_reset = true
                }
                Some(H2ClientEvent::GoneAway { code, .. }) => self.goaway = Some(code),
            }
            if let Some((stream, len)) = taken {
                self.http.release_capacity(stream, len, &mut out);
            }
        }
        self.text = text;
        self.write_ready(&mut out);
        if !out.is_empty() {
            self.send_bytes(world, &out);
        }
    }

    fn response_mut(&mut self, stream: h2::StreamId) -> &mut StreamResponse {
        self.got.entry(stream.0).or_default()
    }

    fn has_all(&self) -> bool {
        self.got.values().all(|got| got.is_ended || got.is_reset)
    }
}

fn faults(seed: u64) -> FaultRates {
    let pick = |at: u64, from: &[usize]| from[((seed >> at) % from.len() as u64) as usize];
    FaultRates {
        piece_len_max: pick(0, &[1, 30, 700, 9000]),
        delay_ms_max: pick(2, &[0, 3, 100]) as u64,
        window_len: pick(1, &[900, 20_000, 1_000_000]),
        clock_jumps: 0,
        accept_failures: 0,
        file_failures: pick(4, &[0, 500]) as u64,
        late_sends: pick(5, &[0, 300, 1000]) as u64,
    }
}

/// A random request: its path, method and body length, and the length and number of interim responses of the expected
/// response.
fn random_request(world: &SharedWorld, len_max: usize) -> (String, Method, usize, usize, usize) {
    let kind =
        ["bytes", "deferred", "block", "file", "hinted", "segment"][world.random_below(6) as usize];
    let len = match world.random_below(4) {
        0 => world.random_below(50) as usize,
        1 => world.random_below(9000.min(len_max as u64)) as usize,
        _ => world.random_below(len_max as u64) as usize,
    };
    let (method, body_len) = match world.random_below(6) {
        0 => (Method::Post, 1 + world.random_below(100_000) as usize),
        1 => (Method::Head, 0),
        _ => (Method::Get, 0),
    };
    let interims = if kind == "hinted" { HINTS } else { 0 };
    (format!("/{kind}/{len}"), method, body_len, len, interims)
}

/// Runs turns until all clients have their responses.
fn turn_all(case: &mut Case, seed: u64, clients: &mut [SimH2Client]) {
    for _ in 0..400_000 {
        case.worker.turn();
        for h2_client in clients.iter_mut() {
            h2_client.turn(&case.world);
        }
        if clients.iter().all(SimH2Client::has_all) {
            return;
        }
    }
    panic!("seed {seed}: responses did not come");
}

#[test]
fn streams_get_complete_responses() {
    for_each_seed(0..30, |seed| {
        let uses_tls = seed % 4 == 3;
        let len_max = if uses_tls { 20_000 } else { BLOCK_LEN };
        let mut case = Case::with(seed, faults(seed), settings(), uses_tls);
        let mut wanted = Vec::new();
        let mut clients: Vec<SimH2Client> = (0..3)
            .map(|_| SimH2Client::connect(&case.world, uses_tls))
            .collect();
        for _ in 0..2 {
            for (at, h2_client) in clients.iter_mut().enumerate() {
                for _ in 0..case.world.random_below(8) {
                    let (path, method, body_len, len, interims) =
                        random_request(&case.world, len_max);
                    let stream = h2_client.send_request(&case.world, &path, method, body_len);
                    let len = if method == Method::Head { 0 } else { len };
                    wanted.push((at, stream, path, len, interims));
                }
            }
            turn_all(&mut case, seed, &mut clients);
        }
        for (at, stream, path, len, interims) in wanted {
            let got = &clients[at].got[&stream];
            assert_eq!(got.status, 200, "seed {seed}: {path}");
            assert_eq!(got.interims, interims, "seed {seed}: {path}");
            assert_eq!(got.body.len(), len, "seed {seed}: {path}");
            assert!(
                got.body == pattern_bytes(len),
                "seed {seed}: {path}: other bytes"
            );
        }
        assert_eq!(case.counters.h2_ended.value(), 0, "seed {seed}");
        assert_eq!(case.counters.h2_connections.value(), 3, "seed {seed}");
    });
}

#[test]
fn streams_with_a_limit_are_complete_and_keep_to_their_rate() {
    const LEN: usize = 100_000;
    for_each_seed(0..20, |seed| {
        let uses_tls = seed % 4 == 3;
        // The limit is lower than the rate that clients must reach.
        let strict = WorkerSettings {
            rate_min: RATE.bytes_per_s * 3 / 2,
            rate_grace_ms: 200,
            ..settings()
        };
        let mut case = Case::with(seed, faults(seed), strict, uses_tls);
        let mut clients = [SimH2Client::connect(&case.world, uses_tls)];
        let start_ms = case.world.now_ms();
        // Each stream has its own limit, so together they take no longer than one.
        let streams = ["block", "file", "segment"].map(|kind| {
            let path = format!("/paced-{kind}/{LEN}");
            clients[0].send_request(&case.world, &path, Method::Get, 0)
        });
        turn_all(&mut case, seed, &mut clients);
        let elapsed_ms = case.world.now_ms() - start_ms;
        assert!(
            elapsed_ms >= paced_ms(LEN as u64),
            "seed {seed}: {elapsed_ms} ms"
        );
        for stream in streams {
            let got = &clients[0].got[&stream];
            assert!(got.body == pattern_bytes(LEN), "seed {seed}: other bytes");
        }
    });
}

#[test]
fn cancelled_streams_and_connections_leave_no_state() {
    for_each_seed(0..30, |seed| {
        let uses_tls = seed % 4 == 3;
        let mut case = Case::with(seed, faults(seed), settings(), uses_tls);
        let mut clients: Vec<SimH2Client> = (0..4)
            .map(|_| SimH2Client::connect(&case.world, uses_tls))
            .collect();
        for _ in 0..6 {
            for h2_client in &mut clients {
                let (path, method, body_len, _, _) = random_request(&case.world, 20_000);
                let stream = h2_client.send_request(&case.world, &path, method, body_len);
                if case.world.random_below(2) == 0 {
                    let mut out = Vec::new();
                    let stream = h2::StreamId(stream);
                    h2_client.http.reset(stream, ErrorCode::CANCEL, &mut out);
                    h2_client.send_bytes(&case.world, &out);
                    h2_client.response_mut(stream).is_reset = true;
                }
            }
            let until_ms = case.world.now_ms() + case.world.random_below(100);
            case.world.alarm(until_ms);
            while case.world.now_ms() < until_ms {
                case.worker.turn();
                clients.iter_mut().for_each(|it| it.turn(&case.world));
            }
        }
        for (at, h2_client) in clients.iter().enumerate() {
            match at {
                0 => case.world.reset(h2_client.id),
                1 => case.world.end(h2_client.id),
                _ => {}
            }
        }
        let (_, stay) = clients.split_at_mut(2);
        turn_all(&mut case, seed, stay);
        case.turn_for(200_000);
        assert_eq!(
            case.admission.open(),
            0,
            "seed {seed}: a connection is left"
        );
        let [idle, _] = stay else { panic!("two") };
        idle.turn(&case.world);
        assert_eq!(idle.goaway, Some(ErrorCode::NO_ERROR), "seed {seed}");
    });
}

#[test]
fn frame_on_invalid_stream_is_a_protocol_error() {
    let mut case = Case::new(1, mild_faults(), settings());
    let mut h2_client = SimH2Client::connect(&case.world, false);
    // A frame on a stream with an even number, so that the client can't have opened it.
    case.world
        .send(h2_client.id, b"\x00\x00\x01\x00\x01\x00\x00\x00\x02x");
    case.turn_for(100);
    h2_client.turn(&case.world);
    assert_eq!(h2_client.goaway, Some(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(case.counters.h2_ended.value(), 1);
    case.turn_for(10_000);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn client_that_opens_no_flow_control_window_times_out() {
    let mut case = Case::new(1, mild_faults(), settings());
    let mut h2_client = SimH2Client::connect(&case.world, false);
    h2_client.send_request(&case.world, "/block/190000", Method::Get, 0);
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 1, "too early");
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.send_timeouts.value(), 1);
}

/// Sends PINGs for `for_ms`, without reading.
fn ping_for(case: &mut Case, h2_client: &SimH2Client, for_ms: u64) {
    const EVERY_MS: u64 = 700;
    for _ in 0..for_ms / EVERY_MS {
        let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00anything";
        case.world.send(h2_client.id, ping);
        case.turn_for(EVERY_MS);
    }
}

#[test]
fn pings_do_not_extend_the_idle_timeout() {
    let mut case = Case::new(1, mild_faults(), settings());
    let h2_client = SimH2Client::connect(&case.world, false);
    ping_for(&mut case, &h2_client, 110_000);
    assert_eq!(case.admission.open(), 1, "too early");
    ping_for(&mut case, &h2_client, 20_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.idle_timeouts.value(), 1);
}

/// A stream is reset if its request body never arrives; the connection, on which other requests are answered, stays
/// open until the idle timeout.
#[test]
fn body_timeout_resets_the_stream_and_not_the_connection() {
    // With seeds from 64 on, sends complete late.
    for_each_seed(48..72, |seed| {
        let mut case = Case::with(seed, faults(seed), settings(), seed % 4 == 3);
        let mut h2_client = SimH2Client::connect(&case.world, seed % 4 == 3);
        // `/early` is answered before the body arrives; `/bytes` waits for the body until `body_timeout`.
        let path = ["/early/10", "/bytes/10"][(seed % 2) as usize];
        let post = h2_client.post_head(&case.world, path, 1000);
        for _ in 0..90 {
            h2_client.send_request(&case.world, "/bytes/100", Method::Get, 0);
            case.turn_for(900);
            h2_client.turn(&case.world);
            assert_eq!(h2_client.goaway, None, "seed {seed}");
        }
        assert!(h2_client.got[&post].status != 0, "seed {seed}");
        assert!(h2_client.got[&post].is_reset, "seed {seed}");
        let mut clients = [h2_client];
        turn_all(&mut case, seed, &mut clients);
        // `turn_all` may have taken up to 16 s.
        case.turn_for(100_000);
        assert_eq!(case.admission.open(), 1, "seed {seed}: too early");
        case.turn_for(40_000);
        clients[0].turn(&case.world);
        assert_eq!(clients[0].goaway, Some(ErrorCode::NO_ERROR), "seed {seed}");
        assert_eq!(case.counters.idle_timeouts.value(), 1, "seed {seed}");
    });
}

/// Sends a body in pieces of `piece_len`, one per `every_ms`, for `for_ms` or until the stream is reset. Returns the
/// elapsed time.
fn send_body_slowly(
    case: &mut Case,
    h2_client: &mut SimH2Client,
    (stream, piece_len): (u32, usize),
    every_ms: u64,
    for_ms: u64,
) -> u64 {
    let begun_ms = case.world.now_ms();
    while case.world.now_ms() < begun_ms + for_ms && !h2_client.got[&stream].is_reset {
        if piece_len > 0 {
            h2_client.send_body_part(&case.world, stream, piece_len);
        }
        case.turn_for(every_ms);
        h2_client.turn(&case.world);
    }
    case.world.now_ms() - begun_ms
}

/// RFC 9113 §8.1: the client has 5 s to read the response, whether the rest of the body arrives slowly, fast or never.
#[test]
fn unread_request_body_is_reset_soon_after_the_response() {
    for_each_seed(0..32, |seed| {
        let mut case = Case::new(seed, mild_faults(), settings());
        let mut h2_client = SimH2Client::connect(&case.world, false);
        let piece_len = [0, 1, 10, 400][(seed % 4) as usize];
        // 1000 ms is the interval of the worker's checks.
        let every_ms = [50, 1000, 999, 400][(seed / 8 % 4) as usize];
        let body_len = [100_000, 9_999_999][(seed / 4 % 2) as usize];
        let post = h2_client.post_head(&case.world, "/early/10", body_len);
        let took_ms = send_body_slowly(
            &mut case,
            &mut h2_client,
            (post, piece_len),
            every_ms,
            60_000,
        );
        let got = &h2_client.got[&post];
        assert!(got.is_ended && got.body == pattern_bytes(10), "seed {seed}");
        assert!(
            (5_000..=8_050 + every_ms).contains(&took_ms),
            "seed {seed}: {took_ms} ms"
        );
        assert_eq!(h2_client.goaway, None, "seed {seed}");
        assert_eq!(case.counters.body_timeouts.value(), 0, "seed {seed}");
    });
}

/// RFC 9110 §10.1.1: 100 (Continue) is sent only for a body that the service wants, which may be decided later.
#[test]
fn expect_100_continue_is_answered_only_for_a_wanted_body() {
    for_each_seed(0..20, |seed| {
        let mut case = Case::new(seed, faults(seed), settings());
        let mut h2_client = SimH2Client::connect(&case.world, false);
        let expect = b"expect: 100-continue\r\n";
        let refused = h2_client.post_head_with(&case.world, "/undecided/10", 5, expect);
        let wanted = h2_client.post_head_with(&case.world, "/undecided/11", 5, expect);
        let at_once = h2_client.post_head_with(&case.world, "/bytes/12", 5, expect);
        case.turn_for(20_000);
        h2_client.turn(&case.world);
        let got = &h2_client.got[&refused];
        assert_eq!((got.status, got.interims), (200, 0), "seed {seed}");
        for stream in [wanted, at_once] {
            let got = &h2_client.got[&stream];
            assert_eq!((got.status, got.interims), (0, 1), "seed {seed}");
            h2_client.send_body_part(&case.world, stream, 5);
            let ended = h2_client.http.end(h2::StreamId(stream), FieldLines::NONE);
            ended.expect("all was sent");
            let mut out = Vec::new();
            h2_client.write_ready(&mut out);
            h2_client.send_bytes(&case.world, &out);
        }
        let mut clients = [h2_client];
        turn_all(&mut case, seed, &mut clients);
        let got = |stream| &clients[0].got[&stream];
        assert_eq!(got(wanted).body, pattern_bytes(11), "seed {seed}");
        assert_eq!(got(at_once).body, pattern_bytes(12), "seed {seed}");
    });
}

/// Like the test above, with HTTP/1.
#[test]
fn expect_100_continue_is_answered_only_for_a_wanted_body_over_http_1() {
    for_each_seed(0..20, |seed| {
        let mut case = Case::new(seed, faults(seed), settings());
        for (path, has_100) in [
            ("/undecided/10", false),
            ("/undecided/11", true),
            ("/bytes/12", true),
        ] {
            let client = case.world.connect();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
            );
            case.world.send(client, head.as_bytes());
            case.turn_for(20_000);
            let text = String::from_utf8(case.world.take_read(client)).expect("text");
            if !has_100 {
                assert!(text.starts_with("HTTP/1.1 200"), "seed {seed}: {text}");
                continue;
            }
            assert_eq!(text, "HTTP/1.1 100 Continue\r\n\r\n", "seed {seed}");
            case.world.send(client, b"hello");
            case.turn_for(20_000);
            let text = String::from_utf8(case.world.take_read(client)).expect("text");
            assert!(text.starts_with("HTTP/1.1 200"), "seed {seed}: {text}");
        }
    });
}

#[test]
fn request_body_with_reader_may_end_long_after_the_response() {
    for_each_seed(0..4, |seed| {
        let mut case = Case::new(seed, mild_faults(), settings());
        let mut h2_client = SimH2Client::connect(&case.world, false);
        let post = h2_client.post_head(&case.world, "/taken/10", 100_000);
        send_body_slowly(&mut case, &mut h2_client, (post, 10), 50, 30_000);
        let got = &h2_client.got[&post];
        assert!(got.is_ended && !got.is_reset, "seed {seed}");
    });
}

#[test]
fn unread_request_body_does_not_cut_the_response() {
    for_each_seed(0..4, |seed| {
        let mut case = Case::new(seed, mild_faults(), settings());
        let mut clients = [SimH2Client::connect(&case.world, false)];
        let post = clients[0].post_head(&case.world, "/early/190000", 100_000);
        case.turn_for(20_000);
        turn_all(&mut case, seed, &mut clients);
        let got = &clients[0].got[&post];
        assert!(got.is_ended, "seed {seed}");
        assert!(
            got.body == pattern_bytes(190_000),
            "seed {seed}: other bytes"
        );
    });
}

#[test]
fn pings_do_not_extend_the_send_timeout() {
    let mut case = Case::new(1, mild_faults(), settings());
    let mut h2_client = SimH2Client::connect(&case.world, false);
    h2_client.send_request(&case.world, "/block/190000", Method::Get, 0);
    ping_for(&mut case, &h2_client, 100_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.send_timeouts.value(), 1);
}

#[test]
fn drain_completes_streams_in_progress_and_sends_goaway() {
    use lowroad_engine::worker::MailboxMessage;
    let mut case = Case::new(1, mild_faults(), settings());
    let mut clients = [SimH2Client::connect(&case.world, false)];
    let stream = clients[0].send_request(&case.world, "/deferred/3000", Method::Get, 0);
    case.turn_for(2);
    case.mailbox
        .post(MailboxMessage::Drain { timeout_ms: 30_000 });
    turn_all(&mut case, 1, &mut clients);
    assert_eq!(clients[0].got[&stream].body, pattern_bytes(3000));
    case.turn_for(5_000);
    clients[0].turn(&case.world);
    assert_eq!(clients[0].goaway, Some(ErrorCode::NO_ERROR));
    assert!(case.worker.drained());
}
