//! Sends many requests to an origin, one after the other, to count instructions under callgrind:
//! `proxy_cost serve SOCKET &`, then `valgrind --tool=callgrind proxy_cost COUNT SOCKET`. The decision about storing
//! is not included. The difference between two runs, divided by the difference of their COUNTs, is the cost of a
//! request in user space. The server is a separate process, which is not counted; valgrind cannot start it.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use lowroad_config::{OriginConfig, OriginUrl, PathPattern, RouteConfig, RouteTo};
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_gateway::proxy::{OriginRegistry, ProxyHandler};
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerRequest, HandlerResult, RequestBody, ResponseContent, SubrequestLoad,
    SubrequestSource,
};
use lowroad_http::method::Method;
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
    let [_, first, socket] = &arguments[..] else {
        eprintln!("proxy_cost serve SOCKET | proxy_cost COUNT SOCKET");
        return;
    };
    match first.parse() {
        Ok(count) => send_requests(count, Path::new(socket)),
        Err(_) => serve(Path::new(socket)),
    }
}

/// Sends `count` requests, as a worker would.
fn send_requests(count: usize, socket: &Path) {
    let helpers = HelperPool::start(1).expect("a thread");
    let mut driver = EpollDriver::new(helpers).expect("an epoll");
    let worker_handle = driver.worker_handle().clone();
    let handler = handler(
        socket,
        &OriginRegistry::new(std::slice::from_ref(&worker_handle)),
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

fn handler(socket: &Path, origins: &OriginRegistry) -> Arc<ProxyHandler> {
    let origin = OriginConfig::new(OriginUrl::Unix(socket.to_path_buf()));
    let to = RouteTo::Origin(Box::new(origin.clone()));
    let route = RouteConfig {
        timeout_ms: 10_000,
        concurrency_max: 64,
        ..RouteConfig::new(PathPattern::everything(), to)
    };
    let notice = Arc::new(|line: &str| eprintln!("{line}"));
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
fn serve(socket: &Path) {
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
