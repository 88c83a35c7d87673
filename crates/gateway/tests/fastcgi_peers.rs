//! FastCGI servers with various behavior: multiplexing, dying, hanging, or sending garbage.

mod cgi_support;
mod fastcgi_support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use lowroad_config::{FastCgiConfig, RouteConfig, SymlinkPolicy, UpstreamAddress};
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::FastCgiServers;
use lowroad_handler::ResponseContent;
use lowroad_http::status::StatusCode;
use tokio::sync::mpsc;

use cgi_support::{
    Notices, collect_response, fail, fastcgi_route, fetch, get, post, runtime, send_request,
    send_request_on, until,
};
use fastcgi_support::{
    ABORT, BEGIN, GET_VALUES, Peer, Responder, STDIN, STDOUT, VALUES, end, local, record,
    start_local,
};

/// No file is accessed, because a front controller is configured.
const ROOT: &str = "/srv";

fn handler(responder: &Responder) -> Arc<FastCgiHandler> {
    handler_with(responder, &Notices::default(), |_, _| {})
}

fn handler_with(
    responder: &Responder,
    notices: &Notices,
    change: impl FnOnce(&mut RouteConfig, &mut FastCgiConfig),
) -> Arc<FastCgiHandler> {
    handler_of(&FastCgiServers::new(&[local()]), responder, notices, change)
}

fn handler_of(
    servers: &FastCgiServers,
    responder: &Responder,
    notices: &Notices,
    change: impl FnOnce(&mut RouteConfig, &mut FastCgiConfig),
) -> Arc<FastCgiHandler> {
    let (mut route, mut fastcgi) = fastcgi_route("/**", UpstreamAddress::Tcp(responder.address));
    fastcgi.script = Some("/index.php".to_string());
    change(&mut route, &mut fastcgi);
    let (notice, symlinks) = (notices.notice(), SymlinkPolicy::Beneath);
    let handler = FastCgiHandler::new(&route, &fastcgi, symlinks, servers, notice);
    Arc::new(handler)
}

fn request() -> lowroad_handler::HandlerRequest {
    get(Path::new(ROOT), "/x")
}

/// Responds to each request with the number of the connection, and ignores FCGI_GET_VALUES.
async fn answer_numbers(mut peer: Peer) {
    while let Some((id, _)) = peer.request().await {
        let number = peer.number.to_string();
        if !peer.respond(id, &number).await {
            return;
        }
    }
}

#[test]
fn connection_is_reused() {
    runtime().block_on(async {
        let responder = Responder::start(answer_numbers).await;
        let handler = handler(&responder);
        for _ in 0..50 {
            assert_eq!(fetch(&handler, request()).await.body, "0");
        }
        // One more connection is used for FCGI_GET_VALUES.
        assert!(responder.connections() <= 2);
    });
}

/// With `script_root`, scripts are recognized by name only.
#[test]
fn scripts_with_script_root_are_not_looked_up_locally() {
    runtime().block_on(async {
        let responder = Responder::start(answer_numbers).await;
        let servers = FastCgiServers::new(&[local()]);
        let notices = Notices::default();
        let handler = handler_of(&servers, &responder, &notices, |_, fastcgi| {
            fastcgi.script = None;
            fastcgi.script_root = Some("/var/www/html".into());
        });
        for path in ["/a.php", "/a.php/info", "/folder/"] {
            let answer = fetch(&handler, get(Path::new(ROOT), path)).await;
            assert_eq!(answer.status, 200, "{path}");
        }
        // By its name, this is not a script.
        let failure = fail(&handler, get(Path::new(ROOT), "/style.css")).await;
        assert_eq!(failure.status, StatusCode::NOT_FOUND);
    });
}

