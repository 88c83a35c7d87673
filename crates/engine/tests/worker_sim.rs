//! HTTP/1 in the simulator: despite faults of network, helpers and clocks, each client gets the responses to its
//! requests, complete and in order, or sees that its connection has ended.
//!
//! Each test case has a seed, which a failure prints.

mod echo;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use lowroad_engine::driver::ListenerId;
use lowroad_engine::panic_policy;
use lowroad_engine::recovery::{PanicConsequences, PanicPause};
use lowroad_engine::settings::ProxyProtocolListener;
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::MailboxMessage;
use lowroad_engine_sim::{FakeTls, FaultRates, SharedWorld};
use lowroad_limits::{ConnectionLimit, DeniedAddresses, DeniedPrefix};

use echo::{BLOCK_LEN, Case, HINTS, RATE, mild_faults, paced_ms, pattern_bytes, settings};

fn expected_response(len: usize, close: bool) -> Vec<u8> {
    let end = if close { "Connection: close\r\n" } else { "" };
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{end}\r\n").into_bytes();
    answer.extend(pattern_bytes(len));
    answer
}

/// The client's bytes without Date fields, which depend on the clocks.
fn without_date(read: &[u8]) -> Vec<u8> {
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

/// The random requests of a client, and the expected responses.
fn script(world: &SharedWorld) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let count = 1 + world.random_below(6);
    for at in 0..count {
        let last = at + 1 == count;
        let kind = ["bytes", "deferred", "block", "file", "hinted", "segment"]
            [world.random_below(6) as usize];
        let len = match world.random_below(4) {
            0 => world.random_below(50) as usize,
            1 => world.random_below(9000) as usize,
            _ => world.random_below(BLOCK_LEN as u64) as usize,
        };
        let close = if last { "Connection: close\r\n" } else { "" };
        let body = match world.random_below(6) {
            2 => format!("Content-Length: 0\r\n{close}\r\n"),
            0 => format!("Content-Length: 5\r\n{close}\r\nhello"),
            1 => format!("Transfer-Encoding: chunked\r\n{close}\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
            _ => format!("{close}\r\n"),
        };
        requests.extend(format!("GET /{kind}/{len} HTTP/1.1\r\nHost: sim\r\n{body}").into_bytes());
        if kind == "hinted" {
            answers.extend(HINT.repeat(HINTS));
        }
        answers.extend(expected_response(len, last));
    }
    (requests, answers)
}

#[test]
fn pipelined_responses_are_complete_and_in_order() {
    (0..120).for_each(|seed| assert_eq!(check_pipelined_responses(seed, false), 0));
}

#[test]
fn pipelined_responses_are_complete_and_in_order_over_tls() {
    let offloaded = (0..60).map(|seed| check_pipelined_responses(seed, true));
    assert!(offloaded.sum::<u64>() > 20, "the kernel seals for some");
}

/// Returns the number of clients for which kernel TLS was used.
fn check_pipelined_responses(seed: u64, has_tls: bool) -> u64 {
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
    let mut case = Case::with(seed, faults, settings(), has_tls);
    case.world
        .set_kernel_tls_failures(pick(2, &[0, 500]) as u64);
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let (mut requests, answers) = script(&case.world);
            let id = case.world.connect();
            if has_tls {
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
        if has_tls {
            let (bytes, is_ended) = FakeTls::read(&read);
            assert!(is_ended, "seed {seed}: client {id}: the end was not said");
            read = bytes;
        }
        let read = without_date(&read);
        assert_eq!(read.len(), answers.len(), "seed {seed}: client {id}");
        assert!(read == answers, "seed {seed}: client {id}: other bytes");
    }
    // Handshake bytes do not count as bytes of responses.
    let counted = case.counters.sent_bytes.value();
    assert!(has_tls || counted == sent_bytes, "seed {seed}");
    assert!(counted <= sent_bytes, "seed {seed}");
    assert_eq!(case.counters.broken.value(), 0, "seed {seed}");
    case.counters.kernel_tls.value()
}

/// Connects and requests a body with a limited rate. Returns the connection's number.
fn request_paced(case: &Case, kind: &str, len: usize, has_tls: bool) -> usize {
    let id = case.world.connect();
    let mut request =
        format!("GET /paced-{kind}/{len} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n")
            .into_bytes();
    if has_tls {
        case.world.send(id, &FakeTls::hello());
        request = FakeTls::records(&request);
    }
    case.world.send(id, &request);
    id
}

#[test]
fn bodies_with_a_limit_are_complete_and_keep_to_their_rate() {
    const LEN: usize = 150_000;
    for seed in 0..30 {
        let has_tls = seed % 2 == 1;
        let kind = ["block", "file", "segment"][seed as usize % 3];
        let mut case = Case::with(seed, mild_faults(), settings(), has_tls);
        let start_ms = case.world.now_ms();
        let id = request_paced(&case, kind, LEN, has_tls);
        // A busy loop would be more turns than allowed.
        case.turn_until(seed, "the end", |world| world.is_over(id));
        // Virtual time, which faults can only lengthen.
        let elapsed_ms = case.world.now_ms() - start_ms;
        assert!(
            elapsed_ms >= paced_ms(LEN as u64),
            "seed {seed}: {kind} took {elapsed_ms} ms"
        );
        let mut read = case.world.read(id);
        if has_tls {
            read = FakeTls::read(&read).0;
        }
        assert!(
            without_date(&read) == expected_response(LEN, true),
            "seed {seed}: {kind}: other bytes"
        );
        assert_eq!(case.counters.rate_too_low.value(), 0, "seed {seed}");
    }
}

/// After a key update, a client gets the response in progress, then the connection ends.
#[test]
fn key_update_with_kernel_tls_ends_the_connection_after_the_response() {
    for seed in 0..60 {
        let faults = FaultRates {
            window_len: 3000,
            delay_ms_max: 20,
            late_sends: [0, 500][(seed % 2) as usize],
            ..mild_faults()
        };
        let mut case = Case::with(seed, faults, settings(), true);
        let id = case.world.connect();
        let request = b"GET /file/90000 HTTP/1.1\r\nHost: sim\r\n\r\n";
        case.world.send(id, &FakeTls::hello());
        case.world.send(id, &FakeTls::records(request));
        // The key update is sent during the response, with or without another request, or after the response.
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
        assert!(
            without_date(&read) == expected_response(90_000, false),
            "seed {seed}"
        );
        assert_eq!(case.counters.kernel_tls.value(), 1, "seed {seed}");
        case.turn_for(5_000);
        assert_eq!(case.admission.open(), 0, "seed {seed}");
    }
}

#[test]
fn key_update_without_kernel_tls_keeps_the_connection_open() {
    let mut case = Case::with(1, mild_faults(), settings(), true);
    case.world.set_kernel_tls_failures(1000);
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

/// Sends `bytes` as the first bytes to a TLS listener. Returns the case, and the bytes that the client has received.
fn first_bytes(bytes: &[u8]) -> (Case, Vec<u8>) {
    let mut case = Case::with(1, mild_faults(), settings(), true);
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
fn clear_text_request_to_tls_listener_gets_clear_text_400() {
    let (case, read) = first_bytes(b"GET / HTTP/1.1\r\nHost: sim\r\n\r\n");
    assert!(read.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    assert_eq!(case.counters.clear_text.value(), 1);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn tls_violation_gets_alert_and_close() {
    let (case, read) = first_bytes(b"HELLOOOOO");
    assert_eq!(read, b"ALERT\n");
    assert_eq!(case.counters.handshake_failures.value(), 1);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn incomplete_tls_handshake_times_out() {
    let mut case = Case::with(1, mild_faults(), settings(), true);
    let id = case.world.connect();
    case.world.send(id, b"HEL");
    case.turn_for(50_000);
    assert_eq!(case.admission.open(), 1, "too early");
    case.turn_for(30_000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.handshake_timeouts.value(), 1);
}

#[test]
fn http_10_clients_get_no_interim_responses() {
    let mut case = Case::new(1, mild_faults(), settings());
    let id = case.world.connect();
    case.world
        .send(id, b"GET /hinted/5 HTTP/1.0\r\nHost: sim\r\n\r\n");
    case.turn_until(1, "the end", |world| world.is_over(id));
    assert_eq!(
        without_date(&case.world.read(id)),
        expected_response(5, true)
    );
}

#[test]
fn resets_clock_jumps_and_early_ends_release_connections_without_wrong_bytes() {
    for seed in 0..180 {
        let has_tls = seed >= 120;
        let faults = FaultRates {
            clock_jumps: 30,
            window_len: 3000,
            late_sends: [0, 500, 1000][(seed % 3) as usize],
            delay_ms_max: 300,
            ..mild_faults()
        };
        let mut case = Case::with(seed, faults, settings(), has_tls);
        let clients: Vec<_> = (0..6)
            .map(|at| {
                let (mut requests, answers) = script(&case.world);
                let id = case.world.connect();
                if has_tls {
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
            if has_tls {
                read = FakeTls::read(&read).0;
            }
            let read = without_date(&read);
            assert!(
                answers.starts_with(&read),
                "seed {seed}: client {id}: not a prefix"
            );
        }
    }
}

#[test]
fn header_body_and_idle_timeouts_close_connections() {
    let mut case = Case::new(1, mild_faults(), settings());
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
    assert_eq!(
        without_date(&case.world.read(idle)),
        expected_response(3, false)
    );
    assert_eq!(case.counters.idle_timeouts.value(), 1);
    assert_eq!(case.counters.header_timeouts.value(), 1);
    assert_eq!(case.counters.body_timeouts.value(), 1);
}

#[test]
fn client_that_receives_below_the_minimum_rate_is_disconnected() {
    let settings = WorkerSettings {
        rate_min: 1000,
        ..settings()
    };
    let faults = FaultRates {
        piece_len_max: 1,
        delay_ms_max: 0,
        window_len: 10,
        ..mild_faults()
    };
    let mut case = Case::new(2, faults, settings);
    let slow_client = case.world.connect();
    case.world.send(
        slow_client,
        b"GET /block/100000 HTTP/1.1\r\nHost: sim\r\n\r\n",
    );
    case.turn_for(60_000);
    // About ten bytes per millisecond are fast enough.
    assert_eq!(case.counters.rate_too_low.value(), 0);
    let faults = FaultRates {
        piece_len_max: 50,
        delay_ms_max: 2000,
        window_len: 100,
        ..mild_faults()
    };
    let mut case = Case::new(
        3,
        faults,
        WorkerSettings {
            rate_min: 1000,
            ..self::settings()
        },
    );
    let slow_client = case.world.connect();
    case.world.send(
        slow_client,
        b"GET /block/100000 HTTP/1.1\r\nHost: sim\r\n\r\n",
    );
    case.turn_for(60_000);
    assert_eq!(case.counters.rate_too_low.value(), 1);
    assert_eq!(case.admission.open(), 0);
}

#[test]
fn body_below_the_minimum_rate_is_refused_after_the_grace_period() {
    let settings = WorkerSettings {
        rate_min: 1000,
        rate_grace_ms: 3000,
        ..settings()
    };
    let mut case = Case::new(5, mild_faults(), settings);
    let slow_sender = case.world.connect();
    case.world.send(
        slow_sender,
        b"GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nContent-Length: 90\r\n\r\n",
    );
    for second in 0..8 {
        assert!(case.counters.rate_too_low.value() == 0 || second > 2);
        case.world.send(slow_sender, b"x");
        case.turn_for(1000);
    }
    assert_eq!(case.counters.rate_too_low.value(), 1);
    assert_eq!(case.counters.body_timeouts.value(), 0);
    assert_eq!(case.admission.open(), 0, "it lingers no longer than 2 s");
}

#[test]
fn idle_timeout_starts_at_the_response_even_after_a_slow_head() {
    let settings = WorkerSettings {
        header_timeout_ms: 15_000,
        idle_timeout_ms: 1000,
        ..settings()
    };
    let mut case = Case::new(6, mild_faults(), settings);
    let slow = case.world.connect();
    case.world.send(slow, b"GET /bytes/3 HTTP/1.1\r\nHost:");
    case.turn_for(2500);
    case.world.send(slow, b" sim\r\n\r\n");
    case.turn_for(500);
    assert_eq!(
        without_date(&case.world.read(slow)),
        expected_response(3, false)
    );
    assert_eq!(case.admission.open(), 1);
    case.turn_for(1000);
    assert_eq!(case.admission.open(), 0);
    assert_eq!(case.counters.idle_timeouts.value(), 1);
}

#[test]
fn large_unwanted_body_is_drained_before_the_next_request() {
    const LEN: usize = 1_000_000;
    let faults = FaultRates {
        piece_len_max: LEN + 1000,
        ..mild_faults()
    };
    let mut case = Case::new(7, faults, settings());
    let client_id = case.world.connect();
    let head = format!("GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nContent-Length: {LEN}\r\n\r\n");
    case.world.send(client_id, head.as_bytes());
    for _ in 0..4 {
        case.world.send(client_id, &vec![b'x'; LEN / 4]);
    }
    // The body is dropped, and the request after it is still parsed.
    case.world
        .send(client_id, b"GET /bytes/4 HTTP/1.1\r\nHost: sim\r\n\r\n");
    case.turn_until(7, "the second answer", |world| {
        without_date(&world.read(client_id))
            == [expected_response(3, false), expected_response(4, false)].concat()
    });
}

#[test]
fn malformed_body_does_not_corrupt_the_previous_response() {
    for seed in 0..20 {
        let faults = FaultRates {
            piece_len_max: 100_000,
            delay_ms_max: 300,
            window_len: 1000,
            ..mild_faults()
        };
        let mut case = Case::new(seed, faults, settings());
        let client = case.world.connect();
        let requests = "GET /bytes/10000 HTTP/1.1\r\nHost: sim\r\n\r\n\
                   GET /bytes/3 HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n\r\n";
        case.world.send(client, requests.as_bytes());
        case.turn_until(seed, "the first bytes", |world| {
            !world.read(client).is_empty()
        });
        case.world.send(client, b"no size\r\n");
        case.turn_until(seed, "the end", |world| world.is_over(client));
        let (read, first) = (
            without_date(&case.world.read(client)),
            expected_response(10_000, false),
        );
        assert!(read.starts_with(&first), "seed {seed}");
    }
}

#[test]
fn late_outcome_does_not_reach_a_later_request() {
    for seed in 0..40 {
        let faults = FaultRates {
            delay_ms_max: 100,
            window_len: 100_000,
            ..mild_faults()
        };
        let mut case = Case::new(seed, faults, settings());
        let client = case.world.connect();
        for _ in 0..3 {
            case.world.send(
                client,
                b"GET /twice/3 HTTP/1.1\r\nHost: sim\r\n\r\nGET /deferred/4 HTTP/1.1\r\nHost: sim\r\n\r\n",
            );
        }
        let responses = [expected_response(3, false), expected_response(4, false)].concat();
        case.turn_until(seed, "all answers", |world| {
            without_date(&world.read(client)) == responses.repeat(3)
        });
    }
}

#[test]
fn connections_above_the_limit_are_refused_and_closed_ones_are_released() {
    let settings = WorkerSettings {
        connections_max: 3,
        ..settings()
    };
    let faults = FaultRates {
        late_sends: 500,
        ..mild_faults()
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
fn drain_completes_requests_in_progress() {
    for seed in 0..40 {
        let faults = FaultRates {
            delay_ms_max: 100,
            ..mild_faults()
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
        let read = without_date(&case.world.read(busy));
        let (open, closed) = (
            expected_response(70_000, false),
            expected_response(70_000, true),
        );
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
fn drain_waits_for_holds_until_its_timeout_but_not_for_tasks() {
    for (seed, drops_hold) in [(0, true), (1, false)] {
        let mut case = Case::new(seed, mild_faults(), settings());
        let hold = case.local.tasks.hold();
        let pending_task = std::future::pending::<()>();
        case.local.tasks.spawn(pending_task).detach();
        case.mailbox
            .post(MailboxMessage::Drain { timeout_ms: 5_000 });
        let begun_ms = case.world.now_ms();
        case.turn_for(2_000);
        assert!(!case.worker.drained(), "it is held");
        let hold = (!drops_hold).then_some(hold);
        for _ in 0..100_000 {
            if case.worker.drained() {
                break;
            }
            case.worker.turn();
        }
        assert!(case.worker.drained());
        let took_ms = case.world.now_ms() - begun_ms;
        assert_eq!(took_ms >= 5_000, !drops_hold, "{took_ms} ms");
        drop(hold);
    }
}

/// Settings with which all clients have to send a PROXY header.
fn proxy_protocol_settings() -> WorkerSettings {
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

/// PROXY headers in both versions, with the client's address if they contain one.
fn proxy_headers() -> [(Vec<u8>, Option<&'static str>); 6] {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let mut v6 = [SIGNATURE, &[0x21, 0x21, 0, 36 + 7]].concat();
    v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    v6.extend([0; 20]);
    // A TLV of an unknown type.
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
fn proxy_header_sets_the_client_address() {
    for seed in 0..60 {
        for (header, client) in proxy_headers() {
            let faults = FaultRates {
                piece_len_max: [1, 3, 40, 9000][(seed % 4) as usize],
                ..mild_faults()
            };
            let mut case = Case::new(seed, faults, proxy_protocol_settings());
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
fn invalid_proxy_header_closes_the_connection_without_response() {
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
                ..mild_faults()
            };
            let mut case = Case::new(seed, faults, proxy_protocol_settings());
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
fn limit_per_address_applies_to_proxied_clients_but_not_to_the_proxy() {
    let mut case = Case::new(3, mild_faults(), proxy_protocol_settings());
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
    // This service has the same status for all refusals.
    assert!(case.world.read(third).starts_with(b"HTTP/1.1 400"));
    assert_eq!(case.counters.over_address_max.value(), 1);
    assert_eq!(case.admission.open(), 5);
}

#[test]
fn tcp_health_check_is_no_proxy_header_error() {
    let mut case = Case::new(4, mild_faults(), proxy_protocol_settings());
    let id = case.world.connect();
    case.world.end(id);
    case.turn_until(4, "the end", |world| world.is_over(id));
    assert_eq!(case.counters.proxy_headers_refused.value(), 0);
    assert_eq!(case.admission.open(), 0);
}

/// Makes the worker one of several, which all have its mailbox.
fn set_workers(case: &mut Case, count: usize) {
    let workers = vec![case.mailbox.clone(); count];
    case.mailbox.post(MailboxMessage::Peers(workers.into()));
    case.turn_for(1);
}

/// Runs turns until one panics. Returns the consequences.
fn turn_until_panic(case: &mut Case) -> PanicConsequences {
    let id = case.world.connect();
    case.world
        .send(id, b"GET /panic/0 HTTP/1.1\r\nHost: sim\r\n\r\n");
    for _ in 0..10_000 {
        if panic_policy::recover(|| case.worker.turn()).is_err() {
            return case.worker.recover();
        }
    }
    panic!("no turn has panicked");
}

#[test]
fn panic_costs_the_worker_its_connections_and_nothing_else() {
    for seed in 0..40 {
        let mut case = Case::with(seed, mild_faults(), settings(), false);
        let request = |kind: &str| format!("GET /{kind}/90000 HTTP/1.1\r\nHost: sim\r\n\r\n");
        let before: Vec<usize> = ["deferred", "file", "block", "hinted", "bytes"]
            .map(|kind| {
                let id = case.world.connect();
                case.world.send(id, request(kind).as_bytes());
                id
            })
            .into();
        case.turn_until(seed, "a response in progress", |world| {
            !world.read(before[4]).is_empty()
        });
        let (sender, woken) = std::sync::mpsc::channel();
        let timers = case.local.timers.clone();
        let task = case.local.tasks.spawn(async move {
            timers.sleep(Duration::from_millis(50)).await;
            let _ = sender.send(());
        });
        let consequences = turn_until_panic(&mut case);
        assert_eq!(consequences.pause, PanicPause::None, "seed {seed}");
        assert!(consequences.connections > 0, "seed {seed}");
        assert_eq!(case.admission.open(), 0, "seed {seed}");
        case.turn_until(seed, "the end of all connections", |world| {
            before.iter().all(|id| world.is_over(*id))
        });

        let after = case.world.connect();
        let last = "GET /file/90000 HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n";
        case.world.send(after, last.as_bytes());
        case.turn_until(seed, "the end", |world| world.is_over(after));
        let read = case.world.read(after);
        assert!(
            without_date(&read) == expected_response(90_000, true),
            "seed {seed}"
        );
        case.turn_for(200);
        assert_eq!(woken.try_recv(), Ok(()), "seed {seed}: the task goes on");
        drop(task);
        case.mailbox
            .post(MailboxMessage::Drain { timeout_ms: 1000 });
        case.worker.run();
        assert_eq!(
            (case.admission.open(), case.counters.worker_panics.value()),
            (0, 1)
        );
    }
}

#[test]
fn repeated_panics_suspend_listeners_and_do_not_delay_a_drain() {
    let mut case = Case::with(1, mild_faults(), settings(), false);
    set_workers(&mut case, 2);
    assert_eq!(turn_until_panic(&mut case).pause, PanicPause::None);
    assert_eq!(turn_until_panic(&mut case).pause, PanicPause::Ms(1_000));
    let (start_ms, id) = (case.world.now_ms(), case.world.connect());
    // Connects after the listener has become silent.
    case.turn_for(500);
    let late = case.world.connect();
    for client in [id, late] {
        let request = b"GET /bytes/10 HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n";
        case.world.send(client, request);
    }
    case.turn_until(1, "the end", |world| world.is_over(late));
    assert!(case.world.now_ms() >= start_ms + 1_000, "it has paused");
    assert!(without_date(&case.world.read(late)) == expected_response(10, true));
    assert_eq!(case.counters.worker_panic_pauses.value(), 1);

    assert_eq!(turn_until_panic(&mut case).pause, PanicPause::Ms(2_000));
    let start_ms = case.world.now_ms();
    case.mailbox
        .post(MailboxMessage::Drain { timeout_ms: 60_000 });
    case.worker.run();
    assert!(
        case.world.now_ms() < start_ms + 2_000,
        "the pause ends with the drain"
    );
}

#[test]
fn last_worker_that_accepts_connections_is_not_suspended() {
    let mut case = Case::with(1, mild_faults(), settings(), false);
    set_workers(&mut case, 2);
    assert!(case.admission.suspend_worker(2), "the other worker pauses");
    assert_eq!(turn_until_panic(&mut case).pause, PanicPause::None);
    for _ in 0..3 {
        assert_eq!(turn_until_panic(&mut case).pause, PanicPause::LastWorker);
    }
    assert_eq!(case.counters.worker_panic_pauses.value(), 0);
    case.admission.resume_worker();
    assert!(matches!(
        turn_until_panic(&mut case).pause,
        PanicPause::Ms(_)
    ));
    assert!(
        !case.admission.suspend_worker(2),
        "the other worker is the last one now"
    );
    // After its pause, this worker counts as accepting again.
    case.turn_for(60_000);
    assert!(case.admission.suspend_worker(2));
}

#[test]
fn repeated_panics_do_not_suspend_listeners_that_another_process_shares() {
    let mut case = Case::with(1, mild_faults(), settings(), false);
    set_workers(&mut case, 2);
    let (to_here, shared) = std::sync::mpsc::channel();
    case.mailbox.post(MailboxMessage::ShareListeners(to_here));
    case.turn_for(1);
    assert_eq!(shared.iter().filter(|(_, it)| it.is_ok()).count(), 1);
    for _ in 0..3 {
        let pause = turn_until_panic(&mut case).pause;
        let is_first = case.counters.worker_panics.value() == 1;
        let expected = match is_first {
            true => PanicPause::None,
            false => PanicPause::SharedListeners,
        };
        assert_eq!(pause, expected);
    }
    assert_eq!(case.counters.worker_panic_pauses.value(), 0);

    // The upgrade has failed.
    case.mailbox.post(MailboxMessage::EndSharing);
    case.turn_for(1);
    assert!(matches!(
        turn_until_panic(&mut case).pause,
        PanicPause::Ms(_)
    ));
    assert_eq!(case.counters.worker_panic_pauses.value(), 1);
}

#[test]
fn panic_at_the_end_of_a_drain_keeps_the_rest_of_the_backlog() {
    let mut case = Case::with(1, mild_faults(), settings(), false);
    set_workers(&mut case, 2);
    for _ in 0..2 {
        turn_until_panic(&mut case);
    }
    // The listener is suspended: connections wait until the drain accepts them.
    case.turn_for(500);
    let ids = ["bytes", "panic", "bytes"].map(|kind| {
        let id = case.world.connect();
        let request = format!("GET /{kind}/10 HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n");
        case.world.send(id, request.as_bytes());
        id
    });
    case.mailbox
        .post(MailboxMessage::Drain { timeout_ms: 60_000 });
    assert!(panic_policy::recover(|| case.worker.run()).is_err());
    case.worker.recover();
    case.worker.run();
    case.turn_until(1, "the end", |world| world.is_over(ids[2]));
    assert!(without_date(&case.world.read(ids[2])) == expected_response(10, true));
}

/// The site's own limit is lower than the rate that clients must reach: it is not the client that is slow.
#[test]
fn limit_below_the_minimum_rate_does_not_end_responses() {
    const LEN: usize = 150_000;
    let mut cut = Vec::new();
    for seed in 0..60 {
        let has_tls = seed % 2 == 1;
        let kind = ["block", "file", "segment", "bytes"][seed as usize % 4];
        let strict = WorkerSettings {
            rate_min: RATE.bytes_per_s * 3 / 2,
            rate_grace_ms: 200,
            ..settings()
        };
        let far = FaultRates {
            delay_ms_max: [5, 20][seed as usize / 4 % 2],
            window_len: 1_000_000,
            ..mild_faults()
        };
        let mut case = Case::with(seed, far, strict, has_tls);
        let id = request_paced(&case, kind, LEN, has_tls);
        case.turn_until(seed, "the end", |world| world.is_over(id));
        if case.counters.rate_too_low.value() > 0 {
            cut.push((seed, kind, has_tls, case.world.read(id).len()));
        }
    }
    assert_eq!(cut, []);
}

/// The denial of 10.0.0.0/31 and 192.0.2.0/24.
fn denied_addresses() -> Arc<DeniedAddresses> {
    let prefix = |first: [u8; 4], last: [u8; 4]| DeniedPrefix {
        addresses: first.into()..=last.into(),
        until_s: None,
    };
    Arc::new(DeniedAddresses::new(vec![
        prefix([10, 0, 0, 0], [10, 0, 0, 1]),
        prefix([192, 0, 2, 0], [192, 0, 2, 255]),
    ]))
}

#[test]
fn connections_of_denied_addresses_are_closed() {
    for seed in 0..20 {
        let mut case = Case::new(seed, mild_faults(), settings());
        // The simulator gives the clients the addresses 10.0.0.0, 10.0.0.1 and so on.
        let clients: Vec<usize> = (0..3).map(|_| case.world.connect()).collect();
        case.turn_for(1000);
        assert_eq!(case.admission.open(), 3, "seed {seed}");
        case.mailbox
            .post(MailboxMessage::Deny(denied_addresses(), channel().0));
        case.turn_for(1000);
        assert_eq!(case.admission.open(), 1, "seed {seed}");
        assert!(case.world.is_over(clients[0]) && case.world.is_over(clients[1]));
        assert_eq!(case.counters.connections_denied.value(), 2, "seed {seed}");
        // The list does not concern connections that it has not closed.
        let request = b"GET /bytes/1 HTTP/1.1\r\nHost: sim\r\n\r\n";
        case.world.send(clients[2], request);
        case.turn_until(seed, "an answer", |world| {
            !world.read(clients[2]).is_empty()
        });
    }
}

#[test]
fn clients_of_proxies_are_denied_by_their_own_address() {
    let mut case = Case::new(3, mild_faults(), proxy_protocol_settings());
    // Sockets 0 and 1 have denied addresses.
    let skipped = [case.world.connect(), case.world.connect()];
    case.turn_for(1000);
    case.mailbox
        .post(MailboxMessage::Deny(denied_addresses(), channel().0));
    case.turn_for(1000);
    assert!(skipped.iter().all(|id| case.world.is_over(*id)));
    let request = |case: &Case, client: &str| {
        let id = case.world.connect();
        let line = format!(
            "PROXY TCP4 {client} 198.51.100.1 1 80\r\nGET /peer/0 HTTP/1.1\r\nHost: sim\r\n\r\n"
        );
        case.world.send(id, line.as_bytes());
        id
    };
    let (denied, other) = (request(&case, "192.0.2.9"), request(&case, "192.0.3.9"));
    case.turn_for(5000);
    assert!(case.world.is_over(denied) && case.world.read(denied).is_empty());
    assert!(case.world.read(other).starts_with(b"HTTP/1.1 200"));
    assert_eq!(case.counters.connections_denied.value(), 3);
    assert_eq!(case.admission.open(), 1);
}
