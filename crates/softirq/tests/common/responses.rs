//! The named requests and responses of traces. Each response is stored under the key of a request.

use std::collections::HashMap;
use std::net::IpAddr;

use lowroad_softirq::SoftirqLevel;
use lowroad_softirq::learner::ResponseSerial;
use lowroad_softirq::level::publisher::{PublishRequest, ResponsePublisher};
use lowroad_testkit::net::SERVER;

/// The age of each response in seconds.
pub const AGE_S: u64 = 70;

/// A named request.
pub struct Request {
    /// The name in traces.
    pub name: &'static str,
    /// The whole request.
    pub bytes: &'static str,
}

/// All named requests.
pub const REQUESTS: &[Request] = &[
    request("get", "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("get_b", "GET /b HTTP/1.1\r\nHost: h\r\n\r\n"),
    request(
        "close",
        "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    request("old", "GET /a HTTP/1.0\r\nHost: h\r\n\r\n"),
    request(
        "old_keep",
        "GET /a HTTP/1.0\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\n",
    ),
    request("head", "HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n"),
    request(
        "head_close",
        "HEAD /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    request("miss", "GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("large", "GET /large HTTP/1.1\r\nHost: h\r\n\r\n"),
    request(
        "gzip",
        "GET /a HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n",
    ),
    request(
        "cookie",
        "GET /a HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\n\r\n",
    ),
    request(
        "post",
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    ),
    request("first_half", "GET /a HTTP/1.1\r\nHo"),
    request(
        "long",
        "GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: a name of more than a few letters\r\n\r\n",
    ),
    request(
        "long_start",
        "GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: a name of m",
    ),
    request(
        "over_tls",
        "GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\n\r\n",
    ),
    request(
        "forwarded",
        "GET /a HTTP/1.1\r\nHost: h\r\nForwarded: proto=https\r\n\r\n",
    ),
    request(
        "rewritten",
        "GET /a HTTP/1.1\r\nHost: h\r\nX-Original-URL: /b\r\n\r\n",
    ),
    request(
        "overridden",
        "GET /a HTTP/1.1\r\nHost: h\r\nx-http-method-override: POST\r\n\r\n",
    ),
    request(
        "for_another",
        "GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
    ),
    request("second_half", "st: h\r\n\r\n"),
    request(
        "two",
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    request("get2", "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("get3", "GET /3 HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("get4", "GET /4 HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("get9", "GET /9 HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("get10", "GET /10 HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("head10", "HEAD /10 HTTP/1.1\r\nHost: h\r\n\r\n"),
    request(
        "close2",
        "GET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    request(
        "close3",
        "GET /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    request(
        "close4",
        "GET /4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    request(
        "close9",
        "GET /9 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    request(
        "close10",
        "GET /10 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ),
    // Their first byte is the last byte of the previous request: the acknowledgement of that request was withheld.
    request("last_get", "\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
    request("last", "\n"),
];

const fn request(name: &'static str, bytes: &'static str) -> Request {
    Request { name, bytes }
}

/// A named response.
pub struct Response {
    /// Its name in traces; `name.head` is its head.
    pub name: &'static str,
    /// Its key for port 80, without the address.
    key: &'static [u8],
    body_len: usize,
}

/// All named responses.
pub const RESPONSES: &[Response] = &[
    response("A", b"\x00\x00\x50\x01/a\x02h", 100),
    response("B", b"\x00\x00\x50\x01/b\x02h", 33),
    response("A_close", b"\x01\x00\x50\x01/a\x02h", 101),
    response("A_old", b"\x03\x00\x50\x01/a\x02h", 102),
    response("A_old_keep", b"\x02\x00\x50\x01/a\x02h", 103),
    response("A_gzip", b"\x00\x00\x50\x01/a\x02h\x03gzip", 0),
    response("Large", b"\x00\x00\x50\x01/large\x02h", 1300),
    // The name is the number of segments, for both segment lengths. Exceptions are the last two: Nine has 9 or 10
    // segments; Ten has 10 of the longer segments.
    response("Two", b"\x00\x00\x50\x01/2\x02h", 2000),
    response("Three", b"\x00\x00\x50\x01/3\x02h", 3400),
    response("Four", b"\x00\x00\x50\x01/4\x02h", 4600),
    response("Nine", b"\x00\x00\x50\x01/9\x02h", 11_800),
    response("Ten", b"\x00\x00\x50\x01/10\x02h", 14_000),
    response("Two_close", b"\x01\x00\x50\x01/2\x02h", 2001),
    response("Three_close", b"\x01\x00\x50\x01/3\x02h", 3401),
    response("Four_close", b"\x01\x00\x50\x01/4\x02h", 4601),
    response("Nine_close", b"\x01\x00\x50\x01/9\x02h", 11_801),
    response("Ten_close", b"\x01\x00\x50\x01/10\x02h", 14_001),
];

const fn response(name: &'static str, key: &'static [u8], body_len: usize) -> Response {
    Response {
        name,
        key,
        body_len,
    }
}

/// The bytes of a response, and offsets in them.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Head and body; the values of Date and Age are placeholders.
    pub bytes: Vec<u8>,
    /// Offset of the body.
    pub head_len: usize,
    /// Offset of the value of Date.
    pub date_at: usize,
    /// Offset of the value of Age.
    pub age_at: usize,
}

impl Response {
    /// The key of the response for one of the server's addresses.
    pub fn key_at(&self, address: IpAddr) -> Vec<u8> {
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let (start, pieces) = self.key.split_at(3);
        [start, &address.octets(), pieces].concat()
    }

    /// Whether the response fits into one segment.
    pub fn is_short(&self) -> bool {
        self.body_len < 1900
    }

    /// The keys of the response for IPv4 and IPv6.
    pub fn keys(&self) -> [Vec<u8>; 2] {
        [SERVER.0.into(), SERVER.1.into()].map(|address| self.key_at(address))
    }

    /// The bytes of the response. Another edition has a different body of the same length.
    pub fn prepare(&self, edition: u8) -> Prepared {
        let name = self.name;
        let before = format!("HTTP/1.1 200 OK\r\nX-Name: {name}\r\nDate: ");
        let age = format!("{before}{}\r\nAge: ", "?".repeat(29));
        let head = format!("{age}?????\r\nContent-Length: {}\r\n\r\n", self.body_len);
        let mut bytes = head.clone().into_bytes();
        // The body has different content in each segment.
        let letters = (0..26u8).cycle().skip(usize::from(edition));
        bytes.extend(letters.map(|letter| b'a' + letter).take(self.body_len));
        Prepared {
            bytes,
            head_len: head.len(),
            date_at: before.len(),
            age_at: age.len(),
        }
    }

    /// Finds a response by name.
    pub fn named(name: &str) -> &'static Response {
        RESPONSES
            .iter()
            .find(|one| one.name == name)
            .unwrap_or_else(|| panic!("no response {name}"))
    }
}

/// A publisher that identifies responses by their keys.
pub struct TestPublisher {
    publisher: ResponsePublisher,
    serials: HashMap<Vec<u8>, ResponseSerial>,
    count: u64,
}

impl TestPublisher {
    /// Creates a publisher without responses; those of other publishers are removed.
    pub fn new(level: &SoftirqLevel) -> TestPublisher {
        let mut publisher = ResponsePublisher::new(level).expect("a grace period");
        // With a much later time, since earlier responses are then no longer needed for retransmissions.
        let later_ns = lowroad_softirq::now_ns() + 60_000_000_000;
        publisher.recycle(level, later_ns).expect("a grace period");
        TestPublisher {
            publisher,
            serials: HashMap::new(),
            count: 0,
        }
    }

    /// Publishes a response, replacing that with the same key.
    pub fn publish(&mut self, level: &SoftirqLevel, key: &[u8], what: &Prepared, lives_ns: u64) {
        let now = lowroad_softirq::now_ns();
        let at = |at: usize| u16::try_from(at).expect("short");
        let publication = PublishRequest {
            key,
            bytes: &what.bytes,
            head_len: at(what.head_len),
            date_at: Some(at(what.date_at)),
            age_at: Some(at(what.age_at)),
            status: 200,
            generated_ns: generation_ns(now),
            expires_ns: now + lives_ns,
        };
        self.count += 1;
        let serial = ResponseSerial::new(self.count);
        let old = self.serials.insert(key.to_vec(), serial);
        self.publisher
            .publish(level, serial, &publication, old)
            .expect("room");
        self.publisher.retire(level, old).expect("a grace period");
    }

    /// Removes a response from the index.
    pub fn retire(&mut self, level: &SoftirqLevel, key: &[u8]) {
        let serial = self.serials.remove(key);
        self.publisher
            .retire(level, serial)
            .expect("a grace period");
    }

    /// Makes a response stale.
    pub fn expire(&self, level: &SoftirqLevel, key: &[u8]) {
        let born_ns = generation_ns(lowroad_softirq::now_ns());
        self.publisher.extend(level, self.serials[key], born_ns, 1);
    }
}

/// May be before boot: the programs compute with wrapping numbers.
fn generation_ns(now_ns: u64) -> u64 {
    now_ns.wrapping_sub(AGE_S * 1_000_000_000)
}
