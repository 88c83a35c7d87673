//! The instructions that requests and responses cost. For each input of a length that a client or an origin can choose,
//! the cost grows at most linearly with the length, up to the size limit (`sizes`). Rules that do not match a request
//! add almost no cost, however many there are (`rules`).

mod configurations;
mod protocols;
mod rules;
mod sizes;

use super::front::{TestAccelerator, TestOrigin};

/// Seeds of two simulated networks: the first delivers each message in one piece, the second delivers single bytes.
const WHOLE_MESSAGE_SEED: u64 = 0;
const SINGLE_BYTE_SEED: u64 = 3;

/// A request and its response.
struct CountedExchange {
    /// Seed of the simulated network.
    seed: u64,
    /// Configuration lines of the site, before its route to the origin.
    site: String,
    /// The request's bytes.
    request: Vec<u8>,
    /// The origin's response.
    response: String,
    /// Whether the exchange runs once before it is counted, so that the counted one finds the response stored.
    is_warmed_up: bool,
}

impl CountedExchange {
    /// A GET with these field lines; its response is stored beforehand.
    fn get(target: &str, fields: &str) -> CountedExchange {
        CountedExchange {
            seed: WHOLE_MESSAGE_SEED,
            site: String::new(),
            request: format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").into_bytes(),
            response: stored_response(""),
            is_warmed_up: true,
        }
    }

    /// A GET with a response that has these field lines, and is not stored beforehand.
    fn with_response_fields(fields: &str) -> CountedExchange {
        CountedExchange {
            response: stored_response(fields),
            is_warmed_up: false,
            ..CountedExchange::get("/", "")
        }
    }

    /// The same exchange on a site with these configuration lines.
    fn with_site(self, site: &str) -> CountedExchange {
        CountedExchange {
            site: site.to_string(),
            ..self
        }
    }

    /// Starts the accelerator and returns a function that performs the exchange; its instructions are counted.
    fn prepare(self) -> Box<dyn FnMut()> {
        let CountedExchange {
            response, request, ..
        } = self;
        let origin = TestOrigin::with_response(move |_| response.clone());
        let front = TestAccelerator::with_site(self.seed, origin, &self.site);
        if self.is_warmed_up {
            run_exchange(&front, &request);
        }
        Box::new(move || run_exchange(&front, &request))
    }
}

fn stored_response(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n{fields}\r\nok")
}

fn run_exchange(front: &TestAccelerator, request: &[u8]) {
    let mut client = front.connect();
    client.send(request);
    client.response_or_end();
}
