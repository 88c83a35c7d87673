//! A well-behaved client that checks the responses.

use lowroad_net::{
    ConnectionEnd, ConnectionId, ConnectionInitiator, SendPiece, StackCalls, TcpService,
};

/// Expected from a page that can't be generated.
pub const FAILS: &[u8] = b"500";

pub struct Visitor {
    /// Its connection.
    pub id: Option<ConnectionId>,
    is_open: bool,
    got: Vec<u8>,
    /// Index in `sites` of the current request.
    asks: usize,
    /// Requests on this connection.
    count: usize,
    pub answers: u64,
    /// Pages that were generated, and those that were refused.
    pub pages: [u64; 2],
    /// The time of the current request.
    pub since_us: u64,
    /// The longest time for a file.
    pub longest_us: u64,
    /// The last status text of the server.
    pub status: String,
    /// The server may lose its address, and with it the client's connection.
    pub is_lenient: bool,
    pub sites: Vec<(&'static str, &'static [u8])>,
}

impl Visitor {
    pub fn new(sites: Vec<(&'static str, &'static [u8])>) -> Visitor {
        Visitor {
            id: None,
            is_open: false,
            got: Vec::new(),
            asks: 0,
            count: 0,
            answers: 0,
            pages: [0; 2],
            since_us: 0,
            longest_us: 0,
            is_lenient: false,
            status: String::new(),
            sites,
        }
    }

    /// Drops the state of the old connection.
    pub fn forget(&mut self, now_us: u64) -> Option<ConnectionId> {
        self.is_open = false;
        self.since_us = now_us;
        self.id.take()
    }

    /// Whether it waits for a page, which may take longer.
    pub fn asks_page(&self) -> bool {
        let wanted = self.sites[self.asks].1;
        self.is_open && (wanted.is_empty() || wanted == FAILS)
    }

    fn ask(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        self.got.clear();
        self.asks = (self.asks + 1) % self.sites.len();
        self.since_us = calls.now_us();
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: a\r\n\r\n",
            self.sites[self.asks].0
        );
        calls
            .send(id, SendPiece::Copied(request.as_bytes()))
            .expect("room");
    }

    /// Whether the response is complete; checks it then.
    fn is_whole(&mut self) -> bool {
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
        let (path, wanted) = self.sites[self.asks];
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

impl TcpService for Visitor {
    fn opened(&mut self, calls: &mut impl StackCalls, id: ConnectionId, _: ConnectionInitiator) {
        if self.id == Some(id) {
            self.is_open = true;
            self.count = 0;
            self.ask(calls, id);
        }
    }

    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        if self.id != Some(id) {
            return bytes.len();
        }
        self.got.extend(bytes);
        if self.is_whole() {
            if !self.asks_page() {
                let took_us = calls.now_us() - self.since_us;
                // Pages depend on the database; files must be fast.
                self.longest_us = self.longest_us.max(took_us);
            }
            self.answers += 1;
            self.count += 1;
            match self.count < 5 {
                true => self.ask(calls, id),
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
            // The server may end a well-behaved client's connection only without an address.
            assert!(self.is_lenient, "ended: {end:?}");
            self.forget(calls.now_us());
        }
    }
}
