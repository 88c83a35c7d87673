//! RFC 9111 for shared caches, a file for each section. The enclosing module's `front` is an accelerator over sockets,
//! or in the simulator (`src/simulation`).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lowroad_testkit::ClientResponse;

use super::front::{self, OriginRequest, TestFront, TestOrigin, response};

mod s3_storing;
mod s4_1_variants;
mod s4_2_4_stale_use;
mod s4_2_freshness;
mod s4_3_validation;
mod s4_4_invalidation;
mod s5_2_requests;
mod s9110_ranges;
mod s9211_cache_status;

/// A date long ago.
pub const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// A date far in the future.
pub const FAR: &str = "Fri, 01 Jan 2100 00:00:00 GMT";

/// An accelerator in front of an origin that answers with the request's field `Say`: a status, and field lines
/// separated by bars. The body is the number of the request.
pub struct Told {
    /// The accelerator and its origin.
    pub front: TestFront,
    paths: AtomicUsize,
}

impl Told {
    /// With default settings.
    pub fn new() -> Told {
        Told::of(TestFront::new(TestOrigin::with_response(obey)))
    }

    /// With these lines of `[site.route.cache]`.
    pub fn with(caching: &str) -> Told {
        Told::of(TestFront::caching(TestOrigin::with_response(obey), caching))
    }

    fn of(front: TestFront) -> Told {
        Told {
            front,
            paths: AtomicUsize::new(0),
        }
    }

    /// A new path.
    pub fn path(&self) -> String {
        format!("/{}", self.paths.fetch_add(1, Relaxed))
    }

    /// A GET with these field lines, answered by the origin with `say`.
    pub fn get(&self, path: &str, say: &str, fields: &str) -> ClientResponse {
        self.front.get(path, &format!("Say: {say}\r\n{fields}"))
    }

    /// Whether a repeated GET gets the stored response.
    pub fn stores(&self, say: &str) -> bool {
        self.stores_for(say, "", "")
    }

    /// Whether a GET with the fields `second` gets the stored response to one with the fields `first`.
    pub fn stores_for(&self, say: &str, first: &str, second: &str) -> bool {
        let path = self.path();
        let one = self.get(&path, say, first);
        let two = self.get(&path, say, second);
        one.body == two.body
    }

    /// Fails for each of these responses that is not stored.
    pub fn all_stored(&self, all: &[&str]) {
        let not: Vec<_> = all.iter().filter(|say| !self.stores(say)).collect();
        assert!(not.is_empty(), "not stored: {not:#?}");
    }

    /// Fails for each of these responses that is stored.
    pub fn none_stored(&self, all: &[&str]) {
        let stored: Vec<_> = all.iter().filter(|say| self.stores(say)).collect();
        assert!(stored.is_empty(), "stored: {stored:#?}");
    }
}

fn obey(asked: &OriginRequest) -> String {
    let say = asked.field("say").unwrap_or("200 OK");
    let (status, fields) = say.split_once('|').unwrap_or((say, ""));
    let mut lines = String::new();
    for line in fields.split('|').filter(|line| !line.is_empty()) {
        lines += &format!("{}\r\n", line.trim());
    }
    // A request number, long enough for ranges; 204 has no body.
    let body = format!("{:08}", asked.number);
    match status.starts_with("204") {
        true => format!("HTTP/1.1 {status}\r\n{lines}X-Number: {body}\r\n\r\n"),
        false => response(status, &lines, &body),
    }
}
