//! The worker in the simulator: despite faults of network, helpers and clocks, each client gets the responses to its
//! requests, complete and in order, or a clean end.
//!
//! Each case is a seed; a failure prints it.

mod echo;

use std::net::IpAddr;

use lowroad_engine::driver::ListenerId;
use lowroad_engine::settings::ProxyProtocolListener;
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::MailboxMessage;
use lowroad_engine_sim::{FakeTls, FaultRates, SharedWorld};
use lowroad_limits::ConnectionLimit;

use echo::{BLOCK_LEN, Case, HINTS, calm, pattern_of, settings};

fn answer_of(len: usize, close: bool) -> Vec<u8> {
    let end = if close { "Connection: close\r\n" } else { "" };
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{end}\r\n").into_bytes();
    answer.extend(pattern_of(len));
    answer
}

/// The client's bytes without Date fields, which depend on the clocks.
fn undated(read: &[u8]) -> Vec<u8> {
    const LINE: &[u8] = b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    const BEFORE: &[u8] = b"HTTP/1.1 200 OK\r\n";
    let mut out = Vec::new();
    let mut rest = read;
    while let Some(at) = rest.windows(BEFORE.len()).position(|w| w == BEFORE) {
        let (before, line) = rest.split_at(at + BEFORE.len());
        out.extend_from_slice(before);
        let name_len = line.len().min(6);
        assert_eq!(&line[..name_len], &LINE[..name_len]);
        rest = &line[line.len().min(LINE.len())..];
    }
    out.extend_from_slice(rest);
    out
}

const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";

/// Requests of one client and the expected responses.
fn script(world: &SharedWorld) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let count = 1 + world.dice(6);
    for at in 0..count {
        let last = at + 1 == count;
        let kind =
            ["bytes", "deferred", "block", "file", "hinted", "segment"][world.dice(6) as usize];
        let len = match world.dice(4) {
            0 => world.dice(50) as usize,
            1 => world.dice(9000) as usize,
            _ => world.dice(BLOCK_LEN as u64) as usize,
        };
        let close = if last { "Connection: close\r\n" } else { "" };
        let body = match world.dice(6) {
            2 => format!("Content-Length: 0\r\n{close}\r\n"),
            0 => format!("Content-Length: 5\r\n{close}\r\nhello"),
            1 => format!("Transfer-Encoding: chunked\r\n{close}\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
            _ => format!("{close}\r\n"),
        };
        requests.extend(format!("GET /{kind}/{len} HTTP/1.1\r\nHost: sim\r\n{body}").into_bytes());
        if kind == "hinted" {
            answers.extend(HINT.repeat(HINTS));
        }
        answers.extend(answer_of(len, last));
    }
    (requests, answers)
}

#[test]
fn every_answer_arrives_whole_and_in_order() {
    (0..120).for_each(|seed| assert_eq!(every_answer_arrives(seed, false), 0));
}

#[test]
fn every_answer_arrives_through_a_layer() {
    let offloaded = (0..60).map(|seed| every_answer_arrives(seed, true));
    assert!(offloaded.sum::<u64>() > 20, "the kernel seals for some");
}

/// Returns the number of clients for which kernel TLS was used.
fn every_answer_arrives(seed: u64, veiled: bool) -> u64 {
    let pick = |at: u64, from: &[usize]| from[((seed >> at) % from.len() as u64) as usize];
    let faults = FaultRates {
        piece_len_max: pick(0, &[1, 30, 700, 9000]),
        delay_ms_max: pick(2, &[0, 3, 400]) as u64,
        window_len: pick(1, &[900, 20_000, 1_000_000]),
        clock_jumps: 0,
        accept_failures: pick(3, &[0, 200]) as u64,
        file_failures: pick(4, &[0, 500]) as u64,
        late_sends: pick(5, &[0, 300, 1000]) as u64,
    };
    let mut case = Case::with(seed, faults, settings(), veiled);
    case.world.set_seal_failures(pick(2, &[0, 500]) as u64);
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let (mut requests, answers) = script(&case.world);
            let id = case.world.connect();
            if veiled {
                case.world.send(id, &FakeTls::hello());
                requests = FakeTls::records(&requests);
            }
            case.world.send(id, &requests);
            (id, answers)
        })
        .collect();
    let ids: Vec<usize> = clients.iter().map(|(id, _)| *id).collect();
    case.turn_until(seed, "the end of all", |world| {
        ids.iter().all(|id| world.is_over(*id))
    });
    let mut sent_bytes = 0;
    for (id, answers) in clients {
        let mut read = case.world.read(id);
        sent_bytes += read.len() as u64;
        if veiled {
            let (bytes, is_ended) = FakeTls::read(&read);
            assert!(is_ended, "seed {seed}: client {id}: the end was not said");
            read = bytes;
        }
        let read = undated(&read);
        assert_eq!(read.len(), answers.len(), "seed {seed}: client {id}");
        assert!(read == answers, "seed {seed}: client {id}: other bytes");
    }
    // Handshake bytes do not count as bytes of responses.
    let counted = case.counters.sent_bytes.value();
    assert!(veiled || counted == sent_bytes, "seed {seed}");
    assert!(counted <= sent_bytes, "seed {seed}");
    assert_eq!(case.counters.broken.value(), 0, "seed {seed}");
    case.counters.kernel_tls.value()
}

