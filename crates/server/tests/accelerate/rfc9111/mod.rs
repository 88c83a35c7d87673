//! Tests of RFC 9111 for shared caches, one file for each section. They use the module `front` next to this one: an
//! accelerator over sockets in `tests/accelerate`, or in the simulator in `src/simulation`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lowroad_testkit::ClientResponse;

use super::front::{self, OriginRequest, TestAccelerator, TestOrigin, response};

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

/// An accelerator with an origin that sends the response specified by the request field `Say`: a status and field
/// lines, separated by bars. The body is the number of the request.
pub struct ScriptedCache {
    /// The accelerator and its origin.
    pub front: TestAccelerator,
    paths: AtomicUsize,
}

impl ScriptedCache {
    /// An accelerator with default settings.
    pub fn new() -> ScriptedCache {
        ScriptedCache::of(TestAccelerator::new(TestOrigin::with_response(
            scripted_response,
        )))
    }

    /// An accelerator with these lines of `[site.route.cache]`.
    pub fn with(caching: &str) -> ScriptedCache {
        ScriptedCache::of(TestAccelerator::with_cache_settings(
            TestOrigin::with_response(scripted_response),
            caching,
        ))
    }

    fn of(front: TestAccelerator) -> ScriptedCache {
        ScriptedCache {
            front,
            paths: AtomicUsize::new(0),
        }
    }

    /// Returns a path that was not used before.
    pub fn path(&self) -> String {
        format!("/{}", self.paths.fetch_add(1, Relaxed))
    }

    /// Sends a GET with these field lines. If the request reaches the origin, the response is `say`.
    pub fn get(&self, path: &str, say: &str, fields: &str) -> ClientResponse {
        self.front.get(path, &format!("Say: {say}\r\n{fields}"))
    }

    /// Whether the response `say` is stored: a second GET gets the response to the first one.
    pub fn stores(&self, say: &str) -> bool {
        self.stores_for(say, "", "")
    }

    /// Whether a GET with the fields `second` gets the stored response to a GET with the fields `first`.
    pub fn stores_for(&self, say: &str, first: &str, second: &str) -> bool {
        let path = self.path();
        let one = self.get(&path, say, first);
        let two = self.get(&path, say, second);
        one.body == two.body
    }

    /// Asserts that each of these responses is stored.
    pub fn assert_all_stored(&self, all: &[&str]) {
        let not: Vec<_> = all.iter().filter(|say| !self.stores(say)).collect();
        assert!(not.is_empty(), "not stored: {not:#?}");
    }

    /// Asserts that none of these responses is stored.
    pub fn assert_none_stored(&self, all: &[&str]) {
        let stored: Vec<_> = all.iter().filter(|say| self.stores(say)).collect();
        assert!(stored.is_empty(), "stored: {stored:#?}");
    }
}

fn scripted_response(request: &OriginRequest) -> String {
    let say = request.field("say").unwrap_or("200 OK");
    let (status, fields) = say.split_once('|').unwrap_or((say, ""));
    let mut lines = String::new();
    for line in fields.split('|').filter(|line| !line.is_empty()) {
        lines += &format!("{}\r\n", line.trim());
    }
    // The number has eight digits, so that ranges can be requested. A 204 has no body.
    let body = format!("{:08}", request.number);
    match status.starts_with("204") {
        true => format!("HTTP/1.1 {status}\r\n{lines}X-Number: {body}\r\n\r\n"),
        false => response(status, &lines, &body),
    }
}