/// A script may keep running after its response (`fastcgi_finish_request()`), and a process may end after any request
/// (`pm.max_requests`), so by default no connection is used twice.
#[test]
fn connections_are_not_reused_by_default() {
    runtime().block_on(async {
        for works_on in [true, false] {
            let responder = Responder::start(move |mut peer: Peer| async move {
                if let Some((id, _)) = peer.request().await {
                    let number = peer.number.to_string();
                    peer.respond(id, &number).await;
                    // The script keeps running, so the server does not close the connection.
                    if works_on {
                        std::future::pending::<()>().await;
                    }
                }
            })
            .await;
            let change = |_: &mut RouteConfig, fastcgi: &mut FastCgiConfig| {
                fastcgi.keeps_connections = false
            };
            let handler = handler_with(&responder, &Notices::default(), change);
            let mut numbers = Vec::new();
            for turn in 0..20 {
                // Also requests that are not idempotent: none of them may fail.
                let request = match turn % 2 {
                    0 => request(),
                    _ => post(Path::new(ROOT), "/x", b"body"),
                };
                let got = fetch(&handler, request).await;
                assert_eq!(got.status, 200, "{works_on} {turn}");
                numbers.push(got.body);
            }
            // All numbers are distinct, so each request had its own connection.
            numbers.sort();
            numbers.dedup();
            assert_eq!(numbers.len(), 20, "{works_on}");
        }
    });
}

#[test]
fn pooled_connection_moves_between_workers() {
    runtime().block_on(async {
        let responder = Responder::start(answer_numbers).await;
        // Two workers, which must both get the same connection.
        let servers = FastCgiServers::new(&[local(), start_local()]);
        let handler = handler_of(&servers, &responder, &Notices::default(), |_, _| {});
        for turn in 0..50 {
            let response = send_request_on(&handler, turn % 2, request())
                .await
                .expect("it answers");
            assert_eq!(collect_response(response).await.body, "0");
        }
    });
}

