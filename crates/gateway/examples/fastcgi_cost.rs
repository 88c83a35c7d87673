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
use lowroad_config::{FastCgi, Pattern, Route, RouteTo, Symlinks, Upstream};
use lowroad_engine::driver::{Driver, Event};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helpers::Helpers;
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::Servers;
use lowroad_handler::request::Head;
use lowroad_handler::{Begun, Body, Content, Handler, Loading, Objects, Request};
use lowroad_http::method::Method;
use lowroad_http::version::Version;

struct Nothing;

impl Objects for Nothing {
    fn now(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> Loading {
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
        Ok(count) => ask(count, Path::new(socket)),
        Err(_) => serve(Path::new(socket)),
    }
}

/// Sends `count` requests, as a worker would.
fn ask(count: usize, socket: &Path) {
    let helpers = Helpers::start(1).expect("a thread");
    let mut driver = EpollDriver::new(helpers).expect("an epoll");
    let local = driver.local().clone();
    let servers = Servers::new(std::slice::from_ref(&local));
    let handler = handler(socket, &servers);
    let (objects, root): (Arc<dyn Objects>, Arc<Path>) =
        (Arc::new(Nothing), Arc::from(Path::new("/srv")));
    let done = Arc::new(AtomicUsize::new(0));
    let mut events = Vec::new();
    for number in 0..count {
        let Begun::Here(answering) = handler.clone().begin(0, request(&objects, &root)) else {
            panic!("it is polled here");
        };
        let done_here = done.clone();
        let task = local.tasks.start(async move {
            let response = answering.await.expect("a response");
            assert!(matches!(response.content, Content::Bytes(_)));
            done_here.fetch_add(1, Relaxed);
        });
        while done.load(Relaxed) <= number {
            driver.wait(None, &mut events);
            for event in events.drain(..) {
                if let Event::Outgoing(news) = event {
                    local.sources.happened(news);
                }
            }
            local.run();
        }
        drop(task);
    }
}

fn handler(socket: &Path, servers: &Servers) -> Arc<FastCgiHandler> {
    let fastcgi = FastCgi {
        script: Some("/index.php".to_string()),
        connections_max: 8,
        ..FastCgi::new(Upstream::Unix(socket.to_path_buf()))
    };
    let to = RouteTo::FastCgi(fastcgi.clone());
    let route = Route {
        timeout_ms: 10_000,
        concurrency_max: 64,
        ..Route::new(Pattern::everything(), to)
    };
    let notice = Arc::new(|line: &str| eprintln!("{line}"));
    let handler = FastCgiHandler::new(&route, &fastcgi, Symlinks::Beneath, servers, notice);
    Arc::new(handler)
}

fn request(objects: &Arc<dyn Objects>, root: &Arc<Path>) -> Request {
    Request {
        method: Method::Get,
        version: Version::Http11,
        head: Head::new((b"/", None), b"/", b"localhost", b"Host: localhost\r\n"),
        peer: [127, 0, 0, 1].into(),
        peer_port: 40_000,
        local: ([127, 0, 0, 1], 80).into(),
        secured: None,
        forwarded: None,
        root: root.clone(),
        objects: objects.clone(),
        body: Body::none(),
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
