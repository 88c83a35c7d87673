//! Sends malformed and dangerous requests to a server, and checks that it refuses them or handles them safely.
//!
//! Each case is sent in different pieces, always followed by a good request on the same connection. The response to the
//! good request shows, without waiting for a timeout, that the connection stayed open. If the request after a refused
//! one is answered, request smuggling is possible. Each case contains its expected result.

use std::path::PathBuf;

use crate::{ClientResponse, TempFolder, TestClient, TestServer};

/// The file that each test site contains, and its content.
pub const GOOD: (&str, &str) = ("good.txt", "good\n");

/// Cases up to this length are also sent byte by byte.
const BYTEWISE_LEN_MAX: usize = 600;

/// A server with one site, and the parent folder of its root.
pub struct HostileSite {
    /// Contains the root as `site`; the server must not send other files.
    pub folder: TempFolder,
    /// The server, with one worker.
    pub server: TestServer,
}

impl HostileSite {
    /// A site with one good file.
    pub fn new(program: &str) -> HostileSite {
        HostileSite::with(program, "", |_| {})
    }

    /// A site with these lines in its `[[site]]`; `fill` adds files before the server starts.
    pub fn with(program: &str, lines: &str, fill: impl FnOnce(&TempFolder)) -> HostileSite {
        let folder = TempFolder::new();
        folder.file(format!("site/{}", GOOD.0), GOOD.1);
        fill(&folder);
        let config = format!(
            "[server]\nworkers = 1\n\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n{lines}\n"
        );
        let server = TestServer::run(program, &folder, &config);
        HostileSite { folder, server }
    }

    /// The folder that is served.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    /// For each case (a name and the bytes to send), checks that the response has this status and contains this text,
    /// that the connection closes, that the request after the case is not answered, and that other connections are
    /// served afterwards.
    pub fn refuses(&self, status: u16, expected_text: &str, cases: &[(&str, impl AsRef<[u8]>)]) {
        for (name, bytes) in cases {
            for pieces in deliveries(bytes.as_ref()) {
                let responses = exchange(&self.server, &pieces);
                // More than one response means that a smuggled or later request was answered.
                let context = format!("{name}, in {} pieces", pieces.len());
                assert_eq!(responses.len(), 1, "{context}: answers: {responses:?}");
                assert_answer(&responses[0], status, expected_text, &context);
                let connection = responses[0].field("connection");
                assert_eq!(
                    connection,
                    Some("close"),
                    "{context}: {}",
                    responses[0].head
                );
            }
            // A refusal must not affect the server's other connections.
            let next = self.server.get(&format!("/{}", GOOD.0));
            assert_answer(&next, 200, GOOD.1, &format!("{name}: another connection"));
        }
    }

    /// For each case (a name and the bytes to send), checks that the response has this status and text, and that the
    /// good request after it is answered.
    pub fn accepts(&self, status: u16, expected_text: &str, cases: &[(&str, impl AsRef<[u8]>)]) {
        for (name, bytes) in cases {
            for pieces in deliveries(bytes.as_ref()) {
                let responses = exchange(&self.server, &pieces);
                let context = format!("{name}, in {} pieces", pieces.len());
                assert_eq!(responses.len(), 2, "{context}: answers: {responses:?}");
                assert_answer(&responses[0], status, expected_text, &context);
                // Persistence is the default of HTTP/1.1, so an open connection has no Connection field.
                assert_eq!(responses[0].field("connection"), None, "{context}");
                assert_answer(&responses[1], 200, GOOD.1, &format!("{context}: the next"));
            }
        }
    }

    /// Like `HostileSite::refuses`, for a GET of each target, with status 400.
    pub fn refuses_targets(&self, expected_text: &str, targets: &[&str]) {
        self.refuses(400, expected_text, &gets(targets));
    }

    /// Like `HostileSite::accepts`, for a GET of each target.
    pub fn accepts_targets(&self, status: u16, expected_text: &str, targets: &[&str]) {
        self.accepts(status, expected_text, &gets(targets));
    }
}

/// All responses until the server closes without a reset.
pub fn responses_to_end(client: &mut TestClient) -> Vec<ClientResponse> {
    assert!(client.wait_for_close(), "the connection was reset");
    let mut responses = Vec::new();
    // The connection has ended, so every remaining response must be complete.
    while !client.received.is_empty() {
        responses.push(client.response());
    }
    responses
}

/// Sends the pieces and a good request; returns all responses until the server closes without a reset.
fn exchange(server: &TestServer, pieces: &[&[u8]]) -> Vec<ClientResponse> {
    let mut client = server.connect();
    pieces.iter().for_each(|piece| client.send(piece));
    client.send(format!(
        "GET /{} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
        GOOD.0
    ));
    responses_to_end(&mut client)
}

/// The bytes in one piece, in two halves and, if they are few, byte by byte.
fn deliveries(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut variants = vec![vec![bytes], vec![first, second]];
    if bytes.len() <= BYTEWISE_LEN_MAX {
        variants.push(bytes.chunks(1).collect());
    }
    variants
}

fn gets<'t>(targets: &[&'t str]) -> Vec<(&'t str, String)> {
    let get = |target| format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n");
    targets
        .iter()
        .map(|target| (*target, get(target)))
        .collect()
}

fn assert_answer(response: &ClientResponse, status: u16, expected_text: &str, context: &str) {
    let text = response.text();
    assert_eq!(response.status, status, "{context}: {text}");
    assert!(
        text.contains(expected_text),
        "{context}: {expected_text:?} is not in {text}"
    );
}

/// A request that is hidden in the body of another one (request smuggling), and must not be answered.
pub const HIDDEN: &str = "GET /good.txt HTTP/1.1\r\nHost: hidden\r\n\r\n";

/// A GET with these field lines and these bytes after the head.
pub fn get(fields: &str, body: &str) -> String {
    format!("GET /good.txt HTTP/1.1\r\nHost: test\r\n{fields}\r\n{body}")
}

/// A GET with this chunked body.
pub fn chunked(body: &str) -> String {
    get("Transfer-Encoding: chunked\r\n", body)
}