#[test]
fn workers_share_fewer_connections_than_workers() {
    runtime().block_on(async {
        let responder = Responder::start(answer_numbers).await;
        let servers = FastCgiServers::new(&[local(), start_local(), start_local()]);
        // There are fewer connections than workers, so connections have to move between workers.
        let change = |_: &mut RouteConfig, fastcgi: &mut FastCgiConfig| fastcgi.connections_max = 2;
        let handler = handler_of(&servers, &responder, &Notices::default(), change);
        let tasks: Vec<_> = (0..60)
            .map(|number| {
                let handler = handler.clone();
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let response = send_request_on(&handler, number % 3, request()).await;
                        assert_eq!(response.expect("it answers").status, StatusCode::OK);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
}

#[test]
fn stale_connection_is_replaced_for_idempotent_requests_only() {
    runtime().block_on(async {
        // Each connection answers one request, reads another one, and is closed.
        let responder = Responder::start(async |mut peer: Peer| {
            if let Some((id, _)) = peer.request().await {
                let number = peer.number.to_string();
                peer.respond(id, &number).await;
                peer.request().await;
            }
        })
        .await;
        let handler = handler(&responder);
        let root = Path::new(ROOT);
        for _ in 0..10 {
            assert_eq!(fetch(&handler, request()).await.status, 200);
        }
        // Requests that are not idempotent are not retried.
        let mut failures = 0;
        for _ in 0..10 {
            match send_request(&handler, post(root, "/x", b"")).await {
                Ok(response) => assert_eq!(response.status, StatusCode::OK),
                Err(failure) => {
                    assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
                    failures += 1;
                }
            }
        }
        // Some of the POST requests were sent on a closed connection.
        assert!(failures > 0);
    });
}

#[test]
fn server_closing_after_each_response_causes_no_failure() {
    runtime().block_on(async {
        let responder = Responder::start(async |mut peer: Peer| {
            if let Some((id, body)) = peer.request().await {
                peer.respond(id, &body.len().to_string()).await;
            }
        })
        .await;
        let handler = handler(&responder);
        for _ in 0..50 {
            assert_eq!(fetch(&handler, request()).await.body, "0");
        }
    });
}

#[test]
fn garbage_and_silence_are_502_and_504() {
    let start = record(STDOUT, 1, b"Content-Type: text/plain\r\n\r\nhalf");
    let whole_head = b"Content-Type: text/plain\r\n\r\n";
    // The bytes that the server sends, the status code for the client, and a part of the message for the operator.
    for (bytes, status, words) in [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            502,
            "invalid FastCGI record",
        ),
        (Vec::new(), 502, "closed the connection"),
        (record(STDOUT, 2, whole_head), 502, "unexpected record"),
        (record(VALUES, 0, b""), 502, "unexpected record"),
        (record(STDOUT, 1, b"no head\n\n"), 502, "no colon"),
        (end(1, 0), 502, "without a head"),
        (end(1, 2), 503, "overloaded"),
        (end(1, 3), 502, "does not support the responder role"),
        (start[..20].to_vec(), 502, "closed the connection"),
    ] {
        runtime().block_on(async {
            let shown = bytes.escape_ascii().to_string();
            let responder = Responder::start(move |mut peer: Peer| {
                let bytes = bytes.clone();
                async move {
                    if peer.request().await.is_some() {
                        peer.send(&bytes).await;
                    }
                }
            })
            .await;
            let failure = fail(&handler(&responder), request()).await;
            assert_eq!(failure.status.code(), status, "{shown}: {failure:?}");
            assert!(failure.detail.contains(words), "{shown}: {failure:?}");
        });
    }
    runtime().block_on(async {
        let responder =
            Responder::start(async |mut peer: Peer| while peer.record().await.is_some() {}).await;
        // Shorter than the default, because the test waits for it.
        let change = |route: &mut RouteConfig, _: &mut FastCgiConfig| route.timeout_ms = 200;
        let handler = handler_with(&responder, &Notices::default(), change);
        let failure = fail(&handler, request()).await;
        assert_eq!(failure.status, StatusCode::GATEWAY_TIMEOUT);
    });
}

#[test]
fn response_stalled_after_head_is_truncated_by_timeout() {
    runtime().block_on(async {
        let responder = Responder::start(async |mut peer: Peer| {
            if peer.request().await.is_some() {
                let head = b"Content-Type: text/plain\r\n\r\nhalf";
                peer.send(&record(STDOUT, 1, head)).await;
                // Waits for another record, so the connection stays open.
                peer.record().await;
            }
        })
        .await;
        let notices = Notices::default();
        // The server keeps the connection open, so only the timeout ends the response.
        let change = |route: &mut RouteConfig, _: &mut FastCgiConfig| route.timeout_ms = 300;
        let handler = handler_with(&responder, &notices, change);
        let answer = fetch(&handler, request()).await;
        assert_eq!((answer.body.as_str(), answer.cut), ("half", true));
        notices.wait_for("300 ms").await;
    });
}

/// The end of the output completes the response; FCGI_END_REQUEST only reports how the request ended (FastCGI 1.0
/// §5.1).
#[test]
fn empty_stdout_record_completes_response() {
    let head = b"Content-Type: text/plain\r\n\r\n";
    // Longer than one read of the connection.
    let long = "x".repeat(60_000);
    for (parts, is_whole) in [
        // The contents of FCGI_STDOUT records; an empty one ends the output. FCGI_END_REQUEST is never sent.
        (&["all", ""][..], true),
        (&["a", "ll", ""], true),
        (&["", "all", ""], true),
        (&[&long, &long, ""], true),
        (&["half"], false),
        (&["", "half"], false),
        (&[&long, &long], false),
    ] {
        for keeps_connections in [true, false] {
            runtime().block_on(async {
                let mut bytes = record(STDOUT, 1, head);
                for part in parts {
                    bytes.extend(record(STDOUT, 1, part.as_bytes()));
                }
                let responder = Responder::start(move |mut peer: Peer| {
                    let bytes = bytes.clone();
                    async move {
                        if peer.request().await.is_some() {
                            peer.send(&bytes).await;
                        }
                    }
                })
                .await;
                let change = |_: &mut RouteConfig, fastcgi: &mut FastCgiConfig| {
                    fastcgi.keeps_connections = keeps_connections;
                };
                let handler = handler_with(&responder, &Notices::default(), change);
                // Repeated, because a connection that the server has closed must not be reused.
                for _ in 0..3 {
                    match send_request(&handler, request()).await {
                        Ok(response) => {
                            let got = collect_response(response).await;
                            assert_eq!(got.cut, !is_whole, "{}", parts.len());
                            if is_whole {
                                assert_eq!(got.body, parts.concat());
                            }
                        }
                        Err(failure) => assert!(!is_whole, "{failure:?}"),
                    }
                }
            });
        }
    }
}

#[test]
fn requests_beyond_connection_and_concurrency_limits() {
    runtime().block_on(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        let responder = Responder::start(move |mut peer: Peer| {
            let tell = tell.clone();
            async move {
                while peer.request().await.is_some() {
                    let _ = tell.send(());
                }
            }
        })
        .await;
        let change = |route: &mut RouteConfig, fastcgi: &mut FastCgiConfig| {
            // Two requests are permitted, but only one connection; the third request exceeds the limit.
            route.concurrency_max = 2;
            route.timeout_ms = 1_000;
            fastcgi.connections_max = 1;
        };
        let handler = handler_with(&responder, &Notices::default(), change);
        let asking = handler.clone();
        let first = tokio::spawn(async move { fail(&asking, request()).await });
        told.recv().await.expect("a request");
        let asking = handler.clone();
        let second = tokio::spawn(async move { fail(&asking, request()).await });
        // If the second request has not begun yet, it is the one that is refused. The other one may or may not get the
        // connection, since the first is cancelled at about the time of its timeout.
        let third = fail(&handler, request()).await;
        let all = [
            first.await.expect("ended"),
            second.await.expect("ended"),
            third,
        ];
        let refused = all.iter().filter(|one| one.detail.contains("concurrency"));
        assert_eq!(refused.count(), 1, "{all:?}");
        assert!(all.iter().all(|one| matches!(one.status.code(), 503 | 504)));
        assert!(responder.connections() <= 2);
    });
}

#[test]
fn cancelled_request_closes_exclusive_connection() {
    runtime().block_on(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        let responder = Responder::start(move |mut peer: Peer| {
            let tell = tell.clone();
            async move {
                while peer.request().await.is_some() {
                    let _ = tell.send("asked");
                }
                let _ = tell.send("closed");
            }
        })
        .await;
        let handler = handler(&responder);
        let task = tokio::spawn(async move { send_request(&handler, request()).await.map(drop) });
        assert_eq!(told.recv().await, Some("asked"));
        // Cancels the request, as a worker does when the client disconnects.
        task.abort();
        assert_eq!(told.recv().await, Some("closed"));
    });
}

/// A multiplexing server, which reports that it does. It responds to requests when enough of them have arrived.
async fn multiplex(mut peer: Peer, most: Arc<AtomicUsize>) {
    let mut bodies = std::collections::BTreeMap::<u16, Vec<u8>>::new();
    let mut held = Vec::new();
    let mut begun = std::collections::BTreeSet::new();
    while let Some(got) = peer.record().await {
        match got.kind {
            GET_VALUES => {
                peer.send(&record(VALUES, 0, b"\x0f\x01FCGI_MPXS_CONNS1"))
                    .await;
            }
            STDIN if got.content.is_empty() => held.push(got.id),
            STDIN => bodies.entry(got.id).or_default().extend(got.content),
            BEGIN => drop(begun.insert(got.id)),
            // A request that has ended is not ended again: its ID may belong to another request.
            ABORT if begun.remove(&got.id) => {
                held.retain(|id| *id != got.id);
                bodies.remove(&got.id);
                peer.send(&end(got.id, 0)).await;
            }
            _ => {}
        }
        most.fetch_max(held.len(), SeqCst);
        // Requests on the connection from before FCGI_GET_VALUES arrive one at a time.
        let wait_for = if peer.number == 0 { 1 } else { 3 };
        if held.len() < wait_for {
            continue;
        }
        // The responses are interleaved in pieces, beginning with the last request.
        held.reverse();
        for id in &held {
            let head = record(STDOUT, *id, b"Content-Type: text/plain\r\n\r\n");
            peer.send(&head).await;
        }
        for id in held.drain(..) {
            let body = bodies.remove(&id).unwrap_or_default();
            for piece in body.chunks(1000) {
                peer.send(&record(STDOUT, id, piece)).await;
            }
            begun.remove(&id);
            peer.send(&end(id, 0)).await;
        }
    }
}

async fn multiplexer() -> (Responder, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let count = most.clone();
    let responder = Responder::start(move |peer| multiplex(peer, count.clone())).await;
    (responder, most)
}

/// Sends requests until the handler has learned that the server multiplexes.
async fn wait_until_shared(handler: &Arc<FastCgiHandler>, most: &AtomicUsize) {
    assert_eq!(fetch(handler, request()).await.status, 200);
    loop {
        let all: Vec<_> = (0..3)
            .map(|_| {
                let handler = handler.clone();
                tokio::spawn(async move { send_request(&handler, request()).await.is_ok() })
            })
            .collect();
        let mut good = 0;
        for one in all {
            good += usize::from(one.await.expect("no panic"));
        }
        // On the first connection, the requests may have been sequential.
        if good == 3 && most.load(SeqCst) == 3 {
            return;
        }
    }
}

#[test]
fn multiplexed_requests_are_independent() {
    runtime().block_on(async {
        let (responder, most) = multiplexer().await;
        let change = |route: &mut RouteConfig, _: &mut FastCgiConfig| route.timeout_ms = 500;
        let handler = handler_with(&responder, &Notices::default(), change);
        wait_until_shared(&handler, &most).await;
        for round in 0..10 {
            let all: Vec<_> = (0..3_usize)
                .map(|n| {
                    let handler = handler.clone();
                    tokio::spawn(async move {
                        let text = format!("{round}-{n}.").repeat(20_000 * n + 1);
                        let request = post(Path::new(ROOT), "/x", text.as_bytes());
                        let answer = fetch(&handler, request).await;
                        assert!(answer.body == text, "{n}: {} bytes", answer.body.len());
                    })
                })
                .collect();
            for one in all {
                one.await.expect("no panic");
            }
        }
        assert_eq!(most.load(SeqCst), 3);
    });
}

#[test]
fn cancelled_multiplexed_request_is_aborted() {
    runtime().block_on(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        let responder = Responder::start(move |mut peer: Peer| {
            let tell = tell.clone();
            async move {
                while let Some(got) = peer.record().await {
                    match got.kind {
                        GET_VALUES => {
                            let yes = b"\x0f\x01FCGI_MPXS_CONNS1";
                            peer.send(&record(VALUES, 0, yes)).await;
                        }
                        STDIN if got.content.is_empty() && peer.number == 0 => {
                            peer.respond(got.id, "one").await;
                        }
                        STDIN if got.content.is_empty() => drop(tell.send("asked")),
                        ABORT => {
                            let _ = tell.send("aborted");
                            peer.send(&end(got.id, 0)).await;
                        }
                        _ => {}
                    }
                }
            }
        })
        .await;
        let handler = handler(&responder);
        // Until the handler multiplexes, requests use the first connection.
        loop {
            let asking = handler.clone();
            let mut task =
                tokio::spawn(async move { send_request(&asking, request()).await.map(drop) });
            tokio::select! {
                told = told.recv() => {
                    assert_eq!(told, Some("asked"));
                    task.abort();
                    break;
                }
                _ = &mut task => {}
            }
        }
        assert_eq!(told.recv().await, Some("aborted"));
        assert_eq!(responder.connections(), 3);
    });
}

