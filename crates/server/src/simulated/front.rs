//! What `tests/accelerate/front.rs` has over sockets, in the simulator: an accelerator in front of a scripted origin, and
//! clients that wait for their responses.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use lowroad_engine_sim::Shared;
pub use lowroad_testkit::Response;
pub use lowroad_testkit::origin::Asked;

use super::accelerator::{self, Accelerator, Script, lock};
use super::{BETWEEN, seeds};

/// A scripted origin.
pub struct Origin {
    script: Option<Box<Script>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// An accelerator and its origin.
pub struct Front {
    /// What is behind it.
    pub origin: Origin,
    accelerator: Rc<Accelerator>,
}

/// A client's end of a connection.
pub struct Client {
    accelerator: Rc<Accelerator>,
    id: usize,
    received: Vec<u8>,
}

impl Origin {
    /// An origin that answers each request with the text that `answer` gives, and keeps connections.
    pub fn saying(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Origin {
        Origin::start(move |asked, stream| {
            stream.extend_from_slice(answer(asked).as_bytes());
            true
        })
    }

    /// An origin that does with each request as the script says.
    pub fn start(script: impl Fn(&Asked, &mut Vec<u8>) -> bool + Send + Sync + 'static) -> Origin {
        Origin {
            script: Some(Box::new(script)),
            asked: Arc::default(),
        }
    }

    /// All that it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }

    /// How often it was asked.
    pub fn count(&self) -> usize {
        lock(&self.asked).len()
    }
}

impl Front {
    /// In front of this origin.
    pub fn of(origin: Origin) -> Front {
        Front::caching(origin, "")
    }

    /// In front of this origin, with these lines of `[site.route.cache]`.
    pub fn caching(origin: Origin, lines: &str) -> Front {
        Front::started(seeds::of_world(), origin, ("", lines))
    }

    /// By a seed and with so many workers, in front of an origin that answers as `answer` says.
    pub fn by(
        (seed, workers): (u64, usize),
        answer: impl Fn(&Asked) -> String + Send + Sync + 'static,
    ) -> Front {
        Front::started((seed, workers), Origin::saying(answer), ("", ""))
    }

    /// Starts with a seed, one worker, and these lines of `[[site]]` before its route.
    pub fn of_site(seed: u64, origin: Origin, site: &str) -> Front {
        Front::started((seed, 1), origin, (site, ""))
    }

    fn started(by: (u64, usize), mut origin: Origin, (site, caching): (&str, &str)) -> Front {
        let script = origin.script.take().expect("it has no front yet");
        let accelerator = Accelerator::new(
            by,
            &accelerator::config(site, caching),
            script,
            origin.asked.clone(),
        );
        Front {
            origin,
            accelerator: Rc::new(accelerator),
        }
    }

    /// In front of an origin that answers as `answer` says.
    pub fn saying(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Front {
        Front::of(Origin::saying(answer))
    }

    /// A GET on a connection of its own, with these field lines.
    pub fn get(&self, path: &str, fields: &str) -> Response {
        self.ask("GET", path, fields)
    }

    /// A request without a body on a connection of its own.
    pub fn ask(&self, method: &str, path: &str, fields: &str) -> Response {
        let mut client = self.connect();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        client.response_with_body(method != "HEAD")
    }

    /// Hits, misses and passes so far, and of these those that were stale, coalesced or revalidated.
    pub fn cache_counters(&self) -> ([u64; 3], [u64; 3]) {
        let counters = self.accelerator.cache_counters();
        let of = |name: &str| counters[format!("cache_{name}").as_str()];
        (
            ["hits", "misses", "passes"].map(of),
            ["stale", "coalesced", "revalidated"].map(of),
        )
    }

    /// Lets so much time pass.
    pub fn pass(&self, ms: u64) {
        let until_ms = self.accelerator.world.now_ms() + ms;
        self.accelerator.world.alarm(until_ms);
        let is_over = |world: &Shared| (world.now_ms() >= until_ms).then_some(());
        self.accelerator.until("a later time", is_over);
    }

    /// Has the first worker that comes to a point where it may be interrupted do so, for this.
    pub fn interrupt_once(&self, others: impl Fn(&Front) + 'static) {
        let is_over = Cell::new(false);
        let front = Front {
            origin: Origin {
                script: None,
                asked: self.origin.asked.clone(),
            },
            accelerator: self.accelerator.clone(),
        };
        BETWEEN.set(Some(Rc::new(move || {
            if !is_over.replace(true) {
                front.accelerator.meanwhile(|| others(&front));
            }
        })));
    }

    /// A connection.
    pub fn connect(&self) -> Client {
        let id = self.accelerator.world.connect();
        Client {
            accelerator: self.accelerator.clone(),
            id,
            received: Vec::new(),
        }
    }
}

impl Client {
    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.accelerator.world.send(self.id, bytes.as_ref());
    }

    /// Receives a response to a GET (or whatever has a body when it says so).
    pub fn response(&mut self) -> Response {
        self.response_with_body(true)
    }

    /// Waits for a response, or for the end of the connection without one.
    pub fn response_or_end(&mut self) -> Option<Response> {
        let (id, received) = (self.id, &mut self.received);
        self.accelerator.until("a response or an end", |world| {
            received.extend(world.take_read(id));
            let response = Response::take(received, true);
            let is_over = response.is_some() || world.over(id);
            is_over.then_some(response)
        })
    }

    fn response_with_body(&mut self, body: bool) -> Response {
        let (id, received) = (self.id, &mut self.received);
        self.accelerator.until("a response", |world| {
            received.extend(world.take_read(id));
            let response = Response::take(received, body);
            assert!(
                response.is_some() || !world.over(id),
                "the connection ended"
            );
            response
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.accelerator.world.close(self.id);
    }
}

/// A response with these field lines and this body.
pub fn response(status: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{fields}\r\n{body}")
}

/// The same, 200, with the number of the request as its body.
pub fn numbered(asked: &Asked, fields: &str) -> String {
    response("200 OK", fields, &asked.number.to_string())
}

/// Asks again and again until there is an answer.
pub fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    // Each of them takes some time of the world's.
    let found = (0..1000).find_map(|_| ask());
    found.unwrap_or_else(|| panic!("waited in vain for {what}"))
}
