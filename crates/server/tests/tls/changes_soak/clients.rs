//! The clients of the soak: each sends batches over one protocol until the end.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use lowroad_quic::CloseReason;
use lowroad_testkit::{TestClient, wait_until};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::backends::{FASTCGI_LEN, ORIGIN_LEN};
use crate::http3_client::Http3Client;
use crate::support::Place;

/// Requests of a batch, all on one connection.
const BATCH_LEN: usize = 10;
/// The request of a batch over HTTP/3 before which the client's port changes.
const REBIND_AT: usize = 6;
/// The paths that are requested in turn, with the lengths of the responses.
const PATHS: [(&str, usize); 5] = [
    ("/file", 20_000),
    ("/app/x", ORIGIN_LEN),
    ("/kept/x", ORIGIN_LEN),
    ("/cgi/hello", 5),
    ("/fast/x", FASTCGI_LEN),
];

/// The counts of the clients.
#[derive(Default)]
pub struct ClientCounts {
    pub is_over: AtomicBool,
    /// The batches of each client.
    batches: [AtomicUsize; 4],
    /// The number of responses for each value of X-Id.
    pub responses: Mutex<HashMap<String, usize>>,
    /// Requests that the server has not processed: on idle connections that were closed, and after GOAWAY.
    pub repeated: AtomicUsize,
    /// Held for reading during a batch, for writing during a measurement.
    pub pause: RwLock<()>,
}

/// Ends the clients' loops, also if the test fails.
pub struct EndOnDrop<'a>(pub &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl ClientCounts {
    /// Sends batches until the end. `send_batch` returns the number of responses to requests with an ID.
    pub fn run(&self, client: usize, mut send_batch: impl FnMut(&str) -> usize) {
        for batch in 0.. {
            if self.is_over.load(Relaxed) {
                return;
            }
            let _running = self.pause.read().expect("no panic");
            let id = format!("{client}-{batch}");
            let count = send_batch(&id);
            self.responses.lock().expect("no panic").insert(id, count);
            self.batches[client].fetch_add(1, Relaxed);
        }
    }

    /// Waits until each client has completed a batch that began after this call.
    pub fn wait_for_batches(&self) {
        for batches in &self.batches {
            let before = batches.load(Relaxed);
            wait_until("two more batches", || {
                (batches.load(Relaxed) >= before + 2).then_some(())
            });
        }
    }
}

pub fn request(path: &str, id: &str, is_last: bool) -> String {
    let end = if is_last { "close" } else { "keep-alive" };
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Id: {id}\r\nConnection: {end}\r\n\r\n")
}

/// A batch over HTTP/1 without TLS.
pub fn send_plain(to: SocketAddr, id: &str, counts: &ClientCounts) -> usize {
    let (mut answered, mut used) = (0, 0);
    let mut client = TestClient::connect(to);
    while answered < BATCH_LEN {
        let (path, len) = PATHS[answered % PATHS.len()];
        client.send(request(path, id, answered + 1 == BATCH_LEN));
        let Some(response) = client.whole_response() else {
            // A server may close an idle connection while a request is on its way (RFC 9112 §9.6).
            let received = client.received.len();
            assert!(used > 0 && received == 0, "{path} {id}: cut off");
            counts.repeated.fetch_add(1, Relaxed);
            (client, used) = (TestClient::connect(to), 0);
            continue;
        };
        let text = || String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, 200, "{path} {id}: {}", text());
        assert_eq!(response.body.len(), len, "{path} {id}");
        (answered, used) = (answered + 1, used + 1);
        if response.field("connection") == Some("close") && answered < BATCH_LEN {
            (client, used) = (TestClient::connect(to), 0);
        }
    }
    answered
}

/// A batch of one request over TLS, with a new handshake, and one on the same connection.
pub fn send_tls(to: SocketAddr, config: &Arc<ClientConfig>, id: &str) -> usize {
    let name = ServerName::try_from("a.example").expect("a name");
    let tls = ClientConnection::new(config.clone(), name).expect("a client");
    let tcp = TcpStream::connect(to).expect("a connection");
    let patience = Some(Duration::from_secs(60));
    tcp.set_read_timeout(patience).expect("a timeout");
    let mut stream = StreamOwned::new(tls, tcp);
    let requests = [request("/file", id, false), request("/kept/x", id, true)];
    // Pipelined: the server must answer both, even if it drains meanwhile.
    stream
        .write_all(requests.concat().as_bytes())
        .expect("sent");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("an end");
    let text = String::from_utf8_lossy(&received);
    let count = text.matches("HTTP/1.1 200 OK\r\n").count();
    // A server that drains announces the end with the first response and need not answer the second request.
    let is_announced = text.contains("onnection: close");
    assert!(count == 2 || (count == 1 && is_announced), "{id}: {text}");
    count
}

/// A batch over HTTP/2 by curl.
pub fn send_h2(place: &Place, to: SocketAddr, id: &str) -> usize {
    let urls = (0..BATCH_LEN).map(|at| format!("https://a.example{}", PATHS[at % PATHS.len()].0));
    let urls: Vec<String> = urls.collect();
    let field = format!("X-Id: {id}");
    let mut arguments = vec![
        "--http2",
        "-H",
        &field,
        "-w",
        "%{http_code} %{size_download}\n",
    ];
    for url in &urls {
        arguments.extend(["-o", "/dev/null", url]);
    }
    let output = place.fetch(to, &arguments);
    for (at, line) in output.lines().enumerate() {
        assert_eq!(line, format!("200 {}", PATHS[at % PATHS.len()].1), "{id}");
    }
    output.lines().count()
}

/// A batch over HTTP/3, with a change of the client's port.
pub fn send_h3(place: &Place, to: SocketAddr, id: &str, counts: &ClientCounts) -> usize {
    let connect = || {
        let client = Http3Client::connect(place, to);
        assert_eq!(client.end, None, "{id}: a new connection");
        client
    };
    let (mut answered, mut client) = (0, connect());
    while answered < BATCH_LEN {
        let (path, len) = PATHS[answered % PATHS.len()];
        if answered == REBIND_AT {
            client.rebind();
        }
        let stream = client.request_with("GET", path, &[("x-id", id)], b"");
        client.wait(|client| {
            client.is_complete(stream) || client.end.is_some() || client.is_unprocessed(stream)
        });
        if client.is_complete(stream) {
            let response = client.take(stream);
            let text = || String::from_utf8_lossy(&response.body()).into_owned();
            assert_eq!(response.status(), "200", "{path} {id}: {}", text());
            assert_eq!(response.body().len(), len, "{path} {id}");
            answered += 1;
            if client.goaway().is_none() {
                continue;
            }
        } else {
            // A server that drains rejects requests that arrive after its GOAWAY (RFC 9114 §5.2). It may have sent GOAWAY and
            // the close to the old port; then the next process resets the connection (RFC 9000 §10.3). The log shows whether
            // the request was processed all the same.
            let is_lost = answered == REBIND_AT && client.end == Some(CloseReason::StatelessReset);
            let is_rejected = client.is_unprocessed(stream);
            assert!(
                is_rejected || is_lost,
                "{path} {id}: cut off: {:?}",
                client.end
            );
            counts.repeated.fetch_add(1, Relaxed);
        }
        client.close();
        client = connect();
    }
    client.close();
    answered
}