#[test]
fn slow_client_buffers_bounded_output() {
    runtime().block_on(async {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let responder = Responder::start(move |mut peer: Peer| {
            let sent = count.clone();
            async move {
                while let Some((id, _)) = peer.request().await {
                    peer.send(&record(STDOUT, id, b"Status: 200\r\n\r\n")).await;
                    for _ in 0..1000 {
                        if !peer.send(&record(STDOUT, id, &[b'x'; 60_000])).await {
                            return;
                        }
                        sent.fetch_add(60_000, SeqCst);
                    }
                    peer.send(&end(id, 0)).await;
                }
            }
        })
        .await;
        let handler = handler(&responder);
        let response = send_request(&handler, request()).await.expect("a head");
        let ResponseContent::Stream { stream, .. } = response.content else {
            panic!("not streamed");
        };
        // Output that is not read stays in socket buffers, which hold some megabytes.
        let mut last = usize::MAX;
        until("a standstill", || {
            let now = sent.load(SeqCst);
            let still = now == last && now > 0;
            last = now;
            still.then_some(())
        })
        .await;
        assert!(sent.load(SeqCst) < 40_000_000);
        let mut got = 0;
        while let StreamItem::Bytes(bytes) = stream.next().await {
            got += bytes.len();
        }
        assert_eq!(got, 60_000_000);
    });
}

