//! Cost of requests and responses in instructions. For each form that a client or origin can choose, the cost grows at
//! most linearly with its length, up to its size limit (`sizes`); rules that do not match a request add almost no cost,
//! independent of their number (`rules`).

mod configurations;
mod protocols;
mod rules;
mod sizes;

use super::front::{TestFront, TestOrigin};

/// Seeds of a simulated network that delivers each message at once, and of one that delivers byte by byte.
const BY_PIECE: u64 = 0;
const BY_BYTE: u64 = 3;

/// A request and its response.
struct CountedExchange {
    /// Seed of the simulated network.
    seed: u64,
    /// Lines of the site, before its route to the origin.
    site: String,
    /// The request's bytes.
    request: Vec<u8>,
    /// The origin's response.
    response: String,
    /// Whether the exchange runs once before it is counted, so that the response is stored.
    is_stored: bool,
}

impl CountedExchange {
    /// A GET with these field lines and a stored response.
    fn get(target: &str, fields: &str) -> CountedExchange {
        CountedExchange {
            seed: BY_PIECE,
            site: String::new(),
            request: format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").into_bytes(),
            response: stored_response(""),
            is_stored: true,
        }
    }

    /// A GET with these field lines in the response, which is not stored yet.
    fn answered(fields: &str) -> CountedExchange {
        CountedExchange {
            response: stored_response(fields),
            is_stored: false,
            ..CountedExchange::get("/", "")
        }
    }

    /// The same exchange at a site with these lines.
    fn at_site(self, site: &str) -> CountedExchange {
        CountedExchange {
            site: site.to_string(),
            ..self
        }
    }

    /// Prepares the exchange, and returns the function to count.
    fn prepare(self) -> Box<dyn FnMut()> {
        let CountedExchange {
            response, request, ..
        } = self;
        let origin = TestOrigin::with_response(move |_| response.clone());
        let front = TestFront::with_site(self.seed, origin, &self.site);
        if self.is_stored {
            take_place(&front, &request);
        }
        Box::new(move || take_place(&front, &request))
    }
}

fn stored_response(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n{fields}\r\nok")
}

fn take_place(front: &TestFront, request: &[u8]) {
    let mut client = front.connect();
    client.send(request);
    client.response_or_end();
}
