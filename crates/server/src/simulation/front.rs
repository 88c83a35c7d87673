//! The simulator's counterpart of `tests/accelerate/front.rs`: an accelerator in front of a scripted origin, and
//! clients that wait for their responses.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use lowroad_engine_sim::SharedWorld;
pub use lowroad_testkit::ClientResponse;
pub use lowroad_testkit::origin::OriginRequest;

use super::accelerator::{self, OriginScript, SimAccelerator, lock};
use super::{BETWEEN, seeds};

/// A scripted origin.
pub struct TestOrigin {
    script: Option<Box<OriginScript>>,
    received: Arc<Mutex<Vec<OriginRequest>>>,
}

/// An accelerator and its origin.
pub struct TestAccelerator {
    /// The origin behind the accelerator.
    pub origin: TestOrigin,
    accelerator: Rc<SimAccelerator>,
}

/// A client's end of a connection.
pub struct SimClient {
    accelerator: Rc<SimAccelerator>,
    id: usize,
    received: Vec<u8>,
}

impl TestOrigin {
    /// An origin that answers each request with the text of `answer`, and keeps connections open.
    pub fn with_response(
        answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
    ) -> TestOrigin {
        TestOrigin::start(move |asked, stream| {
            stream.extend_from_slice(answer(asked).as_bytes());
            true
        })
    }

    /// An origin that runs a script for each request.
    pub fn start(
        script: impl Fn(&OriginRequest, &mut Vec<u8>) -> bool + Send + Sync + 'static,
    ) -> TestOrigin {
        TestOrigin {
            script: Some(Box::new(script)),
            received: Arc::default(),
        }
    }

    /// All requests to the origin so far.
    pub fn requests(&self) -> Vec<OriginRequest> {
        lock(&self.received).clone()
    }

    /// The number of requests to the origin.
    pub fn count(&self) -> usize {
        lock(&self.received).len()
    }
}

impl TestAccelerator {
    /// An accelerator in front of this origin.
    pub fn new(origin: TestOrigin) -> TestAccelerator {
        TestAccelerator::with_cache_settings(origin, "")
    }

    /// An accelerator in front of this origin, with these lines of `[site.route.cache]`.
    pub fn with_cache_settings(origin: TestOrigin, lines: &str) -> TestAccelerator {
        let (seed, workers) = seeds::world_seed();
        TestAccelerator::start(seed, workers, origin, "", lines)
    }

    /// An accelerator with this seed and number of workers, in front of an origin that answers with `answer`.
    pub fn with_seed(
        seed: u64,
        workers: usize,
        answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
    ) -> TestAccelerator {
        TestAccelerator::start(seed, workers, TestOrigin::with_response(answer), "", "")
    }

    /// An accelerator with this seed, one worker, and these lines of `[[site]]` before its route.
    pub fn with_site(seed: u64, origin: TestOrigin, site: &str) -> TestAccelerator {
        TestAccelerator::start(seed, 1, origin, site, "")
    }

    fn start(
        seed: u64,
        workers: usize,
        mut origin: TestOrigin,
        site: &str,
        caching: &str,
    ) -> TestAccelerator {
        // The accelerator owns the script; the origin keeps the list of requests.
        let script = origin.script.take().expect("it has no front yet");
        let accelerator = SimAccelerator::new(
            seed,
            workers,
            &accelerator::config(site, caching),
            script,
            origin.received.clone(),
        );
        TestAccelerator {
            origin,
            accelerator: Rc::new(accelerator),
        }
    }

    /// An accelerator in front of an origin that answers with `answer`.
    pub fn with_response(
        answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
    ) -> TestAccelerator {
        TestAccelerator::new(TestOrigin::with_response(answer))
    }

    /// Sends a GET with these field lines on a new connection, and returns the response.
    pub fn get(&self, path: &str, fields: &str) -> ClientResponse {
        self.request("GET", path, fields)
    }

    /// Sends a request without a body on a new connection, and returns the response.
    pub fn request(&self, method: &str, path: &str, fields: &str) -> ClientResponse {
        let mut client = self.connect();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        client.response_with_body(method != "HEAD")
    }

    /// The numbers of hits, misses and passes, and of those that were stale, coalesced or revalidated.
    pub fn cache_counters(&self) -> ([u64; 3], [u64; 3]) {
        let counters = self.accelerator.cache_counters();
        let of = |name: &str| counters[format!("cache_{name}").as_str()];
        (
            ["hits", "misses", "passes"].map(of),
            ["stale", "coalesced", "revalidated"].map(of),
        )
    }

    /// Advances the simulated time.
    pub fn advance_ms(&self, ms: u64) {
        let until_ms = self.accelerator.world.now_ms() + ms;
        // Simulated time advances only to events, so the alarm adds one at `until_ms`.
        self.accelerator.world.alarm(until_ms);
        let is_over = |world: &SharedWorld| (world.now_ms() >= until_ms).then_some(());
        self.accelerator.run_until("a later time", is_over);
    }

    /// Interrupts the next worker that reaches an interleaving point, once, and runs `others` there.
    pub fn interrupt_once(&self, others: impl Fn(&TestAccelerator) + 'static) {
        let is_over = Cell::new(false);
        let front = TestAccelerator {
            origin: TestOrigin {
                script: None,
                received: self.origin.received.clone(),
            },
            accelerator: self.accelerator.clone(),
        };
        BETWEEN.set(Some(Rc::new(move || {
            if !is_over.replace(true) {
                front.accelerator.run_during_interruption(|| others(&front));
            }
        })));
    }

    /// Opens a connection.
    pub fn connect(&self) -> SimClient {
        let id = self.accelerator.world.connect();
        SimClient {
            accelerator: self.accelerator.clone(),
            id,
            received: Vec::new(),
        }
    }
}

impl SimClient {
    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.accelerator.world.send(self.id, bytes.as_ref());
    }

    /// Waits for a response, to any method but HEAD.
    pub fn response(&mut self) -> ClientResponse {
        self.response_with_body(true)
    }

    /// Waits for a response, or for the connection's end without one.
    pub fn response_or_end(&mut self) -> Option<ClientResponse> {
        let (id, received) = (self.id, &mut self.received);
        self.accelerator.run_until("a response or an end", |world| {
            received.extend(world.take_read(id));
            let response = ClientResponse::take(received, true);
            let is_over = response.is_some() || world.is_over(id);
            is_over.then_some(response)
        })
    }

    fn response_with_body(&mut self, body: bool) -> ClientResponse {
        let (id, received) = (self.id, &mut self.received);
        self.accelerator.run_until("a response", |world| {
            received.extend(world.take_read(id));
            let response = ClientResponse::take(received, body);
            assert!(
                response.is_some() || !world.is_over(id),
                "the connection ended"
            );
            response
        })
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.accelerator.world.close(self.id);
    }
}

/// A response with these field lines and this body.
pub fn response(status: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{fields}\r\n{body}")
}

/// A 200 response with the request's number as its body.
pub fn numbered_response(asked: &OriginRequest, fields: &str) -> String {
    response("200 OK", fields, &asked.number.to_string())
}

/// Repeats a request until `ask` returns a value.
pub fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    // Each attempt advances the simulated time.
    let found = (0..1000).find_map(|_| ask());
    found.unwrap_or_else(|| panic!("waited in vain for {what}"))
}
