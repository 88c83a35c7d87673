//! The spans of requests, handlers and attempts, with their attributes.

use std::io::Read;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, wait_until};

use crate::support::{PROGRAM, ReceivedSpan, collector, received, traced, wait_for_spans};

fn find<'s>(spans: &'s [ReceivedSpan], name: &str) -> &'s ReceivedSpan {
    let found = spans.iter().find(|it| it.span.name == name);
    found.unwrap_or_else(|| panic!("{name} in {spans:#?}"))
}

#[test]
fn span_of_a_file_has_the_attributes_of_the_semantic_conventions() {
    let (folder, collector) = (TempFolder::new(), collector());
    folder.file("token", "Bearer secret\n");
    let keys = format!(
        "service_name = \"shop\"\n[traces.headers]\nX-Scope = \"a b\"\n[traces.header_files]\n\
         Authorization = \"{}/token\"\n[traces.resource]\n\"deployment.environment.name\" = \"test\"",
        folder.path().display()
    );
    let server = traced(&folder, &collector.url(), &keys, "");
    let mut client = server.connect();
    client.send(
        "GET /small?a=b&sig=secret HTTP/1.1\r\nHost: Example.com:8080\r\nUser-Agent: test/1\r\n\r\n",
    );
    assert_eq!(client.response().status, 200);
    let spans = wait_for_spans(&collector, 1);
    let span = &spans[0];
    for (name, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/small"),
        ("url.query", "a=b&sig=REDACTED"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "5"),
        ("server.address", "example.com"),
        ("server.port", "8080"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test/1"),
        ("lowroad.level", "worker"),
        ("lowroad.cache.outcome", "miss"),
        ("error.type", ""),
        ("http.route", ""),
    ] {
        assert_eq!(span.attribute(name), value, "{name}");
    }
    assert_eq!(span.span.name, "GET");
    assert_eq!(span.span.kind, 2, "a server");
    assert!(span.parent_id().is_empty() && !span.is_error());
    assert!(span.span.end_time_unix_nano >= span.span.start_time_unix_nano);
    assert!(span.span.start_time_unix_nano > 1_700_000_000_000_000_000);
    for (name, value) in [
        ("service.name", "shop"),
        ("deployment.environment.name", "test"),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(span.resource.get(name).map(String::as_str), Some(value));
    }
    let export = &collector.requests()[0];
    assert_eq!(export.target, "/v1/traces");
    assert_eq!(export.field("authorization"), Some("Bearer secret"));
    assert_eq!(export.field("x-scope"), Some("a b"));
}

#[test]
fn stored_response_and_errors_are_described() {
    let (folder, collector) = (TempFolder::new(), collector());
    let server = traced(&folder, &collector.url(), "", "");
    let mut client = server.connect();
    client.get("/small", "");
    client.get("/small", "");
    client.get("/missing", "");
    client.send("BREW /small HTTP/1.1\r\nHost: h\r\n\r\n");
    client.response();
    let spans = wait_for_spans(&collector, 4);
    let values = |name, status| {
        let with_status = spans
            .iter()
            .filter(move |it| it.attribute("http.response.status_code") == status);
        let mut values: Vec<&str> = with_status.map(|it| it.attribute(name)).collect();
        values.sort_unstable();
        values
    };
    assert_eq!(values("lowroad.cache.outcome", "200"), ["hit", "miss"]);
    assert_eq!(values("url.path", "404"), ["/missing"]);
    assert_eq!(values("lowroad.cache.outcome", "405"), ["made"]);
    let brew = spans
        .iter()
        .find(|it| it.attribute("http.request.method_original") == "BREW")
        .expect("an extension method");
    assert_eq!(brew.attribute("http.request.method"), "_OTHER");
    assert_eq!(brew.span.name, "HTTP");
    // An error of the client is none of the server.
    assert!(spans.iter().all(|span| !span.is_error()));
}

#[test]
fn malformed_request_has_a_span() {
    let (folder, collector) = (TempFolder::new(), collector());
    let server = traced(&folder, &collector.url(), "", "");
    let mut client = server.connect();
    client.send("GET /small HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let spans = wait_for_spans(&collector, 1);
    assert_eq!(spans[0].attribute("http.response.status_code"), "400");
    assert_eq!(spans[0].span.name, "HTTP");
}

fn proxied(folder: &TempFolder, collector: &TestOrigin, origin: &str) -> TestServer {
    let route = format!("[[site.route]]\npattern = \"/app/**\"\norigin = {origin}");
    traced(folder, &collector.url(), "", &route)
}

#[test]
fn attempts_at_an_origin_are_client_spans_of_the_request() {
    let (folder, collector) = (TempFolder::new(), collector());
    let origin = TestOrigin::with_response(|_| {
        "HTTP/1.1 404 Not Found\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n".into()
    });
    let server = proxied(&folder, &collector, &format!("\"{}\"", origin.url()));
    assert_eq!(server.get("/app/x?q=1").status, 404);
    let spans = wait_for_spans(&collector, 2);
    let request = find(&spans, "GET /app/**");
    assert_eq!(request.attribute("http.route"), "/app/**");
    assert_eq!(request.attribute("lowroad.level"), "origin");
    let attempt = find(&spans, "GET");
    assert_eq!(attempt.span.kind, 3, "a client");
    assert_eq!(attempt.trace_id(), request.trace_id());
    assert_eq!(attempt.parent_id(), request.span_id());
    let (host, port) = origin.url()[7..].split_once(':').map(own).expect("a port");
    for (name, value) in [
        ("http.request.method", "GET"),
        ("server.address", &*host),
        ("server.port", &*port),
        ("url.full", &*format!("{}/app/x?q=1", origin.url())),
        ("http.response.status_code", "404"),
        ("error.type", "404"),
        ("http.request.resend_count", ""),
    ] {
        assert_eq!(attempt.attribute(name), value, "{name}");
    }
    assert!(attempt.is_error() && !request.is_error());
    // The origin continues the trace of this attempt.
    let expected = format!("00-{}-{}-01", attempt.trace_id(), attempt.span_id());
    let request = &origin.requests()[0];
    assert_eq!(request.field("traceparent"), Some(&*expected));
}

fn own((host, port): (&str, &str)) -> (String, String) {
    (host.to_owned(), port.to_owned())
}

#[test]
fn each_retry_has_its_own_span() {
    let (folder, collector) = (TempFolder::new(), collector());
    // Closes each connection without a response.
    let broken = TestOrigin::start(|_, _| false);
    let good =
        TestOrigin::with_response(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into());
    folder.file("root/small", "hello");
    let route = format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"pool\"\n[[origin]]\nname = \"pool\"\n\
         servers = [\"{}\", {{ url = \"{}\", backup = true }}]\n",
        broken.url(),
        good.url()
    );
    let server = traced(&folder, &collector.url(), "", &route);
    assert_eq!(server.get("/x").status, 200);
    let spans = wait_for_spans(&collector, 3);
    let attempts: Vec<_> = spans.iter().filter(|it| it.span.kind == 3).collect();
    assert_eq!(attempts.len(), 2);
    let (failed, successful) = match attempts[0].is_error() {
        true => (attempts[0], attempts[1]),
        false => (attempts[1], attempts[0]),
    };
    assert_eq!(failed.attribute("error.type"), "lost");
    assert_eq!(failed.attribute("http.request.resend_count"), "");
    assert_eq!(failed.attribute("http.response.status_code"), "");
    assert_eq!(successful.attribute("http.request.resend_count"), "1");
    assert_eq!(successful.attribute("http.response.status_code"), "200");
    let sent = good.requests();
    assert!(
        sent[0]
            .field("traceparent")
            .is_some_and(|it| it.contains(&successful.span_id()))
    );
}

#[test]
fn spans_of_a_request_end_when_its_client_disconnects() {
    let (folder, collector) = (TempFolder::new(), collector());
    // Never answers: waits until the connection is closed.
    let origin = TestOrigin::start(|_, stream| {
        let _ = stream.read(&mut [0]);
        false
    });
    let server = proxied(&folder, &collector, &format!("\"{}\"", origin.url()));
    let mut client = server.connect();
    client.send("GET /app/x HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until("the request", || (origin.count() == 1).then_some(()));
    client.reset();
    let spans = wait_for_spans(&collector, 2);
    let request = find(&spans, "GET /app/**");
    assert_eq!(request.attribute("http.response.status_code"), "499");
    let attempt = find(&spans, "GET");
    for span in [request, attempt] {
        assert_eq!(span.attribute("error.type"), "cancelled");
        assert!(span.is_error());
    }
}

#[test]
fn handler_has_a_span_and_gets_the_context() {
    let (folder, collector) = (TempFolder::new(), collector());
    let script = folder.file(
        "root/cgi-bin/env.sh",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\nX-Context: %s\\n\\n' \"$HTTP_TRACEPARENT\"\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, mode).expect("a mode");
    let route = "[[site.route]]\npattern = \"/cgi-bin/**\"\ncgi = true";
    let server = traced(&folder, &collector.url(), "", route);
    let response = server.get("/cgi-bin/env.sh");
    assert_eq!(response.status, 200);
    let spans = wait_for_spans(&collector, 2);
    let handler = spans.iter().find(|it| it.span.kind == 1).expect("internal");
    let request = find(&spans, "GET /cgi-bin/**");
    assert!(handler.span.name.contains("cgi"), "{}", handler.span.name);
    assert_eq!(handler.parent_id(), request.span_id());
    assert_eq!(handler.attribute("http.response.status_code"), "200");
    let expected = format!("00-{}-{}-01", handler.trace_id(), handler.span_id());
    assert_eq!(response.field("x-context"), Some(&*expected));
}

#[test]
fn requests_equal_spans_under_load() {
    const REQUESTS: usize = 2_000;
    let (folder, collector) = (TempFolder::new(), collector());
    let server = traced(&folder, &collector.url(), "", "");
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for number in 0..REQUESTS {
        assert_eq!(clients[number % 4].get("/small", "").status, 200);
    }
    let spans = wait_for_spans(&collector, REQUESTS);
    assert_eq!(spans.len(), REQUESTS);
    let ids: std::collections::HashSet<_> = spans.iter().map(ReceivedSpan::trace_id).collect();
    assert_eq!(ids.len(), REQUESTS);
    assert_eq!(received(&collector).len(), REQUESTS);
}

#[test]
fn spans_are_sent_over_tls_to_the_authority_that_is_configured() {
    let (folder, front_folder, collector) = (TempFolder::new(), TempFolder::new(), collector());
    // A server with TLS in front of the collector.
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let made = made.expect("a certificate");
    folder.file("ca.pem", made.cert.pem());
    front_folder.file("cert.pem", made.cert.pem());
    front_folder.file("key.pem", made.signing_key.serialize_pem());
    let front_config = format!(
        "[[site]]\n[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n\
         [site.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n",
        collector.url()
    );
    let front = TestServer::run(PROGRAM, &front_folder, &front_config);
    let url = format!("https://{}", front.address());
    let untrusted = traced(&folder, &url, "", "");
    untrusted.get("/small");
    let line = untrusted.wait_for_error_line("spans wait up to queue_max");
    assert!(line.contains("certificate"), "{line}");
    drop(untrusted);
    let keys = format!("ca = \"{}/ca.pem\"", folder.path().display());
    let server = traced(&folder, &url, &keys, "");
    let mut client = server.connect();
    client.get("/small", "");
    wait_for_spans(&collector, 1);
    // On the same connection.
    client.get("/small", "");
    wait_for_spans(&collector, 2);
}