/// A client that requests other keys than the kernel's gets the response in progress, and the end.
#[test]
fn other_keys_than_the_kernels_end_the_connection_in_order() {
    for seed in 0..60 {
        let faults = FaultRates {
            window_len: 3000,
            delay_ms_max: 20,
            late_sends: [0, 500][(seed % 2) as usize],
            ..calm()
        };
        let mut case = Case::with(seed, faults, settings(), true);
        let id = case.world.connect();
        let request = b"GET /file/90000 HTTP/1.1\r\nHost: sim\r\n\r\n";
        case.world.send(id, &FakeTls::hello());
        case.world.send(id, &FakeTls::records(request));
        // While it is sent, with a request behind it, or afterwards.
        let read_len_min = [30_000, 30_000, 90_000][(seed % 3) as usize];
        case.turn_until(seed, "some of it", |world| {
            world.read(id).len() > read_len_min
        });
        if seed % 3 != 0 {
            case.world.send(id, &FakeTls::other_mask());
        } else {
            let both = [FakeTls::other_mask(), FakeTls::records(request)].concat();
            case.world.send(id, &both);
        }
        case.turn_until(seed, "the end", |world| world.is_over(id));
        let (read, is_ended) = FakeTls::read(&case.world.read(id));
        assert!(is_ended, "seed {seed}: the end was not said");
        assert!(undated(&read) == answer_of(90_000, false), "seed {seed}");
        assert_eq!(case.counters.kernel_tls.value(), 1, "seed {seed}");
        case.turn_for(5_000);
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn other_keys_are_of_no_matter_while_the_layer_seals() {
    let mut case = Case::with(1, calm(), settings(), true);
    case.world.set_seal_failures(1000);
    let id = case.world.connect();
    let request = b"GET /file/90000 HTTP/1.1\r\nHost: sim\r\n\r\n";
    let said = [
        FakeTls::hello(),
        FakeTls::other_mask(),
        FakeTls::records(request),
    ]
    .concat();
    case.world.send(id, &said);
    case.turn_until(1, "an answer", |world| world.read(id).len() > 90_000);
    case.turn_for(100);
    assert_eq!(case.counters.kernel_tls.value(), 0);
    assert_eq!(case.admission.open(), 1);
}

/// The first bytes of a connection to a TLS listener, and the client's received bytes.
fn first_bytes(bytes: &[u8]) -> (Case, Vec<u8>) {
    let mut case = Case::with(1, calm(), settings(), true);
    let id = case.world.connect();
    case.world.send(id, bytes);
    case.turn_for(10);
    case.world.end(id);
    case.turn_until(1, "the end", |world| world.is_over(id));
    case.turn_for(5_000);
    let read = case.world.read(id);
    (case, read)
}

#[test]
fn who_speaks_clear_text_to_a_layer_is_answered_so() {
    let (case, read) = first_bytes(b"GET / HTTP/1.1\r\nHost: sim\r\n\r\n");
    assert!(read.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    assert_eq!(case.counters.clear_text.value(), 1);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn who_breaks_a_layers_rules_is_told_and_ended() {
    let (case, read) = first_bytes(b"HELLOOOOO");
    assert_eq!(read, b"ALERT\n");
    assert_eq!(case.counters.handshake_failures.value(), 1);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let mut case = Case::with(1, calm(), settings(), true);
    let id = case.world.connect();
    case.world.send(id, b"HEL");
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 1, "too early");
    case.turn_for(30_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.handshake_timeouts.value(), 1);
}

#[test]
fn clients_of_http_1_0_get_no_interim_responses() {
    let mut case = Case::new(1, calm(), settings());
    let id = case.world.connect();
    case.world
        .send(id, b"GET /hinted/5 HTTP/1.0\r\nHost: sim\r\n\r\n");
    case.turn_until(1, "the end", |world| world.is_over(id));
    assert_eq!(undated(&case.world.read(id)), answer_of(5, true));
}

#[test]
fn breaks_jumps_and_early_ends_give_a_prefix_and_free_everything() {
    for seed in 0..180 {
        let veiled = seed >= 120;
        let faults = FaultRates {
            clock_jumps: 30,
            window_len: 3000,
            late_sends: [0, 500, 1000][(seed % 3) as usize],
            delay_ms_max: 300,
            ..calm()
        };
        let mut case = Case::with(seed, faults, settings(), veiled);
        let clients: Vec<_> = (0..6)
            .map(|at| {
                let (mut requests, answers) = script(&case.world);
                let id = case.world.connect();
                if veiled {
                    case.world.send(id, &FakeTls::hello());
                    requests = FakeTls::records(&requests);
                }
                let cut = if at % 3 == 0 {
                    requests.len() / 2
                } else {
                    requests.len()
                };
                case.world.send(id, &requests[..cut]);
                match at % 3 {
                    0 => case.world.end(id),
                    1 => case.world.reset(id),
                    _ => {}
                }
                (id, answers)
            })
            .collect();
        case.turn_until(seed, "the last connection's end", |world| {
            clients
                .iter()
                .all(|(id, _)| world.is_over(*id) || world.read(*id).is_empty())
                && world.now_ms() > 1_002_000
        });
        case.turn_for(400_000);
        assert_eq!(
            case.admission.open(),
            0,
            "seed {seed}: a connection is left"
        );
        for (id, answers) in clients {
            let mut read = case.world.read(id);
            if veiled {
                read = FakeTls::read(&read).0;
            }
            let read = undated(&read);
            assert!(
                answers.starts_with(&read),
                "seed {seed}: client {id}: not a prefix"
            );
        }
    }
}

#[test]
fn slow_clients_are_ended_by_their_timeouts() {
    let mut case = Case::new(1, calm(), settings());
    let idle = case.world.connect();
    case.world
        .send(idle, b"GET /bytes/3 HTTP/1.1\r\nHost: sim\r\n\r\n");
    let partial = case.world.connect();
    case.world.send(partial, b"GET /bytes/3 HT");
    let in_body = case.world.connect();
    case.world.send(
        in_body,
        b"GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nContent-Length: 9\r\n\r\nabc",
    );
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 3, "too early");
    case.turn_for(200_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(undated(&case.world.read(idle)), answer_of(3, false));
    assert_eq!(case.counters.idle_timeouts.value(), 1);
    assert_eq!(case.counters.header_timeouts.value(), 1);
    assert_eq!(case.counters.body_timeouts.value(), 1);
}

#[test]
fn a_client_that_trickles_or_sips_is_below_the_minimum_rate() {
    let settings = WorkerSettings {
        rate_min: 1000,
        ..settings()
    };
    let faults = FaultRates {
        piece_len_max: 1,
        delay_ms_max: 0,
        window_len: 10,
        ..calm()
    };
    let mut case = Case::new(2, faults, settings);
    let sips = case.world.connect();
    case.world
        .send(sips, b"GET /block/100000 HTTP/1.1\r\nHost: sim\r\n\r\n");
    case.turn_for(60_000);
    // About ten bytes per millisecond are enough: the request is complete, or was fast enough so far.
    assert_eq!(case.counters.rate_too_low.value(), 0);
    let faults = FaultRates {
        piece_len_max: 50,
        delay_ms_max: 2000,
        window_len: 100,
        ..calm()
    };
    let mut case = Case::new(
        3,
        faults,
        WorkerSettings {
            rate_min: 1000,
            ..self::settings()
        },
    );
    let sips = case.world.connect();
    case.world
        .send(sips, b"GET /block/100000 HTTP/1.1\r\nHost: sim\r\n\r\n");
    case.turn_for(60_000);
    assert_eq!(case.counters.rate_too_low.value(), 1);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn a_body_that_trickles_is_given_up_when_its_grace_is_over() {
    let settings = WorkerSettings {
        rate_min: 1000,
        rate_grace_ms: 3000,
        ..settings()
    };
    let mut case = Case::new(5, calm(), settings);
    let trickles = case.world.connect();
    case.world.send(
        trickles,
        b"GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nContent-Length: 90\r\n\r\n",
    );
    for second in 0..8 {
        assert!(case.counters.rate_too_low.value() == 0 || second > 2);
        case.world.send(trickles, b"x");
        case.turn_for(1000);
    }
    assert_eq!(case.counters.rate_too_low.value(), 1);
    assert_eq!(case.counters.body_timeouts.value(), 0);
    assert_eq!(case.admission.open(), 0, "it lingers no longer than 2 s");
}

#[test]
fn an_idle_timeout_counts_from_the_answer_even_after_a_slow_head() {
    let settings = WorkerSettings {
        header_timeout_ms: 15_000,
        idle_timeout_ms: 1000,
        ..settings()
    };
    let mut case = Case::new(6, calm(), settings);
    let slow = case.world.connect();
    case.world.send(slow, b"GET /bytes/3 HTTP/1.1\r\nHost:");
    case.turn_for(2500);
    case.world.send(slow, b" sim\r\n\r\n");
    case.turn_for(500);
    assert_eq!(undated(&case.world.read(slow)), answer_of(3, false));
    assert_eq!(case.admission.open(), 1);
    case.turn_for(1000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.idle_timeouts.value(), 1);
}

#[test]
fn one_who_sends_much_at_once_is_read_to_the_end_in_turns() {
    const LEN: usize = 1_000_000;
    let faults = FaultRates {
        piece_len_max: LEN + 1000,
        ..calm()
    };
    let mut case = Case::new(7, faults, settings());
    let floods = case.world.connect();
    let head = format!("GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nContent-Length: {LEN}\r\n\r\n");
    case.world.send(floods, head.as_bytes());
    for _ in 0..4 {
        case.world.send(floods, &vec![b'x'; LEN / 4]);
    }
    // The body is unwanted; the request behind it is parsed all the same.
    case.world
        .send(floods, b"GET /bytes/4 HTTP/1.1\r\nHost: sim\r\n\r\n");
    case.turn_until(7, "the second answer", |world| {
        undated(&world.read(floods)) == [answer_of(3, false), answer_of(4, false)].concat()
    });
}

#[test]
fn a_body_that_breaks_does_not_get_into_the_answer_before() {
    for seed in 0..20 {
        let faults = FaultRates {
            piece_len_max: 100_000,
            delay_ms_max: 300,
            window_len: 1000,
            ..calm()
        };
        let mut case = Case::new(seed, faults, settings());
        let client = case.world.connect();
        let two = "GET /bytes/10000 HTTP/1.1\r\nHost: sim\r\n\r\n\
                   GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n\r\n";
        case.world.send(client, two.as_bytes());
        case.turn_until(seed, "the first bytes", |world| {
            !world.read(client).is_empty()
        });
        case.world.send(client, b"no size\r\n");
        case.turn_until(seed, "the end", |world| world.is_over(client));
        let (read, first) = (undated(&case.world.read(client)), answer_of(10_000, false));
        assert!(read.starts_with(&first), "seed {seed}");
    }
}

#[test]
fn an_outcome_that_comes_too_late_reaches_no_later_request() {
    for seed in 0..40 {
        let faults = FaultRates {
            delay_ms_max: 100,
            window_len: 100_000,
            ..calm()
        };
        let mut case = Case::new(seed, faults, settings());
        let client = case.world.connect();
        for _ in 0..3 {
            case.world.send(
                client,
                b"GET /twice/3 HTTP/1.1\r\nHost: sim\r\n\r\nGET /deferred/4 HTTP/1.1\r\nHost: sim\r\n\r\n",
            );
        }
        let two = [answer_of(3, false), answer_of(4, false)].concat();
        case.turn_until(seed, "all answers", |world| {
            undated(&world.read(client)) == two.repeat(3)
        });
    }
}

#[test]
fn too_many_connections_are_turned_away_and_places_come_back() {
    let settings = WorkerSettings {
        connections_max: 3,
        ..settings()
    };
    let faults = FaultRates {
        late_sends: 500,
        ..calm()
    };
    let mut case = Case::new(4, faults, settings);
    let clients: Vec<usize> = (0..5).map(|_| case.world.connect()).collect();
    case.turn_for(1000);
    assert_eq!(case.admission.open(), 3);
    assert_eq!(case.counters.over_connections_max.value(), 2);
    let refused = clients
        .iter()
        .filter(|id| case.world.read(**id).starts_with(b"HTTP/1.1 400"));
    assert_eq!(refused.count(), 2);
    clients.iter().for_each(|id| case.world.end(*id));
    case.turn_for(2000);
    assert_eq!(case.admission.open(), 0);
    let admission = ConnectionLimit::default();
    assert!(admission.enter(IpAddr::from([10, 0, 0, 1]), 1, 1).is_ok());
}

#[test]
fn a_drain_answers_what_is_under_way_and_ends() {
    for seed in 0..40 {
        let faults = FaultRates {
            delay_ms_max: 100,
            ..calm()
        };
        let mut case = Case::new(seed, faults, settings());
        let busy = case.world.connect();
        case.world
            .send(busy, b"GET /deferred/70000 HTTP/1.1\r\nHost: sim\r\n\r\n");
        let idle = case.world.connect();
        case.world
            .send(idle, b"GET /bytes/1 HTTP/1.1\r\nHost: sim\r\n\r\n");
        case.turn_until(seed, "an answer", |world| !world.read(idle).is_empty());
        case.mailbox
            .post(MailboxMessage::Drain { timeout_ms: 60_000 });
        let begun_ms = case.world.now_ms();
        for _ in 0..100_000 {
            if case.worker.drained() {
                break;
            }
            case.worker.turn();
        }
        assert!(case.worker.drained(), "seed {seed}");
        let took_ms = case.world.now_ms() - begun_ms;
        assert!(took_ms < 30_000, "seed {seed}: took {took_ms} ms");
        let read = undated(&case.world.read(busy));
        let (open, closed) = (answer_of(70_000, false), answer_of(70_000, true));
        assert!(
            read.len() >= open.len() - 5000 || read.is_empty(),
            "seed {seed}: cut"
        );
        assert!(
            open.starts_with(&read) || closed.starts_with(&read),
            "seed {seed}"
        );
    }
}

#[test]
fn a_drain_waits_for_who_holds_the_worker_but_not_for_its_tasks_nor_for_ever() {
    for (seed, lets_go) in [(0, true), (1, false)] {
        let mut case = Case::new(seed, calm(), settings());
        let hold = case.local.tasks.hold();
        let restless = std::future::pending::<()>();
        case.local.tasks.spawn(restless).detach();
        case.mailbox
            .post(MailboxMessage::Drain { timeout_ms: 5_000 });
        let begun_ms = case.world.now_ms();
        case.turn_for(2_000);
        assert!(!case.worker.drained(), "it is held");
        let hold = (!lets_go).then_some(hold);
        for _ in 0..100_000 {
            if case.worker.drained() {
                break;
            }
            case.worker.turn();
        }
        assert!(case.worker.drained());
        let took_ms = case.world.now_ms() - begun_ms;
        assert_eq!(took_ms >= 5_000, !lets_go, "{took_ms} ms");
        drop(hold);
    }
}

/// All clients of the simulator have to send a PROXY header.
fn introduced() -> WorkerSettings {
    let all: IpAddr = [0, 0, 0, 0].into();
    WorkerSettings {
        header_timeout_ms: 5000,
        connections_per_address_max: 2,
        proxy_protocol_listeners: vec![ProxyProtocolListener {
            listener: ListenerId(0),
            proxies: vec![all..=[255; 4].into()],
        }],
        ..settings()
    }
}

/// PROXY headers in both versions, and those without a client's address.
fn introductions() -> [(Vec<u8>, Option<&'static str>); 6] {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let mut v6 = [SIGNATURE, &[0x21, 0x21, 0, 36 + 7]].concat();
    v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    v6.extend([0; 20]);
    // An unknown field.
    v6.extend([0xe5, 0, 4, 1, 2, 3, 4]);
    let unix = [SIGNATURE, &[0x21, 0x31, 0, 216], &[b'/'; 216]].concat();
    [
        (
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n".into(),
            Some("192.0.2.7"),
        ),
        (
            b"PROXY TCP6 2001:db8::9 2001:db8::1 4711 80\r\n".into(),
            Some("2001:db8::9"),
        ),
        (v6, Some("2001:db8::7")),
        (b"PROXY UNKNOWN\r\n".into(), None),
        ([SIGNATURE, &[0x20, 0, 0, 0]].concat(), None),
        (unix, None),
    ]
}

#[test]
fn a_proxy_says_whose_connection_it_is() {
    for seed in 0..60 {
        for (header, client) in introductions() {
            let faults = FaultRates {
                piece_len_max: [1, 3, 40, 9000][(seed % 4) as usize],
                ..calm()
            };
            let mut case = Case::new(seed, faults, introduced());
            let id = case.world.connect();
            case.world.send(id, &header);
            case.world
                .send(id, b"GET /peer/0 HTTP/1.1\r\nHost: sim\r\n\r\n");
            case.world.send(
                id,
                b"GET /peer/0 HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n",
            );
            case.turn_until(seed, "the end", |world| world.is_over(id));
            let read = String::from_utf8(case.world.read(id)).expect("text");
            let bodies: Vec<&str> = read
                .split("HTTP/1.1 200 OK")
                .skip(1)
                .filter_map(|answer| answer.split("\r\n\r\n").nth(1))
                .collect();
            match client {
                Some(client) => assert_eq!(bodies, [client, client], "seed {seed}"),
                None => assert_eq!(bodies.len(), 2, "seed {seed}: {read}"),
            }
            assert_eq!(case.counters.proxy_headers_refused.value(), 0);
            assert_eq!(case.admission.open(), 0, "seed {seed}");
        }
    }
}

#[test]
fn what_is_no_introduction_gets_no_answer() {
    for seed in 0..40 {
        for said in [
            &b"GET /peer/0 HTTP/1.1\r\nHost: sim\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\nGET ",
            b"PROXY TCP9 a b c d\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x31\0\0\0",
            b"PROXY TC",
        ] {
            let faults = FaultRates {
                piece_len_max: [1, 9000][(seed % 2) as usize],
                ..calm()
            };
            let mut case = Case::new(seed, faults, introduced());
            let id = case.world.connect();
            case.world.send(id, said);
            case.turn_for(10_000);
            assert_eq!(case.world.read(id), b"", "seed {seed}");
            assert_eq!(case.counters.proxy_headers_refused.value(), 1);
            assert_eq!(case.admission.open(), 0, "seed {seed}");
        }
    }
}

#[test]
fn a_proxy_s_clients_have_their_limits_and_it_has_none() {
    let mut case = Case::new(3, calm(), introduced());
    let connect = |case: &Case, last: u8| {
        let id = case.world.connect();
        let line = format!(
            "PROXY TCP4 192.0.2.{last} 198.51.100.1 1 80\r\nGET /peer/0 HTTP/1.1\r\nHost: sim\r\n\r\n"
        );
        case.world.send(id, line.as_bytes());
        id
    };
    let ids: Vec<usize> = [1, 2, 1, 2, 3].map(|last| connect(&case, last)).into();
    case.turn_for(1000);
    for id in ids {
        assert!(case.world.read(id).starts_with(b"HTTP/1.1 200"));
    }
    let third = connect(&case, 1);
    case.turn_for(5000);
    // This service refuses all with the same status.
    assert!(case.world.read(third).starts_with(b"HTTP/1.1 400"));
    assert_eq!(case.counters.over_address_max.value(), 1);
    assert_eq!(case.admission.open(), 5);
}

#[test]
fn a_look_whether_we_are_there_is_no_failure() {
    let mut case = Case::new(4, calm(), introduced());
    let id = case.world.connect();
    case.world.end(id);
    case.turn_until(4, "the end", |world| world.is_over(id));
    assert_eq!(case.counters.proxy_headers_refused.value(), 0);
    assert_eq!(case.admission.open(), 0);
}
