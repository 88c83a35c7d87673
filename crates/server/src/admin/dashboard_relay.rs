//! `lowroad dashboard`: relays a browser's requests from a port on loopback to a server's admin socket.
//!
//! Each connection has its own thread and carries one request, about which [`relay_session`](super::relay_session)
//! decides. Responses are copied as they arrive, so event streams work.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_http::h1;
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use serde_json::{Value, json};

use super::problem::AdminProblem;
use super::relay_session::{RelayDecision, RelaySession};
use super::server_search::{connect_failure, only_socket};
use crate::cli::servers::DashboardArgs;
use crate::terminal_output;

/// Maximum number of simultaneous connections. A browser opens up to six for a page.
const CONNECTION_COUNT_MAX: usize = 32;
/// Maximum number of threads. Those of evicted connections end a moment later.
const THREAD_COUNT_MAX: usize = 2 * CONNECTION_COUNT_MAX;
/// The pause after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Maximum time for the arrival of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time in which a client accepts no bytes.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const READ_LEN: usize = 8 * 1024;

/// The levels below the server, or `None` if this user can't see them.
pub type LevelReader = fn() -> Option<Vec<Value>>;

/// `lowroad dashboard`: prints the link and relays until the process is ended.
///
/// # Errors
/// There is not exactly one server, or no port.
pub fn run(args: &DashboardArgs, levels: LevelReader) -> Result<(), String> {
    let socket = only_socket(args.admin.as_deref())?;
    // A server that can't be reached is reported here, not later by an empty page.
    UnixStream::connect(&socket).map_err(|error| connect_failure(&socket, &error))?;
    let failed = |error: io::Error| format!("the dashboard can't start: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let session = RelaySession {
        token: random_word().map_err(failed)?,
        cookie: random_word().map_err(failed)?,
        folder: random_word().map_err(failed)?,
        port,
        is_read_only: args.read_only,
        is_opened: AtomicBool::new(false),
    };
    terminal_output::out(format_args!("http://127.0.0.1:{port}{}\n", session.link()))?;
    terminal_output::note("the link works once; Ctrl-C ends the dashboard");
    let relay = Arc::new(DashboardRelay {
        session,
        admin: args.admin.clone(),
        socket: Mutex::new(socket),
        levels,
        connections: Mutex::default(),
    });
    for client in listener.incoming() {
        match client {
            Ok(client) => relay.accept(client),
            // Such as too many open files: connections that end make room.
            Err(_) => thread::sleep(ACCEPT_RETRY),
        }
    }
    Ok(())
}

/// 128 random bits.
fn random_word() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

struct DashboardRelay {
    session: RelaySession,
    /// The socket that the user named.
    admin: Option<PathBuf>,
    /// The socket in use. A restarted server may have another one.
    socket: Mutex<PathBuf>,
    levels: LevelReader,
    connections: Mutex<RelayConnections>,
}

/// The open connections.
#[derive(Default)]
struct RelayConnections {
    /// Number of threads.
    threads: usize,
    /// The connections without a request so far, the oldest first.
    waiting: Vec<(u64, TcpStream)>,
    /// Number of connections that were accepted.
    accepted: u64,
}

impl RelayConnections {
    /// Registers a connection before its request arrives. At the limit, evicts the oldest one without a request: any
    /// process of the machine can connect, and idle connections must not keep the browser out. Returns the connection's
    /// number, or `None` if all have requests.
    fn add(&mut self, client: &TcpStream) -> Option<u64> {
        if self.threads >= CONNECTION_COUNT_MAX {
            if self.waiting.is_empty() || self.threads >= THREAD_COUNT_MAX {
                return None;
            }
            let (_, evicted) = self.waiting.remove(0);
            // Ends the read of its thread.
            let _ = evicted.shutdown(Shutdown::Both);
        }
        self.threads += 1;
        self.accepted += 1;
        // Without a copy of the descriptor it can't be evicted, which its timeout makes up for.
        if let Ok(copy) = client.try_clone() {
            self.waiting.push((self.accepted, copy));
        }
        Some(self.accepted)
    }

    /// The request of a connection has arrived.
    fn begin(&mut self, number: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != number);
    }

    /// The thread of a connection ends.
    fn remove(&mut self, number: u64) {
        self.begin(number);
        self.threads -= 1;
    }
}

impl DashboardRelay {
    fn accept(self: &Arc<Self>, mut client: TcpStream) {
        let Some(number) = self.connections().add(&client) else {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let _ = refuse(&mut client, status, "too many connections to the dashboard");
            return;
        };
        let relay = self.clone();
        let served = thread::Builder::new()
            .name("dashboard".into())
            .spawn(move || {
                // A client that disconnects is not a failure.
                let _ = relay.serve(number, &mut client);
                relay.connections().remove(number);
            });
        if served.is_err() {
            self.connections().remove(number);
        }
    }

