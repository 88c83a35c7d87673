//! The load generator over HTTP/2, with servers built with the `h2` crate that behave as each test requires.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{Request, Response};
use lowroad_lab::load::{LoadResult, LoadRun, RequestPace, run};
use lowroad_lab::workload::script::{ScriptConnection, ScriptWorkload};
use lowroad_lab::workload::urls::{UrlSpec, UrlWorkload};
use lowroad_lab::workload::{PerConnection, WorkloadVersion};

/// The behaviour of a server.
#[derive(Clone, Copy, PartialEq)]
enum ServerBehaviour {
    /// Sends `hello`, or the request's body.
    Echo,
    /// Like `Echo`, but swaps the responses of each pair of requests.
    SwapPairs,
    /// Resets every third stream.
    ResetEveryThird,
    /// Ends each connection with GOAWAY after ten requests.
    GoAwayAfterTen,
}

/// Serves in a separate thread, and counts requests.
fn serve(way: ServerBehaviour, counter: Arc<AtomicU64>) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime"), async move {
            let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let listener = listener.expect("a port");
            tell.send(listener.local_addr().expect("its address"))
                .expect("a test");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(connection(stream, way, counter.clone()));
            }
        });
    });
    told.recv().expect("an address")
}

async fn connection(stream: tokio::net::TcpStream, way: ServerBehaviour, counter: Arc<AtomicU64>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    let (mut held, mut count) = (None, 0);
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        count += 1;
        let number = counter.fetch_add(1, Relaxed);
        match way {
            ServerBehaviour::ResetEveryThird if number % 3 == 2 => {
                respond.send_reset(h2::Reason::INTERNAL_ERROR);
                continue;
            }
            ServerBehaviour::GoAwayAfterTen if count == 10 => connection.graceful_shutdown(),
            ServerBehaviour::SwapPairs if held.is_none() => {
                held = Some((request, respond));
                continue;
            }
            _ => {}
        }
        tokio::task::spawn_local(answer(request, respond));
        if let Some((request, respond)) = held.take() {
            tokio::task::spawn_local(answer(request, respond));
        }
    }
}

async fn answer(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) {
    assert_eq!(
        request.uri().authority().map(|it| it.as_str()),
        Some("test")
    );
    assert_eq!(
        request.headers().get("x-own").map(|it| it.as_bytes()),
        Some(&b"1"[..])
    );
    let (mut from, mut body) = (request.into_body(), Vec::new());
    while let Some(Ok(bytes)) = from.data().await {
        let _ = from.flow_control().release_capacity(bytes.len());
        body.extend_from_slice(&bytes);
    }
    let body = match body.is_empty() {
        true => Bytes::from_static(b"hello"),
        false => body.into(),
    };
    let head = Response::builder().header("set-cookie", "a=b").body(());
    if let Ok(mut to) = respond.send_response(head.expect("a head"), false) {
        let _ = to.send_data(body, true);
    }
}

fn get() -> UrlSpec {
    let mut spec = UrlSpec::get("/");
    spec.fields = vec![("X-Own".into(), "1".into())];
    (spec.expected_len, spec.crc32) = (Some(5), Some(crc32fast::hash(b"hello")));
    spec
}

/// Two hundred requests on two connections, with eight streams each.
fn load(address: SocketAddr, spec: UrlSpec) -> LoadRun {
    let urls = UrlWorkload::new(
        vec![spec],
        "test",
        WorkloadVersion::Http2,
        PerConnection::Unlimited,
        true,
    );
    LoadRun {
        connections: 2,
        pipeline: 8,
        duration: Duration::from_secs(60),
        requests: Some(200),
        timeout: Duration::from_secs(20),
        ..LoadRun::plain(address, Arc::new(urls.expect("right URLs")))
    }
}

fn outcome(load: &LoadRun) -> LoadResult {
    run(load, &mut |_| {}, &AtomicBool::new(false)).expect("it begins")
}

