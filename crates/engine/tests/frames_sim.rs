//! HTTP/2 in the simulator: despite faults of network, helpers and clocks, each stream gets its complete response, and
//! exchanges that a client cancels leave no state behind.
//!
//! Each case is a seed; a failure prints it.

mod echo;

use std::collections::HashMap;

use lowroad_engine_sim::{FakeTls, FaultRates, SharedWorld, for_each_seed};
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{self, ErrorCode, H2Client, H2ClientEvent, OutgoingRequest};
use lowroad_http::method::Method;

use echo::{BLOCK_LEN, Case, HINTS, calm, pattern_of, settings};

/// The response of a stream.
#[derive(Default)]
struct Got {
    status: u16,
    interims: usize,
    body: Vec<u8>,
    is_ended: bool,
    is_reset: bool,
}

/// An HTTP/2 client of the simulated world.
struct Browser {
    id: usize,
    http: H2Client,
    settings: h2::H2Settings,
    counters: h2::GlitchCounters,
    text: Vec<u8>,
    is_veiled: bool,
    /// All bytes read, and the number of parsed ones.
    read: Vec<u8>,
    used: usize,
    got: HashMap<u32, Got>,
    is_broken: bool,
    gone: Option<ErrorCode>,
}

impl Browser {
    fn connect(world: &SharedWorld, is_veiled: bool) -> Browser {
        let id = world.connect();
        let (settings, mut counters) = (h2::H2Settings::default(), h2::GlitchCounters::default());
        let mut out = Vec::new();
        let http = H2Client::new(&mut h2::ConnectionTurn {
            now_ms: world.now_ms(),
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        });
        if is_veiled {
            world.send(id, &FakeTls::hello());
        }
        let mut browser = Browser {
            id,
            http,
            settings,
            counters,
            text: Vec::new(),
            is_veiled,
            read: Vec::new(),
            used: 0,
            got: HashMap::new(),
            is_broken: false,
            gone: None,
        };
        browser.say(world, &out);
        browser
    }

    fn say(&mut self, world: &SharedWorld, out: &[u8]) {
        match self.is_veiled {
            true => world.send(self.id, &FakeTls::records(out)),
            false => world.send(self.id, out),
        }
    }

    /// Requests a path, with a body of this length.
    fn ask(&mut self, world: &SharedWorld, path: &str, method: Method, body_len: usize) -> u32 {
        let mut out = Vec::new();
        let stream = self.put_head(path, method, body_len, FieldLines::NONE, &mut out);
        if body_len > 0 {
            self.http.body(stream, body_len as u64).expect("a body");
            self.http.end(stream, FieldLines::NONE).expect("its end");
        }
        self.say_ready(&mut out);
        self.say(world, &out);
        stream.0
    }

    /// Posts to a path, without sending the announced body.
    fn announce(&mut self, world: &SharedWorld, path: &str, body_len: usize) -> u32 {
        self.announce_with(world, path, body_len, b"")
    }

    fn announce_with(
        &mut self,
        world: &SharedWorld,
        path: &str,
        body_len: usize,
        lines: &[u8],
    ) -> u32 {
        let mut out = Vec::new();
        let stream = self.put_head(
            path,
            Method::Post,
            body_len,
            FieldLines::new(lines),
            &mut out,
        );
        self.say(world, &out);
        stream.0
    }

    /// Sends a part of an announced body.
    fn trickle(&mut self, world: &SharedWorld, stream: u32, len: usize) {
        let ready = self.http.body(h2::StreamId(stream), len as u64);
        ready.expect("less than was announced");
        let mut out = Vec::new();
        self.say_ready(&mut out);
        self.say(world, &out);
    }

    fn put_head(
        &mut self,
        path: &str,
        method: Method,
        body_len: usize,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) -> h2::StreamId {
        let ask = OutgoingRequest {
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
        let stream = self.http.request(&ask, lines, len, out);
        let stream = stream.expect("room for a stream");
        self.got.insert(stream.0, Got::default());
        stream
    }

    /// Writes as much of the bodies as the windows allow.
    fn say_ready(&mut self, out: &mut Vec<u8>) {
        while let Some(piece) = self.http.send(1000, out) {
            out.resize(out.len() + piece.len as usize, b'b');
        }
    }

    /// Reads the received bytes, and reacts to them.
    fn turn(&mut self, world: &SharedWorld) {
        self.read.extend(world.take_read(self.id));
        let plain = match self.is_veiled {
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
                Some(H2ClientEvent::Interim(head)) => self.of(head.stream).interims += 1,
                Some(H2ClientEvent::Response(head)) => {
                    let (status, is_ended) = (head.status.code(), !head.has_body);
                    let got = self.of(head.stream);
                    (got.status, got.is_ended) = (status, is_ended);
                }
                Some(H2ClientEvent::Data { stream, data }) => {
                    self.of(stream).body.extend_from_slice(data);
                    taken = Some((stream, data.len()));
                }
                Some(H2ClientEvent::End { stream, .. }) => self.of(stream).is_ended = true,
                Some(H2ClientEvent::Reset { stream, .. }) => self.of(stream).is_reset = true,
                Some(H2ClientEvent::GoneAway { code, .. }) => self.gone = Some(code),
            }
            if let Some((stream, len)) = taken {
                self.http.release_capacity(stream, len, &mut out);
            }
        }
        self.text = text;
        self.say_ready(&mut out);
        if !out.is_empty() {
            self.say(world, &out);
        }
    }

