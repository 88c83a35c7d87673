//! Dynamic pages and their database connections.

use super::*;

#[test]
fn pages_without_queries_need_no_database() {
    let mut net = TestService::new("<p>{{ request.params.name or 'nobody' }} & {{ 1 + 2 }}");
    let answer = net.send_request("GET /page.lrp?name=%3Cx%3E", "");
    assert!(
        head(&answer).contains("Content-Type: text/html; charset=utf-8"),
        "{answer}"
    );
    assert_eq!(body(&answer), "<p>&lt;x&gt; & 3");
    let answer = net.send_request("OPTIONS /page.lrp", "");
    assert_eq!(body(&answer), "<p>nobody & 3", "as in `serve`");
    let answer = net.send_request("HEAD /page.lrp", "");
    assert!(answer.contains("Content-Length: 13\r\n"), "{answer}");
    assert_eq!(body(&answer), "");
}

#[test]
fn page_waits_for_database_login_and_gets_503_after_its_loss() {
    let mut net = TestService::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.connects, 1);
    assert!(net.send(request).is_empty());
    // The client's next request is not read yet.
    assert_eq!(net.web.input(&mut net.calls, CLIENT, request), 0);
    let link = ConnectionId {
        index: 11,
        generation: 0,
    };
    net.web.ended(&mut net.calls, link, ConnectionEnd::Reset);
    let sent = net.calls.sent.remove(&CLIENT.index).expect("an answer");
    assert!(
        sent.starts_with(b"HTTP/1.1 503 "),
        "{}",
        String::from_utf8_lossy(&sent)
    );
    assert_eq!(net.calls.resumed, [CLIENT]);
    assert!(
        net.web
            .take_problem()
            .expect("a word")
            .contains("192.0.2.1:3306")
    );
}

/// A packet from the database server.
fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_le_bytes();
    [&len[..3], &[sequence], payload].concat()
}

/// The database server sends its greeting and accepts the login.
fn log_in(net: &mut TestService, link: ConnectionId) {
    const OK: [u8; 7] = [0, 0, 0, 2, 0, 0, 0];
    let mut greeting = b"\x0a8.0.40\0\x01\0\0\x0001234567\0\xff\xf7\x2d\x02\0\x28\x01\x15".to_vec();
    greeting.extend([0; 10]);
    greeting.extend(b"890123456789\0mysql_native_password\0");
    net.web.input(&mut net.calls, link, &packet(0, &greeting));
    let mut sequence = 2;
    // The client may send several settings packets after the login.
    while net.calls.sent.remove(&link.index).is_some() {
        net.web.input(&mut net.calls, link, &packet(sequence, &OK));
        sequence = 1;
    }
}

#[test]
fn reconnect_delay_doubles_after_each_lost_login() {
    let mut net = TestService::new("");
    let mut now_us = 1_000_000;
    for tries in 1..10 {
        net.web.tick(&mut net.calls);
        assert_eq!(net.calls.connects, tries);
        let link = ConnectionId {
            index: 10 + tries,
            generation: 0,
        };
        log_in(&mut net, link);
        assert!(net.calls.aborted.is_empty());
        net.web.ended(&mut net.calls, link, ConnectionEnd::Reset);
        let due_us = net.web.tick(&mut net.calls).expect("another try");
        assert_eq!(net.calls.connects, tries);
        // The delay is doubled each time, up to 5 seconds.
        let wait_us = (100_000 << (tries - 1)).min(5_000_000);
        assert_eq!(due_us, now_us + wait_us);
        now_us = due_us;
        net.web.set_now(CurrentTime {
            mono_us: now_us,
            unix_s: 784_111_800,
        });
    }
}

#[test]
fn page_gets_503_immediately_while_database_is_unreachable() {
    let mut net = TestService::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let link = |index| ConnectionId {
        index,
        generation: 0,
    };
    let mut now_us = 1_000_000;
    let set_now = |net: &mut TestService, mono_us| {
        net.web.set_now(CurrentTime {
            mono_us,
            unix_s: 784_111_800,
        });
    };
    for tries in 1..8 {
        net.web.tick(&mut net.calls);
        assert_eq!(net.calls.connects, tries);
        net.web
            .ended(&mut net.calls, link(10 + tries), ConnectionEnd::Reset);
        now_us += 5_000_000;
        set_now(&mut net, now_us);
    }
    net.web.tick(&mut net.calls);
    // After the eighth failure the delay has reached its maximum.
    net.web
        .ended(&mut net.calls, link(18), ConnectionEnd::Reset);
    assert_eq!(net.web.tick(&mut net.calls), Some(now_us + 5_000_000));
    assert!(net.web.take_problem().is_some());
    let fails = |net: &mut TestService| {
        let answer = net.send_request("GET /page.lrp", "");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("\r\nRetry-After: 1\r\n"), "{answer}");
    };
    fails(&mut net);
    assert_eq!(net.web.take_problem(), None, "the console has it already");
    // A request shortens the delay of the next attempt.
    assert_eq!(net.web.tick(&mut net.calls), Some(now_us + 1_000_000));
    set_now(&mut net, now_us + 1_000_000);
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.connects, 9);
    // The same applies while an attempt is pending, and after its timeout.
    fails(&mut net);
    set_now(&mut net, now_us + 6_000_000);
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.aborted, [link(19)]);
    fails(&mut net);
    set_now(&mut net, now_us + 7_000_000);
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.connects, 10);
    log_in(&mut net, link(20));
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(net.send(request).is_empty(), "the database is asked again");
}

