//! Requests that a server must refuse or handle with care, and the checks that it did.
//!
//! Each case is sent in different pieces, always followed by a good request on the same connection. Whether the good
//! one is answered shows whether the connection stayed open, without waiting for a timeout. If a refused request's
//! successor is answered, the request was smuggled. Independent of RFCs: the cases contain their expected results.

use std::path::PathBuf;

use crate::{ClientResponse, TempFolder, TestClient, TestServer};

/// The file that every site here has, and its content.
pub const GOOD: (&str, &str) = ("good.txt", "good\n");

/// Longer cases are not sent byte by byte.
const BYTEWISE_LEN_MAX: usize = 600;

/// A server with one site, and the folder around its root.
pub struct HostileSite {
    /// Contains the root as `site`; its other contents must stay private.
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

    /// Checks each case, a name and its bytes: the response has this status and a page with this text, the connection
    /// closes, and the request after the case is not answered. Other connections are served afterwards.
    pub fn refuses(&self, status: u16, expected_text: &str, cases: &[(&str, impl AsRef<[u8]>)]) {
        for (name, bytes) in cases {
            for pieces in deliveries(bytes.as_ref()) {
                let responses = exchange(&self.server, &pieces);
                // More than one response means that a hidden or following request was answered.
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

    /// Checks each case, a name and its bytes: the response has this status and text, and the good request after it is
    /// answered.
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

    /// `HostileSite::refuses` with 400 for a GET of each target.
    pub fn refuses_targets(&self, expected_text: &str, targets: &[&str]) {
        self.refuses(400, expected_text, &gets(targets));
    }

    /// `HostileSite::accepts` for a GET of each target.
    pub fn accepts_targets(&self, status: u16, expected_text: &str, targets: &[&str]) {
        self.accepts(status, expected_text, &gets(targets));
    }
}

/// All responses up to the server's orderly close.
pub fn responses_to_end(client: &mut TestClient) -> Vec<ClientResponse> {
    assert!(client.wait_for_close(), "the connection was reset");
    let mut responses = Vec::new();
    // The connection has ended, so every remaining response must be complete.
    while !client.received.is_empty() {
        responses.push(client.response());
    }
    responses
}

/// Sends the pieces and a good request after them; returns all responses up to the server's orderly close.
fn exchange(server: &TestServer, pieces: &[&[u8]]) -> Vec<ClientResponse> {
    let mut client = server.connect();
    pieces.iter().for_each(|piece| client.send(piece));
    client.send(format!(
        "GET /{} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
        GOOD.0
    ));
    responses_to_end(&mut client)
}

/// The same bytes at once, in two halves, and byte by byte if they are few.
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

/// A request hidden in another one's body, which must not be answered.
pub const HIDDEN: &str = "GET /good.txt HTTP/1.1\r\nHost: hidden\r\n\r\n";

/// A GET with these field lines and these bytes after the head.
pub fn get(fields: &str, body: &str) -> String {
    format!("GET /good.txt HTTP/1.1\r\nHost: test\r\n{fields}\r\n{body}")
}

/// A GET with a body in chunks, as given.
pub fn chunked(body: &str) -> String {
    get("Transfer-Encoding: chunked\r\n", body)
}
