//! Pages and their database.

use super::*;

#[test]
fn pages_are_made_without_a_database_too() {
    let mut net = Net::new("<p>{{ request.params.name or 'nobody' }} & {{ 1 + 2 }}");
    let answer = net.ask("GET /page.lrp?name=%3Cx%3E", "");
    assert!(
        head(&answer).contains("Content-Type: text/html; charset=utf-8"),
        "{answer}"
    );
    assert_eq!(body(&answer), "<p>&lt;x&gt; & 3");
    let answer = net.ask("OPTIONS /page.lrp", "");
    assert_eq!(body(&answer), "<p>nobody & 3", "as in `serve`");
    let answer = net.ask("HEAD /page.lrp", "");
    assert!(answer.contains("Content-Length: 13\r\n"), "{answer}");
    assert_eq!(body(&answer), "");
}

#[test]
fn a_page_waits_for_the_database_and_fails_without_it() {
    let mut net = Net::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.connects, 1);
    assert!(net.send(request).is_empty());
    // The client's next request waits.
    assert_eq!(net.web.input(&mut net.calls, VISITOR, request), 0);
    let link = ConnectionId {
        index: 11,
        generation: 0,
    };
    net.web.ended(&mut net.calls, link, ConnectionEnd::Reset);
    let sent = net.calls.sent.remove(&VISITOR.index).expect("an answer");
    assert!(
        sent.starts_with(b"HTTP/1.1 503 "),
        "{}",
        String::from_utf8_lossy(&sent)
    );
    assert_eq!(net.calls.resumed, [VISITOR]);
    assert!(
        net.web
            .take_problem()
            .expect("a word")
            .contains("192.0.2.1:3306")
    );
}

/// A packet of the database server.
fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_le_bytes();
    [&len[..3], &[sequence], payload].concat()
}

/// The database server accepts the login.
fn log_in(net: &mut Net, link: ConnectionId) {
    const OK: [u8; 7] = [0, 0, 0, 2, 0, 0, 0];
    let mut greeting = b"\x0a8.0.40\0\x01\0\0\x0001234567\0\xff\xf7\x2d\x02\0\x28\x01\x15".to_vec();
    greeting.extend([0; 10]);
    greeting.extend(b"890123456789\0mysql_native_password\0");
    net.web.input(&mut net.calls, link, &packet(0, &greeting));
    let mut sequence = 2;
    // Any number of settings packets may follow the login.
    while net.calls.sent.remove(&link.index).is_some() {
        net.web.input(&mut net.calls, link, &packet(sequence, &OK));
        sequence = 1;
    }
}

#[test]
fn a_database_that_ends_each_login_is_not_asked_again_at_once() {
    let mut net = Net::new("");
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
        // Doubled each time, up to 5 seconds.
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
fn a_page_fails_at_once_while_the_database_is_away() {
    let mut net = Net::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let link = |index| ConnectionId {
        index,
        generation: 0,
    };
    let mut now_us = 1_000_000;
    let set_now = |net: &mut Net, mono_us| {
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
    // The eighth failure: the delay has reached its limit.
    net.web
        .ended(&mut net.calls, link(18), ConnectionEnd::Reset);
    assert_eq!(net.web.tick(&mut net.calls), Some(now_us + 5_000_000));
    assert!(net.web.take_problem().is_some());
    let fails = |net: &mut Net| {
        let answer = net.ask("GET /page.lrp", "");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("\r\nRetry-After: 1\r\n"), "{answer}");
    };
    fails(&mut net);
    assert_eq!(net.web.take_problem(), None, "the console has it already");
    // A request brings the next attempt forward.
    assert_eq!(net.web.tick(&mut net.calls), Some(now_us + 1_000_000));
    set_now(&mut net, now_us + 1_000_000);
    net.web.tick(&mut net.calls);
    assert_eq!(net.calls.connects, 9);
    // The same while an attempt is running, and after it timed out.
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

/// Otherwise pages of several clients would wait for one attempt after another, until they time out (504).
#[test]
fn a_silent_database_fails_all_pages_with_the_first_attempt() {
    let mut net = Net::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    net.web.tick(&mut net.calls);
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    // The first client waits for the attempt that is running.
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
        // The first attempt has timed out; the second is still running.
        mono_us: 6_000_000,
        unix_s: 784_111_800,
    });
    net.web.tick(&mut net.calls);
    for visitor in [VISITOR, other] {
        let sent = net.calls.sent.remove(&visitor.index).expect("an answer");
        assert!(sent.starts_with(b"HTTP/1.1 503 "));
    }
}