#[test]
fn slow_upload_occupies_no_connection() {
    runtime().block_on(async {
        let responder = Responder::start(answer_numbers).await;
        let change = |route: &mut RouteConfig, fastcgi: &mut FastCgiConfig| {
            route.concurrency_max = 1;
            fastcgi.connections_max = 1;
        };
        let handler = handler_with(&responder, &Notices::default(), change);
        let mut slow = post(Path::new(ROOT), "/x", b"");
        let (sender, receiver) = stream(1);
        sender.push(Bytes::from_static(b"abc")).expect("just made");
        slow.body.len = Some(6);
        slow.body.stream = Some(receiver);
        let asking = handler.clone();
        let task = tokio::spawn(async move { send_request(&asking, slow).await.map(drop) });
        // The bytes sent so far were read, and the handler waits for more.
        std::future::poll_fn(|context| sender.poll_room(context))
            .await
            .expect("it waits");
        assert_eq!(fetch(&handler, request()).await.status, 200);
        drop(sender);
        let failure = task.await.expect("no panic").expect_err("it was cut");
        assert_eq!(failure.status, StatusCode::BAD_REQUEST);
    });
}

#[test]
fn request_with_consumed_body_is_not_retried() {
    runtime().block_on(async {
        let responder = Responder::start(async |mut peer: Peer| {
            if let Some((id, _)) = peer.request().await {
                peer.respond(id, "first").await;
                while peer.record().await.is_some_and(|got| got.kind != STDIN) {}
            }
        })
        .await;
        let handler = handler(&responder);
        assert_eq!(fetch(&handler, request()).await.body, "first");
        let mut request = post(Path::new(ROOT), "/x", b"");
        request.method = lowroad_http::method::Method::Put;
        let (sender, receiver) = stream(10);
        let start = Bytes::from_static(&[b'x'; 64 << 10]);
        sender.push(start).expect("just made");
        request.body.len = Some(100_000);
        request.body.stream = Some(receiver);
        match send_request(&handler, request).await {
            Ok(response) => assert_eq!(collect_response(response).await.body, "never"),
            Err(failure) => assert_eq!(failure.status, StatusCode::BAD_GATEWAY),
        }
        drop(sender);
    });
}
