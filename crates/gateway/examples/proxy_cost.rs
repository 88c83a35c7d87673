//! Sends many requests to an origin, one after the other, to count instructions under callgrind:
//! `proxy_cost serve SOCKET &`, then `valgrind --tool=callgrind proxy_cost COUNT SOCKET`; over HTTP/2 with `serve-h2` and
//! `COUNT SOCKET h2`. The decision about storing
//! is not included. The difference between two runs, divided by the difference of their COUNTs, is the cost of a
//! request in user space. The server is a separate process, which is not counted; valgrind cannot start it.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use lowroad_config::{OriginConfig, OriginProtocol, OriginUrl, PathPattern, RouteConfig, RouteTo};
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_gateway::proxy::{OriginRegistry, ProxyHandler};
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerRequest, HandlerResult, RequestBody, ResponseContent, SubrequestLoad,
    SubrequestSource,
};
use lowroad_http::fields::FieldLines;
use lowroad_http::h2::frame::{self, FrameHead};
use lowroad_http::h2::hpack::put_status;
use lowroad_http::h2::{PREFACE, put_lines};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;

struct Nothing;

impl SubrequestSource for Nothing {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(std::future::ready(None))
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let (first, socket, protocol) = match &arguments[..] {
        [_, first, socket] => (first, Path::new(socket), OriginProtocol::Http1),
        [_, first, socket, _] => (first, Path::new(socket), OriginProtocol::H2),
        _ => {
            eprintln!("proxy_cost serve|serve-h2 SOCKET | proxy_cost COUNT SOCKET [h2]");
            return;
        }
    };
    match (first.parse(), first.as_str()) {
        (Ok(count), _) => send_requests(count, socket, protocol),
        (Err(_), "serve-h2") => serve(socket, answer_h2),
        (Err(_), _) => serve(socket, answer),
    }
}

/// Sends `count` requests, as a worker would.
fn send_requests(count: usize, socket: &Path, protocol: OriginProtocol) {
    let helpers = HelperPool::start(1).expect("a thread");
    let mut driver = EpollDriver::new(helpers).expect("an epoll");
    let worker_handle = driver.worker_handle().clone();
    let handler = handler(
        socket,
        protocol,
        &OriginRegistry::new(std::slice::from_ref(&worker_handle)).expect("random bytes"),
    );
    let (objects, root): (Arc<dyn SubrequestSource>, Arc<Path>) =
        (Arc::new(Nothing), Arc::from(Path::new("/srv")));
    let done = Arc::new(AtomicUsize::new(0));
    let mut events = Vec::new();
    for number in 0..count {
        let HandlerResult::OnWorker(response_future) =
            handler.clone().begin(0, request(&objects, &root))
        else {
            panic!("it is polled here");
        };
        let task_done = done.clone();
        let task = worker_handle.tasks.start(async move {
            let response = response_future.await.expect("a response");
            assert!(matches!(response.content, ResponseContent::Bytes(_)));
            task_done.fetch_add(1, Relaxed);
        });
        while done.load(Relaxed) <= number {
            driver.wait(None, &mut events);
            for event in events.drain(..) {
                if let DriverEvent::UpstreamReady(socket_event) = event {
                    worker_handle.sources.handle_event(socket_event);
                }
            }
            worker_handle.run();
        }
        drop(task);
    }
}

fn handler(socket: &Path, protocol: OriginProtocol, origins: &OriginRegistry) -> Arc<ProxyHandler> {
    let origin = OriginConfig {
        protocol,
        ..OriginConfig::new(OriginUrl::Unix(socket.to_path_buf()))
    };
    let to = RouteTo::Origin(Box::new(origin.clone()));
    let route = RouteConfig {
        timeout_ms: 10_000,
        concurrency_max: 64,
        ..RouteConfig::new(PathPattern::everything(), to)
    };
    let notice = Arc::new(|line: &str, _: Option<&_>| eprintln!("{line}"));
    let handler = ProxyHandler::new(&route, &origin, origins, notice, None);
    Arc::new(handler.expect("a handler"))
}

fn request(objects: &Arc<dyn SubrequestSource>, root: &Arc<Path>) -> HandlerRequest {
    HandlerRequest {
        method: Method::Get,
        version: HttpVersion::Http11,
        head: RequestHead::new(
            RawTarget {
                path: b"/",
                query: None,
            },
            b"/",
            b"localhost",
            b"Host: localhost\r\n",
        ),
        peer: [127, 0, 0, 1].into(),
        peer_port: 40_000,
        local: ([127, 0, 0, 1], 80).into(),
        tls: None,
        forwarded: None,
        root: root.clone(),
        objects: objects.clone(),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

/// An origin that answers each request with 1 KB, and keeps connections.
fn serve(socket: &Path, answer: fn(&mut UnixStream) -> Option<()>) {
    let listener = UnixListener::bind(socket).expect("a socket");
    for connection in listener.incoming() {
        let mut connection = connection.expect("a connection");
        std::thread::spawn(move || while answer(&mut connection).is_some() {});
    }
}

fn answer(connection: &mut UnixStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut buffer = [0; 4096];
        let len = connection.read(&mut buffer).ok().filter(|len| *len > 0)?;
        head.extend_from_slice(&buffer[..len]);
    }
    let mut out = b"HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
        Content-Type: text/html\r\nContent-Length: 1024\r\nCache-Control: no-store\r\n\r\n"
        .to_vec();
    out.resize(out.len() + 1024, b'x');
    connection.write_all(&out).ok()
}

/// Receives a frame, and answers HEADERS with the same response as `answer`.
fn answer_h2(connection: &mut UnixStream) -> Option<()> {
    let mut head = [0; frame::HEAD_LEN];
    connection.read_exact(&mut head[..3]).ok()?;
    if head.starts_with(b"PRI") {
        let mut rest = [0; PREFACE.len() - 3];
        connection.read_exact(&mut rest).ok()?;
        let mut settings = Vec::new();
        frame::put_settings(&[], &mut settings);
        return connection.write_all(&settings).ok();
    }
    connection.read_exact(&mut head[3..]).ok()?;
    let head = FrameHead::parse(&head);
    let mut payload = vec![0; head.len];
    connection.read_exact(&mut payload).ok()?;
    if head.kind != frame::kind::HEADERS {
        return Some(());
    }
    let mut block = Vec::new();
    put_status(StatusCode::OK, &mut block);
    let lines = FieldLines::new(
        b"Server: origin\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html\r\n\
          Content-Length: 1024\r\nCache-Control: no-store\r\n",
    );
    put_lines(lines, &mut block);
    let mut out = Vec::new();
    let flags = frame::flag::END_HEADERS;
    frame::put_head(
        frame::kind::HEADERS,
        flags,
        head.stream,
        block.len(),
        &mut out,
    );
    out.extend_from_slice(&block);
    let flags = frame::flag::END_STREAM;
    frame::put_head(frame::kind::DATA, flags, head.stream, 1024, &mut out);
    out.resize(out.len() + 1024, b'x');
    connection.write_all(&out).ok()
}
