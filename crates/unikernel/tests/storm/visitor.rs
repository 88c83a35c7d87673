//! A well-behaved client, which checks the responses.

use lowroad_net::{
    ConnectionEnd, ConnectionId, ConnectionInitiator, SendPiece, StackCalls, TcpService,
};

/// The expected content of a page that can't be generated: any response with status 500.
pub const FAILS: &[u8] = b"500";

pub struct CheckingClient {
    /// The connection of the client.
    pub id: Option<ConnectionId>,
    is_open: bool,
    got: Vec<u8>,
    /// Index of the current request in `resources`.
    resource_index: usize,
    /// Number of requests on this connection.
    count: usize,
    pub answers: u64,
    /// Numbers of generated and failed pages.
    pub pages: [u64; 2],
    /// The time at which the current request was sent.
    pub since_us: u64,
    /// The longest time until the response with a file.
    pub longest_us: u64,
    /// The last status text that the server sent.
    pub status: String,
    /// Whether the server may lose its address, which ends the connection.
    pub is_lenient: bool,
    pub resources: Vec<(&'static str, &'static [u8])>,
}

impl CheckingClient {
    pub fn new(sites: Vec<(&'static str, &'static [u8])>) -> CheckingClient {
        CheckingClient {
            id: None,
            is_open: false,
            got: Vec::new(),
            resource_index: 0,
            count: 0,
            answers: 0,
            pages: [0; 2],
            since_us: 0,
            longest_us: 0,
            is_lenient: false,
            status: String::new(),
            resources: sites,
        }
    }

    /// Clears the state of the connection.
    pub fn forget(&mut self, now_us: u64) -> Option<ConnectionId> {
        self.is_open = false;
        self.since_us = now_us;
        self.id.take()
    }

    /// Whether the client waits for a page, which may take longer than a file.
    pub fn is_awaiting_page(&self) -> bool {
        let wanted = self.resources[self.resource_index].1;
        self.is_open && (wanted.is_empty() || wanted == FAILS)
    }

    fn send_request(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        self.got.clear();
        self.resource_index = (self.resource_index + 1) % self.resources.len();
        self.since_us = calls.now_us();
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: a\r\n\r\n",
            self.resources[self.resource_index].0
        );
        calls
            .send(id, SendPiece::Copied(request.as_bytes()))
            .expect("room");
    }

    /// Returns whether the response is complete, and checks it if so.
    fn check_response(&mut self) -> bool {
        let Some(head_len) = self.got.windows(4).position(|four| four == b"\r\n\r\n") else {
            return false;
        };
        let (head, body) = self.got.split_at(head_len + 4);
        let head = std::str::from_utf8(head).expect("text");
        let (_, len) = head.split_once("Content-Length: ").expect("a length");
        let len: usize = len
            .split("\r\n")
            .next()
            .expect("a line")
            .parse()
            .expect("a number");
        assert!(body.len() <= len, "{head}");
        if body.len() < len {
            return false;
        }
        let (path, wanted) = self.resources[self.resource_index];
        match wanted {
            [] if path.starts_with("/.lowroad") => {
                assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
                self.status = String::from_utf8_lossy(body).into_owned();
            }
            FAILS => assert!(head.starts_with("HTTP/1.1 500 "), "{path}: {head}"),
            [] => self.pages[usize::from(!head.starts_with("HTTP/1.1 200 "))] += 1,
            _ => {
                assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
                assert!(body == wanted, "{path}: another body");
            }
        }
        true
    }
}

impl TcpService for CheckingClient {
    fn opened(&mut self, calls: &mut impl StackCalls, id: ConnectionId, _: ConnectionInitiator) {
        if self.id == Some(id) {
            self.is_open = true;
            self.count = 0;
            self.send_request(calls, id);
        }
    }

    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        if self.id != Some(id) {
            return bytes.len();
        }
        self.got.extend(bytes);
        if self.check_response() {
            if !self.is_awaiting_page() {
                let took_us = calls.now_us() - self.since_us;
                // Pages depend on the database; files must be fast.
                self.longest_us = self.longest_us.max(took_us);
            }
            self.answers += 1;
            self.count += 1;
            match self.count < 5 {
                true => self.send_request(calls, id),
                false => {
                    calls.close(id);
                    self.forget(calls.now_us());
                }
            }
        }
        bytes.len()
    }

    fn finished(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        assert!(
            self.id != Some(id),
            "the server has closed: {}",
            String::from_utf8_lossy(&self.got)
        );
        calls.close(id);
    }

    fn sent(&mut self, _: &mut impl StackCalls, _: ConnectionId) {}

    fn ended(&mut self, calls: &mut impl StackCalls, id: ConnectionId, end: ConnectionEnd) {
        if self.id == Some(id) {
            // The server may end the connection of a well-behaved client only if it can lose its address.
            assert!(self.is_lenient, "ended: {end:?}");
            self.forget(calls.now_us());
        }
    }
}