/// Otherwise pages of several clients would wait for one attempt after another, until their timeout (504).
#[test]
fn login_timeout_fails_all_waiting_pages() {
    let mut net = TestService::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    net.web.tick(&mut net.calls);
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    // The first client waits for the pending attempt.
    assert!(net.send(request).is_empty());
    let other = ConnectionId {
        index: 4,
        generation: 0,
    };
    let opened = ConnectionInitiator {
        peer: PEER,
        port: 80,
        is_active_open: false,
    };
    net.web.opened(&mut net.calls, other, opened);
    net.web.set_now(CurrentTime {
        mono_us: 4_000_000,
        unix_s: 784_111_800,
    });
    assert_eq!(net.web.input(&mut net.calls, other, request), request.len());
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.connects, 2);
    net.web.set_now(CurrentTime {
        // The first attempt has timed out; the second is still pending.
        mono_us: 6_000_000,
        unix_s: 784_111_800,
    });
    net.web.tick(&mut net.calls);
    for visitor in [CLIENT, other] {
        let sent = net.calls.sent.remove(&visitor.index).expect("an answer");
        assert!(sent.starts_with(b"HTTP/1.1 503 "));
    }
}

#[test]
fn reason_of_failed_page_is_logged() {
    let mut net = TestService::new("{{ 1 // 0 }}{{ query('SELECT 1') }}");
    assert!(
        net.send_request("GET /page.lrp", "")
            .starts_with("HTTP/1.1 500 ")
    );
    let log = MachineView(None).log(&net.web.journal);
    let mut lines = log.lines();
    let reason = lines.next().expect("a line");
    let begin = "192.0.2.9 - - [06/Nov/1994:08:50:00 +0000] error: page.lrp:1: ";
    assert!(reason.starts_with(begin), "{log}");
    // The line with the reason precedes that of the request.
    assert!(lines.next().expect("a line").contains(" 500 "), "{log}");
    // The reason of an unreachable database is logged for each request.
    let mut net = TestService::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    net.web.tick(&mut net.calls);
    let link = ConnectionId {
        index: 11,
        generation: 0,
    };
    net.web.ended(&mut net.calls, link, ConnectionEnd::Reset);
    for _ in 0..2 {
        assert!(
            net.send_request("GET /page.lrp", "")
                .starts_with("HTTP/1.1 503 ")
        );
    }
    let log = MachineView(None).log(&net.web.journal);
    let reason = "error: page.lrp: database server 192.0.2.1:3306: the connection was refused";
    assert_eq!(log.matches(reason).count(), 2, "{log}");
}

#[test]
fn page_during_shutdown_without_database_gets_503() {
    let mut net = TestService::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let whole = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    let (begun, rest) = whole.split_at(20);
    // A client may complete a request if its first part was received before the shutdown.
    assert!(net.send(begun).is_empty());
    net.web.begin_draining(&mut net.calls);
    let request = [begun, rest].concat();
    let answers = net.send(&request);
    assert!(answers[0].starts_with("HTTP/1.1 503 "), "{answers:?}");
    // The shutdown is not reported as a problem.
    assert_eq!(net.web.take_problem(), None);
}

#[test]
fn closed_connections_are_removed_from_the_page_queue() {
    let mut net = TestService::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    let opened = ConnectionInitiator {
        peer: PEER,
        port: 80,
        is_active_open: false,
    };
    let ask = |net: &mut TestService, index: u32, generation: u32| {
        let id = ConnectionId { index, generation };
        net.web.opened(&mut net.calls, id, opened);
        net.web.input(&mut net.calls, id, request);
        id
    };
    // All tasks are busy: they wait for a database that does not respond.
    for generation in 0..5000 {
        // 64 requests keep the tasks busy; later ones use the last connection slot one after another.
        let index = if generation < 63 { generation } else { 63 };
        let id = ask(&mut net, index, generation);
        if generation >= 64 {
            net.web.ended(&mut net.calls, id, ConnectionEnd::Reset);
        }
    }
    ask(&mut net, 63, 5000);
    assert_eq!(net.web.counters[UnikernelCounter::PagesRefused], 0);
    assert_eq!(net.calls.sent.len(), 0);
}

#[test]
fn page_concurrency_is_limited_by_memory() {
    let site = site("");
    let count = |memory_len| {
        let pages = PageEngine::new(&site, [1; 32], memory_len, 1).expect("pages");
        let mut counters = pages.counters();
        let free = counters.find(|(name, _)| *name == "pages_max");
        free.expect("a counter").1
    };
    assert_eq!(count(16 << 20), 64);
    assert!(count(1 << 20) <= 4);
    // One page at a time is possible even without spare memory.
    assert_eq!(count(0), 1);
}