    fn connections(&self) -> MutexGuard<'_, RelayConnections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the only request of a connection.
    fn serve(&self, number: u64, client: &mut TcpStream) -> io::Result<()> {
        client.set_write_timeout(Some(SEND_TIMEOUT))?;
        // An event is one small write, which Nagle's algorithm would delay until the one before is acknowledged.
        client.set_nodelay(true)?;
        let limits = RequestLimits::default();
        let buffer = read_head(client, limits.head_len_max)?;
        self.connections().begin(number);
        let decision = match h1::parse(&buffer, &limits) {
            Ok(Some(head)) => self.session.decide(&head),
            // The client has closed the connection within its request, and expects no response.
            Ok(None) => return Ok(()),
            Err(refusal) => RelayDecision::Refuse(refusal.status(), refusal.as_str()),
        };
        match decision {
            RelayDecision::Open => self.open(client),
            RelayDecision::Forward(method, target) => self.forward(client, method, &target),
            RelayDecision::State => self.state(client),
            RelayDecision::Refuse(status, why) => refuse(client, status, why),
        }
    }

    /// Sets the cookie, and sends a page that leads to the dashboard. A redirect would not work: if the link was opened
    /// from another site, a browser sends no SameSite=Strict cookie with the redirected request.
    fn open(&self, client: &mut TcpStream) -> io::Result<()> {
        let folder = &self.session.folder;
        let body = format!(
            "<!doctype html><title>Lowroad</title><meta name=\"color-scheme\" content=\"light dark\">\
             <link rel=\"icon\" href=\"data:,\">\
             <meta http-equiv=\"refresh\" content=\"0;url=/{folder}/dashboard\">\
             <p><a href=\"/{folder}/dashboard\">Dashboard</a></p>\n"
        );
        let cookie = self.session.set_cookie();
        let fields = format!(
            "Content-Type: text/html; charset=utf-8\r\nSet-Cookie: {cookie}\r\n\
             Content-Security-Policy: default-src 'none'; img-src data:; frame-ancestors 'none'\r\n"
        );
        respond(client, StatusCode::OK, &fields, body.as_bytes())
    }

    fn forward(&self, client: &mut TcpStream, method: Method, target: &str) -> io::Result<()> {
        let Ok(mut server) = self.connect() else {
            let why = "the server does not answer at its admin socket";
            return refuse(client, StatusCode::BAD_GATEWAY, why);
        };
        let length = match method {
            // A POST without a body still states its length (RFC 9110 §8.6).
            Method::Post => "Content-Length: 0\r\n",
            _ => "",
        };
        let head = format!(
            "{} {target} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n{length}\r\n",
            method.as_str()
        );
        server.write_all(head.as_bytes())?;
        // The server's response has `Connection: close`, which is right for the client's connection, too.
        io::copy(&mut server, client)?;
        client.shutdown(Shutdown::Write)
    }

    /// Connects to the server. If that fails, looks for the socket of a restarted server.
    fn connect(&self) -> Result<UnixStream, String> {
        let known = || self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let path = known().clone();
        if let Ok(stream) = UnixStream::connect(&path) {
            return Ok(stream);
        }
        let path = only_socket(self.admin.as_deref())?;
        let stream = UnixStream::connect(&path).map_err(|error| error.to_string())?;
        *known() = path;
        Ok(stream)
    }

    fn state(&self, client: &mut TcpStream) -> io::Result<()> {
        let state = json!({
            "is_read_only": self.session.is_read_only,
            "levels": (self.levels)(),
        });
        let fields = "Content-Type: application/json\r\n";
        respond(client, StatusCode::OK, fields, state.to_string().as_bytes())
    }
}

/// Reads the head of a request, and the bytes that follow it in the same segments.
fn read_head(client: &mut TcpStream, len_max: usize) -> io::Result<Vec<u8>> {
    let end = Instant::now() + HEAD_TIMEOUT;
    let mut buffer = Vec::new();
    let mut chunk = [0; READ_LEN];
    loop {
        // The remaining time, not a timeout for each read: a client that sends byte by byte must not hold a thread.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let len = client.read(&mut chunk)?;
        let known = buffer.len();
        buffer.extend_from_slice(&chunk[..len]);
        if len == 0 || h1::head_complete(&buffer, known) || buffer.len() >= len_max {
            return Ok(buffer);
        }
    }
}

fn refuse(client: &mut TcpStream, status: StatusCode, why: &str) -> io::Result<()> {
    let body = AdminProblem::new(status, why).to_json();
    let fields = "Content-Type: application/problem+json\r\n";
    respond(client, status, fields, &body)
}

/// Writes a response and ends the connection.
fn respond(
    client: &mut TcpStream,
    status: StatusCode,
    fields: &str,
    body: &[u8],
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {} {}\r\n{fields}Content-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        status.code(),
        status.reason(),
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body)?;
    client.shutdown(Shutdown::Write)
}
