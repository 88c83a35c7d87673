//! The trace context that the server accepts and passes on.

use lowroad_testkit::TempFolder;
use lowroad_testkit::origin::{OriginRequest, TestOrigin};

use crate::support::{TRACE_ID, TRACEPARENT, collector, traced, wait_for_spans};

fn origin() -> TestOrigin {
    TestOrigin::with_response(|_| {
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok".into()
    })
}

fn route(origin: &TestOrigin) -> String {
    format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"",
        origin.url()
    )
}

/// The values of a field, in their order.
fn values<'r>(request: &'r OriginRequest, name: &str) -> Vec<&'r str> {
    let lines = request.head.lines().skip(1);
    let fields = lines.filter_map(|line| line.split_once(": "));
    fields
        .filter(|(field_name, _)| field_name.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn sampled_trace_of_a_client_is_continued_even_at_rate_zero() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let server = traced(&folder, &collector.url(), "sample = 0", &route(&origin));
    let mut client = server.connect();
    client.get(
        "/",
        &format!("{TRACEPARENT}tracestate: a=1\r\ntracestate: b=2\r\n"),
    );
    let spans = wait_for_spans(&collector, 2);
    let request = spans.iter().find(|it| it.span.kind == 2).expect("a server");
    assert_eq!(request.trace_id(), TRACE_ID);
    assert_eq!(request.parent_id(), "b7ad6b7169203331");
    assert_eq!(request.span.trace_state, "a=1,b=2");
    let sent = &origin.requests()[0];
    let attempt = spans.iter().find(|it| it.span.kind == 3).expect("a client");
    let expected = format!("00-{TRACE_ID}-{}-01", attempt.span_id());
    assert_eq!(values(sent, "traceparent"), [&*expected]);
    assert_eq!(values(sent, "tracestate"), ["a=1,b=2"]);
}

#[test]
fn unsampled_trace_of_a_client_is_passed_on_without_spans() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let server = traced(&folder, &collector.url(), "", &route(&origin));
    let mut client = server.connect();
    let parent = format!("00-{TRACE_ID}-b7ad6b7169203331-00");
    client.get(
        "/",
        &format!("traceparent: {parent}\r\ntracestate: a=1\r\n"),
    );
    assert_eq!(values(&origin.requests()[0], "traceparent"), [&*parent]);
    assert_eq!(values(&origin.requests()[0], "tracestate"), ["a=1"]);
    // Of the next request alone.
    client.get("/", "");
    let spans = wait_for_spans(&collector, 2);
    assert!(spans.iter().all(|span| span.trace_id() != TRACE_ID));
}

#[test]
fn request_that_is_not_sampled_says_so_to_the_origin() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let server = traced(&folder, &collector.url(), "sample = 0", &route(&origin));
    server.connect().get("/", "tracestate: a=1\r\n");
    let sent = &origin.requests()[0];
    let parents = values(sent, "traceparent");
    assert_eq!(parents.len(), 1);
    assert!(parents[0].ends_with("-00"), "{}", parents[0]);
    assert!(values(sent, "tracestate").is_empty());
}

#[test]
fn invalid_context_is_replaced() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let server = traced(&folder, &collector.url(), "", &route(&origin));
    let mut client = server.connect();
    let parents = [
        format!("{TRACEPARENT}{TRACEPARENT}"),
        "traceparent: 00-00000000000000000000000000000000-b7ad6b7169203331-01\r\n".into(),
        format!("traceparent: 00-{TRACE_ID}-0000000000000000-01\r\n"),
        format!("traceparent: ff-{TRACE_ID}-b7ad6b7169203331-01\r\n"),
        format!("traceparent: 00-{TRACE_ID}-b7ad6b7169203331-01-x\r\n"),
        "traceparent: \r\n".into(),
    ];
    for parent in &parents {
        client.get("/", &format!("{parent}tracestate: a=1\r\n"));
    }
    let spans = wait_for_spans(&collector, 2 * parents.len());
    assert!(spans.iter().all(|span| span.trace_id() != TRACE_ID));
    for sent in origin.requests() {
        assert_eq!(values(&sent, "traceparent").len(), 1);
        assert!(!sent.head.contains(TRACE_ID));
        assert!(values(&sent, "tracestate").is_empty());
    }
}

#[test]
fn later_version_is_accepted_and_becomes_version_00() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let server = traced(&folder, &collector.url(), "", &route(&origin));
    let parent = format!("traceparent: cc-{TRACE_ID}-b7ad6b7169203331-01-future\r\n");
    server.connect().get("/", &parent);
    let requests = origin.requests();
    let parents = values(&requests[0], "traceparent");
    assert!(
        parents[0].starts_with(&format!("00-{TRACE_ID}-")),
        "{}",
        parents[0]
    );
}

#[test]
fn long_tracestate_is_shortened_and_an_invalid_one_dropped() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let server = traced(&folder, &collector.url(), "", &route(&origin));
    let mut client = server.connect();
    let members: Vec<String> = (0..10)
        .map(|n| format!("k{n}={}", "x".repeat(96)))
        .collect();
    let long = members.join(",");
    assert!(long.len() > 1000 - 10);
    client.get("/", &format!("{TRACEPARENT}tracestate: {long}\r\n"));
    client.get("/", &format!("{TRACEPARENT}tracestate: a=1,=\r\n"));
    let sent = origin.requests();
    assert_eq!(values(&sent[0], "tracestate"), [members[..5].join(",")]);
    assert!(values(&sent[1], "tracestate").is_empty());
    assert!(sent[1].head.contains(TRACE_ID));
}

#[test]
fn context_of_clients_is_replaced_if_it_is_not_accepted() {
    let (folder, collector, origin) = (TempFolder::new(), collector(), origin());
    let keys = "accept_parent = false\nsample = 0";
    let server = traced(&folder, &collector.url(), keys, &route(&origin));
    server
        .connect()
        .get("/", &format!("{TRACEPARENT}tracestate: a=1\r\n"));
    let sent = &origin.requests()[0];
    assert!(!sent.head.contains(TRACE_ID), "{}", sent.head);
    assert!(values(sent, "traceparent")[0].ends_with("-00"));
    assert!(values(sent, "tracestate").is_empty());
}

#[test]
fn context_passes_unchanged_without_traces() {
    let (folder, origin) = (TempFolder::new(), origin());
    let config = format!("[[site]]\nlisten = \"127.0.0.1:0\"\n{}\n", route(&origin));
    let server = lowroad_testkit::TestServer::run(crate::support::PROGRAM, &folder, &config);
    let mut client = server.connect();
    client.get("/", &format!("{TRACEPARENT}tracestate: =\r\n"));
    client.get("/", "");
    let sent = origin.requests();
    assert_eq!(values(&sent[0], "traceparent"), [&TRACEPARENT.trim()[13..]]);
    assert_eq!(values(&sent[0], "tracestate"), ["="]);
    assert!(values(&sent[1], "traceparent").is_empty());
}