    fn of(&mut self, stream: h2::StreamId) -> &mut Got {
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

/// A path, its method, and the expected response.
fn question(world: &SharedWorld, len_max: usize) -> (String, Method, usize, usize, usize) {
    let kind = ["bytes", "deferred", "block", "file", "hinted", "segment"][world.dice(6) as usize];
    let len = match world.dice(4) {
        0 => world.dice(50) as usize,
        1 => world.dice(9000.min(len_max as u64)) as usize,
        _ => world.dice(len_max as u64) as usize,
    };
    let (method, body_len) = match world.dice(6) {
        0 => (Method::Post, 1 + world.dice(100_000) as usize),
        1 => (Method::Head, 0),
        _ => (Method::Get, 0),
    };
    let interims = if kind == "hinted" { HINTS } else { 0 };
    (format!("/{kind}/{len}"), method, body_len, len, interims)
}

/// Runs turns until all clients have their responses.
fn turn_all(case: &mut Case, seed: u64, browsers: &mut [Browser]) {
    for _ in 0..400_000 {
        case.worker.turn();
        for browser in browsers.iter_mut() {
            browser.turn(&case.world);
        }
        if browsers.iter().all(Browser::has_all) {
            return;
        }
    }
    panic!("seed {seed}: responses did not come");
}

#[test]
fn every_stream_gets_its_response() {
    for_each_seed(0..30, |seed| {
        let veiled = seed % 4 == 3;
        let len_max = if veiled { 20_000 } else { BLOCK_LEN };
        let mut case = Case::with(seed, faults(seed), settings(), veiled);
        let mut wanted = Vec::new();
        let mut browsers: Vec<Browser> = (0..3)
            .map(|_| Browser::connect(&case.world, veiled))
            .collect();
        for _ in 0..2 {
            for (at, browser) in browsers.iter_mut().enumerate() {
                for _ in 0..case.world.dice(8) {
                    let (path, method, body_len, len, interims) = question(&case.world, len_max);
                    let stream = browser.ask(&case.world, &path, method, body_len);
                    let len = if method == Method::Head { 0 } else { len };
                    wanted.push((at, stream, path, len, interims));
                }
            }
            turn_all(&mut case, seed, &mut browsers);
        }
        for (at, stream, path, len, interims) in wanted {
            let got = &browsers[at].got[&stream];
            assert_eq!(got.status, 200, "seed {seed}: {path}");
            assert_eq!(got.interims, interims, "seed {seed}: {path}");
            assert_eq!(got.body.len(), len, "seed {seed}: {path}");
            assert!(
                got.body == pattern_of(len),
                "seed {seed}: {path}: other bytes"
            );
        }
        assert_eq!(case.counters.h2_ended.value(), 0, "seed {seed}");
        assert_eq!(case.counters.h2_connections.value(), 3, "seed {seed}");
    });
}

#[test]
fn streams_and_connections_that_are_given_up_leave_nothing_behind() {
    for_each_seed(0..30, |seed| {
        let veiled = seed % 4 == 3;
        let mut case = Case::with(seed, faults(seed), settings(), veiled);
        let mut browsers: Vec<Browser> = (0..4)
            .map(|_| Browser::connect(&case.world, veiled))
            .collect();
        for _ in 0..6 {
            for browser in &mut browsers {
                let (path, method, body_len, _, _) = question(&case.world, 20_000);
                let stream = browser.ask(&case.world, &path, method, body_len);
                if case.world.dice(2) == 0 {
                    let mut out = Vec::new();
                    let stream = h2::StreamId(stream);
                    browser.http.reset(stream, ErrorCode::CANCEL, &mut out);
                    browser.say(&case.world, &out);
                    browser.of(stream).is_reset = true;
                }
            }
            let until_ms = case.world.now_ms() + case.world.dice(100);
            case.world.alarm(until_ms);
            while case.world.now_ms() < until_ms {
                case.worker.turn();
                browsers.iter_mut().for_each(|it| it.turn(&case.world));
            }
        }
        for (at, browser) in browsers.iter().enumerate() {
            match at {
                0 => case.world.reset(browser.id),
                1 => case.world.end(browser.id),
                _ => {}
            }
        }
        let (_, stay) = browsers.split_at_mut(2);
        turn_all(&mut case, seed, stay);
        case.turn_for(200_000);
        assert_eq!(
            case.admission.open(),
            0,
            "seed {seed}: a connection is left"
        );
        let [idle, _] = stay else { panic!("two") };
        idle.turn(&case.world);
        assert_eq!(idle.gone, Some(ErrorCode::NO_ERROR), "seed {seed}");
    });
}

#[test]
fn what_is_not_http_2_is_told_so() {
    let mut case = Case::new(1, calm(), settings());
    let mut browser = Browser::connect(&case.world, false);
    // A frame of a stream number that clients can't use.
    case.world
        .send(browser.id, b"\x00\x00\x01\x00\x01\x00\x00\x00\x02x");
    case.turn_for(100);
    browser.turn(&case.world);
    assert_eq!(browser.gone, Some(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(case.counters.h2_ended.value(), 1);
    case.turn_for(10_000);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn a_client_that_opens_no_window_is_given_up() {
    let mut case = Case::new(1, calm(), settings());
    let mut browser = Browser::connect(&case.world, false);
    browser.ask(&case.world, "/block/190000", Method::Get, 0);
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 1, "too early");
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.send_timeouts.value(), 1);
}

/// Sends PINGs for this time, and reads nothing.
fn ping_for(case: &mut Case, browser: &Browser, for_ms: u64) {
    const EVERY_MS: u64 = 700;
    for _ in 0..for_ms / EVERY_MS {
        let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00anything";
        case.world.send(browser.id, ping);
        case.turn_for(EVERY_MS);
    }
}

#[test]
fn pings_keep_no_connection() {
    let mut case = Case::new(1, calm(), settings());
    let browser = Browser::connect(&case.world, false);
    ping_for(&mut case, &browser, 110_000);
    assert_eq!(case.admission.open(), 1, "too early");
    ping_for(&mut case, &browser, 20_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.idle_timeouts.value(), 1);
}

/// A stream with a body that never arrives ends; the connection, on which other requests are answered, continues until
/// idle.
#[test]
fn a_stream_that_ends_late_ends_no_busy_connection() {
    // From 64 on, sends end late.
    for_each_seed(48..72, |seed| {
        let mut case = Case::with(seed, faults(seed), settings(), seed % 4 == 3);
        let mut browser = Browser::connect(&case.world, seed % 4 == 3);
        // The first is answered early; the second waits for its body until `body_timeout`.
        let path = ["/early/10", "/bytes/10"][(seed % 2) as usize];
        let post = browser.announce(&case.world, path, 1000);
        for _ in 0..90 {
            browser.ask(&case.world, "/bytes/100", Method::Get, 0);
            case.turn_for(900);
            browser.turn(&case.world);
            assert_eq!(browser.gone, None, "seed {seed}");
        }
        assert!(browser.got[&post].status != 0, "seed {seed}");
        assert!(browser.got[&post].is_reset, "seed {seed}");
        let mut browsers = [browser];
        turn_all(&mut case, seed, &mut browsers);
        // The last turn may have taken up to 16 s.
        case.turn_for(100_000);
        assert_eq!(case.admission.open(), 1, "seed {seed}: too early");
        case.turn_for(40_000);
        browsers[0].turn(&case.world);
        assert_eq!(browsers[0].gone, Some(ErrorCode::NO_ERROR), "seed {seed}");
        assert_eq!(case.counters.idle_timeouts.value(), 1, "seed {seed}");
    });
}

/// Sends an announced body in pieces of this length, one each `every_ms`, for this time or until the stream is reset.
/// Returns the time.
fn trickle_for(
    case: &mut Case,
    browser: &mut Browser,
    (stream, piece_len): (u32, usize),
    every_ms: u64,
    for_ms: u64,
) -> u64 {
    let begun_ms = case.world.now_ms();
    while case.world.now_ms() < begun_ms + for_ms && !browser.got[&stream].is_reset {
        if piece_len > 0 {
            browser.trickle(&case.world, stream, piece_len);
        }
        case.turn_for(every_ms);
        browser.turn(&case.world);
    }
    case.world.now_ms() - begun_ms
}

/// RFC 9113 §8.1: the client has 5 s to read the response, whether the rest of the body trickles, streams or never
/// arrives.
#[test]
fn an_unread_body_is_reset_soon_after_the_response() {
    for_each_seed(0..32, |seed| {
        let mut case = Case::new(seed, calm(), settings());
        let mut browser = Browser::connect(&case.world, false);
        let piece_len = [0, 1, 10, 400][(seed % 4) as usize];
        // 1000 ms is the interval of the worker's checks.
        let every_ms = [50, 1000, 999, 400][(seed / 8 % 4) as usize];
        let body_len = [100_000, 9_999_999][(seed / 4 % 2) as usize];
        let post = browser.announce(&case.world, "/early/10", body_len);
        let took_ms = trickle_for(&mut case, &mut browser, (post, piece_len), every_ms, 60_000);
        let got = &browser.got[&post];
        assert!(got.is_ended && got.body == pattern_of(10), "seed {seed}");
        assert!(
            (5_000..=8_050 + every_ms).contains(&took_ms),
            "seed {seed}: {took_ms} ms"
        );
        assert_eq!(browser.gone, None, "seed {seed}");
        assert_eq!(case.counters.body_timeouts.value(), 0, "seed {seed}");
    });
}

/// RFC 9110 §10.1.1: 100 is for a body that the service wants, which it may decide later.
#[test]
fn only_a_wanted_body_gets_100() {
    for_each_seed(0..20, |seed| {
        let mut case = Case::new(seed, faults(seed), settings());
        let mut browser = Browser::connect(&case.world, false);
        let expect = b"expect: 100-continue\r\n";
        let refused = browser.announce_with(&case.world, "/undecided/10", 5, expect);
        let wanted = browser.announce_with(&case.world, "/undecided/11", 5, expect);
        let at_once = browser.announce_with(&case.world, "/bytes/12", 5, expect);
        case.turn_for(20_000);
        browser.turn(&case.world);
        let got = &browser.got[&refused];
        assert_eq!((got.status, got.interims), (200, 0), "seed {seed}");
        for stream in [wanted, at_once] {
            let got = &browser.got[&stream];
            assert_eq!((got.status, got.interims), (0, 1), "seed {seed}");
            browser.trickle(&case.world, stream, 5);
            let ended = browser.http.end(h2::StreamId(stream), FieldLines::NONE);
            ended.expect("all was sent");
            let mut out = Vec::new();
            browser.say_ready(&mut out);
            browser.say(&case.world, &out);
        }
        let mut browsers = [browser];
        turn_all(&mut case, seed, &mut browsers);
        let got = |stream| &browsers[0].got[&stream];
        assert_eq!(got(wanted).body, pattern_of(11), "seed {seed}");
        assert_eq!(got(at_once).body, pattern_of(12), "seed {seed}");
    });
}

/// The same with HTTP/1.
#[test]
fn only_a_wanted_body_gets_100_over_http_1() {
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
fn a_body_that_is_read_may_end_long_after_the_response() {
    for_each_seed(0..4, |seed| {
        let mut case = Case::new(seed, calm(), settings());
        let mut browser = Browser::connect(&case.world, false);
        let post = browser.announce(&case.world, "/taken/10", 100_000);
        trickle_for(&mut case, &mut browser, (post, 10), 50, 30_000);
        let got = &browser.got[&post];
        assert!(got.is_ended && !got.is_reset, "seed {seed}");
    });
}

#[test]
fn an_unread_body_cuts_no_response() {
    for_each_seed(0..4, |seed| {
        let mut case = Case::new(seed, calm(), settings());
        let mut browsers = [Browser::connect(&case.world, false)];
        let post = browsers[0].announce(&case.world, "/early/190000", 100_000);
        case.turn_for(20_000);
        turn_all(&mut case, seed, &mut browsers);
        let got = &browsers[0].got[&post];
        assert!(got.is_ended, "seed {seed}");
        assert!(got.body == pattern_of(190_000), "seed {seed}: other bytes");
    });
}

#[test]
fn pings_are_no_windows() {
    let mut case = Case::new(1, calm(), settings());
    let mut browser = Browser::connect(&case.world, false);
    browser.ask(&case.world, "/block/190000", Method::Get, 0);
    ping_for(&mut case, &browser, 100_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.send_timeouts.value(), 1);
}

#[test]
fn a_drain_lets_what_is_under_way_end() {
    use lowroad_engine::worker::MailboxMessage;
    let mut case = Case::new(1, calm(), settings());
    let mut browsers = [Browser::connect(&case.world, false)];
    let stream = browsers[0].ask(&case.world, "/deferred/3000", Method::Get, 0);
    case.turn_for(2);
    case.mailbox
        .post(MailboxMessage::Drain { timeout_ms: 30_000 });
    turn_all(&mut case, 1, &mut browsers);
    assert_eq!(browsers[0].got[&stream].body, pattern_of(3000));
    case.turn_for(5_000);
    browsers[0].turn(&case.world);
    assert_eq!(browsers[0].gone, Some(ErrorCode::NO_ERROR));
    assert!(case.worker.drained());
}
