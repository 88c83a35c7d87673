//! A client of a random history: chooses requests and checks their responses. Does not depend on the transport.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_testkit::ClientResponse;
use lowroad_testkit::origin::OriginRequest;

use super::oracle::{self, Request};
use super::world::{Draws, Resource, World};

/// The state that all clients of a history share.
pub struct History {
    pub seed: u64,
    pub world: Arc<World>,
    /// The newest version of each resource that any client has received.
    acknowledged: Mutex<HashMap<Resource, u64>>,
}

/// A client of a history.
pub struct ModelClient<'h> {
    history: &'h History,
    name: u64,
    draws: Draws,
    /// The ETags that this client has received.
    tags: Vec<(Resource, String)>,
    asked: usize,
    is_alone: bool,
}

/// A request to send.
pub struct PendingRequest {
    target: String,
    /// The request's bytes.
    pub head: String,
    /// Whether the response has a body, unless its head excludes one.
    pub has_body: bool,
    of: Resource,
    /// The oracle's input; `None` for a POST.
    read: Option<Request>,
}

impl History {
    /// Creates a history from its seed.
    pub fn new(seed: u64, world: &Arc<World>) -> History {
        History {
            seed,
            world: world.clone(),
            acknowledged: Mutex::default(),
        }
    }

    fn acknowledged(&self, of: Resource) -> u64 {
        self.known().get(&of).copied().unwrap_or(0)
    }

    fn acknowledge(&self, of: Resource, number: u64) {
        let mut known = self.known();
        let known = known.entry(of).or_default();
        *known = number.max(*known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Resource, u64>> {
        let known = self.acknowledged.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'h> ModelClient<'h> {
    /// Creates a client with this number. If `is_alone`, no other client runs at the same time.
    pub fn of(history: &'h History, name: u64, is_alone: bool) -> ModelClient<'h> {
        ModelClient {
            history,
            name,
            draws: Draws(history.seed << 8 ^ name),
            tags: Vec::new(),
            asked: 0,
            is_alone,
        }
    }

    /// Chooses the next request; `None` at the end.
    pub fn next(&mut self) -> Option<PendingRequest> {
        let of = (self.history.seed, self.draws.below(4));
        let read = match self.draws.below(100) {
            0..6 => None,
            6..14 => {
                self.history.world.change(of);
                return None;
            }
            _ => Some(self.request(of)),
        };
        let target = format!("/{}/{}", of.0, of.1);
        let post = || format!("POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
        Some(PendingRequest {
            head: read.as_ref().map_or_else(post, head_of),
            has_body: read.as_ref().is_none_or(|read| read.method != "HEAD"),
            target,
            of,
            read,
        })
    }

    /// Checks the response to a request.
    ///
    /// # Errors
    /// The rule that the response violates.
    pub fn take(
        &mut self,
        asking: &PendingRequest,
        response: &ClientResponse,
    ) -> Result<(), String> {
        let Some(request) = &asking.read else {
            let version = response.field("x-version").map(str::parse);
            if let Some(Ok(number)) = version {
                self.history.acknowledge(asking.of, number);
            }
            return Ok(());
        };
        oracle::judge(&self.history.world, request, response).map_err(|why| {
            let version = oracle::version_of(request, response);
            format!(
                "seed {}: {why} (it may be {} at least)\n{}\n{}\n{version:?}",
                self.history.seed, request.oldest, asking.head, response.head
            )
        })?;
        if let Some(tag) = response.field("etag") {
            self.tags.push((asking.of, tag.to_string()));
        }
        Ok(())
    }

    fn request(&mut self, of: Resource) -> Request {
        self.asked += 1;
        let draws = &mut self.draws;
        let range = draws.percent(15).then(|| {
            let from = draws.below(200);
            format!("bytes={from}-{}", from + draws.below(300))
        });
        let mut tag = |percent: u64| {
            let known: Vec<_> = self.tags.iter().filter(|(its, _)| *its == of).collect();
            let is_wanted = draws.percent(percent) && !known.is_empty();
            is_wanted.then(|| known[draws.below(known.len() as u64) as usize].1.clone())
        };
        let if_none_match = tag(30);
        let if_range = range.is_some().then(|| tag(50)).flatten();
        Request {
            of,
            id: format!("{}-{}-{}", self.history.seed, self.name, self.asked),
            method: if draws.percent(10) { "HEAD" } else { "GET" },
            language: [None, Some("de"), Some("fr"), Some("en")][draws.below(4) as usize],
            is_authorized: draws.percent(10),
            if_none_match,
            range,
            if_range,
            oldest: self.history.acknowledged(of),
            began: self.history.world.moment(),
            is_alone: self.is_alone,
        }
    }
}

/// The origin's recent requests for the same target, for failure messages.
pub fn requests_for_target(asked: &[OriginRequest], asking: &PendingRequest) -> String {
    let lines = asked.iter().filter(|asked| asked.target == asking.target);
    let lines: Vec<_> = lines
        .map(|asked| asked.head.replace("\r\n", " | "))
        .collect();
    lines[lines.len().saturating_sub(6)..].join("\n")
}

fn head_of(request: &Request) -> String {
    let Request { of, id, method, .. } = request;
    let mut head = format!(
        "{method} /{}/{} HTTP/1.1\r\nHost: test\r\nX-Id: {id}\r\n",
        of.0, of.1
    );
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            head += &format!("{name}: {value}\r\n");
        }
    };
    put("Accept-Language", request.language);
    put(
        "Authorization",
        request.is_authorized.then_some("Basic YTpi"),
    );
    put("If-None-Match", request.if_none_match.as_deref());
    put("Range", request.range.as_deref());
    put("If-Range", request.if_range.as_deref());
    head + "\r\n"
}