#[test]
fn the_log_has_the_reason_of_a_failed_page() {
    let mut net = Net::new("{{ 1 // 0 }}{{ query('SELECT 1') }}");
    assert!(net.ask("GET /page.lrp", "").starts_with("HTTP/1.1 500 "));
    let log = MachineView(None).log(&net.web.journal);
    let mut lines = log.lines();
    let reason = lines.next().expect("a line");
    let begin = "192.0.2.9 - - [06/Nov/1994:08:50:00 +0000] error: page.lrp:1: ";
    assert!(reason.starts_with(begin), "{log}");
    // The failure's line precedes the request's.
    assert!(lines.next().expect("a line").contains(" 500 "), "{log}");
    // The database's message, and its absence.
    let mut net = Net::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    net.web.tick(&mut net.calls);
    let link = ConnectionId {
        index: 11,
        generation: 0,
    };
    net.web.ended(&mut net.calls, link, ConnectionEnd::Reset);
    for _ in 0..2 {
        assert!(net.ask("GET /page.lrp", "").starts_with("HTTP/1.1 503 "));
    }
    let log = MachineView(None).log(&net.web.journal);
    let reason = "error: page.lrp: database server 192.0.2.1:3306: the connection was refused";
    assert_eq!(log.matches(reason).count(), 2, "{log}");
}

#[test]
fn a_page_that_comes_when_the_database_was_left_is_not_there() {
    let mut net = Net::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let whole = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    let (begun, rest) = whole.split_at(20);
    // A client may complete the request that it has begun.
    assert!(net.send(begun).is_empty());
    net.web.end_idle(&mut net.calls);
    let request = [begun, rest].concat();
    let answers = net.send(&request);
    assert!(answers[0].starts_with("HTTP/1.1 503 "), "{answers:?}");
    // The shutdown is no problem for the operator.
    assert_eq!(net.web.take_problem(), None);
}

#[test]
fn visitors_that_have_gone_keep_no_place_in_the_queue() {
    let mut net = Net::new("{% for x in query('SELECT 1') %}{{ x }}{% endfor %}");
    let request = b"GET /page.lrp HTTP/1.1\r\nHost: a\r\n\r\n";
    let opened = ConnectionInitiator {
        peer: PEER,
        port: 80,
        is_active_open: false,
    };
    let ask = |net: &mut Net, index: u32, generation: u32| {
        let id = ConnectionId { index, generation };
        net.web.opened(&mut net.calls, id, opened);
        net.web.input(&mut net.calls, id, request);
        id
    };
    // All tasks are busy, waiting for a silent database.
    for generation in 0..5000 {
        // 64 tasks stay busy; later requests use the last slot one after the other.
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
fn where_memory_is_little_fewer_pages_are_made_at_once() {
    let site = site("");
    let count = |memory_len| {
        let pages = PageEngine::new(&site, [1; 32], memory_len, 1).expect("pages");
        let mut counters = pages.counters();
        let free = counters.find(|(name, _)| *name == "pages_max");
        free.expect("a counter").1
    };
    assert_eq!(count(16 << 20), 64);
    assert!(count(1 << 20) <= 4);
    // One page at a time, even without any memory to spare.
    assert_eq!(count(0), 1);
}
