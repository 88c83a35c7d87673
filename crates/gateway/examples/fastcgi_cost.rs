//! Sends many requests to a FastCGI server, one after the other, to count instructions under callgrind:
//! `fastcgi_cost serve SOCKET &`, then `valgrind --tool=callgrind fastcgi_cost COUNT SOCKET`. The
//! difference between two runs, divided by the difference of their COUNTs, is the cost of a request in user space.
//! The server is a separate process, which is not counted; valgrind cannot start it.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use lowroad_config::{
    FastCgiConfig, PathPattern, RouteConfig, RouteTo, SymlinkPolicy, UpstreamAddress,
};
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::FastCgiServers;
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
        eprintln!("fastcgi_cost serve SOCKET | fastcgi_cost COUNT SOCKET");
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
    let servers = FastCgiServers::new(std::slice::from_ref(&worker_handle));
    let handler = handler(socket, &servers);
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

fn handler(socket: &Path, servers: &FastCgiServers) -> Arc<FastCgiHandler> {
    let fastcgi = FastCgiConfig {
        script: Some("/index.php".to_string()),
        connections_max: 8,
        ..FastCgiConfig::new(UpstreamAddress::Unix(socket.to_path_buf()))
    };
    let to = RouteTo::FastCgi(fastcgi.clone());
    let route = RouteConfig {
        timeout_ms: 10_000,
        concurrency_max: 64,
        ..RouteConfig::new(PathPattern::everything(), to)
    };
    let notice = Arc::new(|line: &str, _: Option<&_>| eprintln!("{line}"));
    let handler = FastCgiHandler::new(&route, &fastcgi, SymlinkPolicy::Beneath, servers, notice);
    Arc::new(handler)
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

/// A server that answers each request with 1 KB, and does not report whether it multiplexes.
fn serve(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a socket");
    for connection in listener.incoming() {
        let mut connection = connection.expect("a connection");
        std::thread::spawn(move || while answer(&mut connection).is_some() {});
    }
}

fn answer(connection: &mut UnixStream) -> Option<()> {
    const STDIN: u8 = 5;
    const STDOUT: u8 = 6;
    const GET_VALUES: u8 = 9;
    loop {
        let mut header = [0; 8];
        connection.read_exact(&mut header).ok()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; len + usize::from(header[6])];
        connection.read_exact(&mut content).ok()?;
        match header[1] {
            GET_VALUES => return None,
            STDIN if len == 0 => break,
            _ => {}
        }
    }
    let mut text = b"Content-Type: text/plain\r\n\r\n".to_vec();
    text.resize(text.len() + 1024, b'x');
    let [len_high, len_low] = u16::try_from(text.len()).ok()?.to_be_bytes();
    let mut out = vec![1, STDOUT, 0, 1, len_high, len_low, 0, 0];
    out.extend(text);
    out.extend([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    connection.write_all(&out).ok()
}