#[test]
fn scripts_capture_values_from_http2_heads_and_bodies() {
    let text = r#"
[[step]]
path = "/"
fields = { x-own = "1" }
take = { body = "(h[a-z]+)", cookie = '\nset-cookie: (a=b)' }

[[step]]
path = "/"
fields = { x-own = "1" }
form = { body = "{body}", cookie = "{cookie}" }
take = { both = "(?m)^body=hello&cookie=a%3Db$" }
"#;
    let script = ScriptWorkload::parse(text, "test", WorkloadVersion::Http2, ScriptConnection::All)
        .expect("a script");
    let counter = Arc::new(AtomicU64::new(0));
    let load = LoadRun {
        connections: 2,
        requests: Some(100),
        ..LoadRun::plain(
            serve(ServerBehaviour::Echo, counter.clone()),
            Arc::new(script),
        )
    };
    let found = outcome(&load);
    assert_eq!((found.requests, found.errors), (100, 0), "{found:?}");
}

#[test]
fn concurrent_streams_are_answered_in_any_order() {
    for way in [ServerBehaviour::Echo, ServerBehaviour::SwapPairs] {
        let counter = Arc::new(AtomicU64::new(0));
        let address = serve(way, counter.clone());
        let found = outcome(&load(address, get()));
        assert_eq!((found.requests, found.errors), (200, 0), "{found:?}");
        assert_eq!((counter.load(Relaxed), found.connections), (200, 2));
        assert_eq!((found.body_bytes, found.latency_us.count), (1000, 200));
        assert_eq!(found.statuses[&200], 200);
    }
}

#[test]
fn open_loop_sends_streams_at_the_offered_rate() {
    let counter = Arc::new(AtomicU64::new(0));
    let address = serve(ServerBehaviour::Echo, counter.clone());
    let found = outcome(&LoadRun {
        pace: RequestPace::Requests(1000.0),
        ..load(address, get())
    });
    assert_eq!((found.requests, found.errors), (200, 0), "{found:?}");
    assert_eq!(found.offered_per_s, Some(1000.0));
}

#[test]
fn wrong_http2_responses_are_counted_by_kind() {
    let address = serve(ServerBehaviour::Echo, Arc::default());
    let mut spec = get();
    spec.crc32 = Some(1);
    let found = outcome(&load(address, spec));
    assert_eq!(found.errors_by_kind["wrong_checksum"], 200);
    let mut spec = get();
    spec.expected_len = Some(6);
    let found = outcome(&load(address, spec));
    assert_eq!(found.errors_by_kind["wrong_length"], 200);
}

#[test]
fn request_bodies_respect_flow_control_windows() {
    let address = serve(ServerBehaviour::Echo, Arc::default());
    let mut spec = get();
    (spec.method, spec.body) = ("POST".into(), vec![b'x'; 200_000]);
    spec.expected_len = Some(200_000);
    spec.crc32 = Some(crc32fast::hash(&spec.body));
    let found = outcome(&LoadRun {
        requests: Some(20),
        ..load(address, spec)
    });
    assert_eq!((found.requests, found.errors), (20, 0), "{found:?}");
}

#[test]
fn reset_streams_are_errors_and_the_connection_continues() {
    let address = serve(ServerBehaviour::ResetEveryThird, Arc::default());
    let found = outcome(&load(address, get()));
    let errors = found.errors_by_kind["stream_reset"];
    assert_eq!((errors, found.errors), (66, 66), "{found:?}");
    assert_eq!((found.requests, found.connections), (134, 2));
}

#[test]
fn requests_after_goaway_are_sent_again() {
    let address = serve(ServerBehaviour::GoAwayAfterTen, Arc::default());
    let found = outcome(&load(address, get()));
    assert_eq!((found.requests, found.errors), (200, 0), "{found:?}");
    assert!(found.connections > 2);
}

#[test]
fn server_without_http2_is_detected() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                use std::io::{Read, Write};
                let mut stream = stream;
                let _ = stream.read(&mut [0; 1000]);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.read(&mut [0; 1000]);
            });
        }
    });
    let found = outcome(&LoadRun {
        duration: Duration::from_millis(300),
        ..load(address, get())
    });
    assert_eq!(found.requests, 0);
    assert!(found.errors_by_kind["malformed"] > 0, "{found:?}");
}
