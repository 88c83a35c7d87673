//! Random histories: clients ask for resources that change meanwhile, one after the other and at the same time, and an
//! oracle says of each response whether a cache may give it. `LOWROAD_SEED` runs one alone.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lowroad_testkit::origin::Origin;
use lowroad_testkit::{Client, Response};

use crate::front::Front;
use oracle::Request;
use world::{Draws, Resource, World};

mod oracle;
mod world;

const SEEDS: u64 = 200;
/// Requests of a client that is alone.
const ALONE: usize = 40;
/// Clients at the same time, and the requests of each.
const TOGETHER: (u64, usize) = (3, 15);

/// What all clients of one history know.
struct History<'f> {
    seed: u64,
    front: SocketAddr,
    origin: &'f Origin,
    world: &'f World,
    /// The newest version that was acknowledged to anybody.
    acknowledged: Mutex<HashMap<Resource, u64>>,
}

/// One client of it.
struct Visitor<'h> {
    history: &'h History<'h>,
    name: u64,
    draws: Draws,
    client: Client,
    /// Tags that it has seen.
    tags: Vec<(Resource, String)>,
    asked: usize,
    is_alone: bool,
}

#[test]
fn all_responses_are_allowed() {
    let world = Arc::new(World::default());
    let its_origin = world.clone();
    let origin = Origin::start(move |asked, stream| {
        let (head, body) = its_origin.answer(asked);
        // In two pieces, so that heads come before bodies.
        let is_sent = stream.write_all(head.as_bytes()).is_ok();
        is_sent && (asked.method == "HEAD" || stream.write_all(&body).is_ok())
    });
    let front = Front::of_workers(2, origin);
    let only = std::env::var("LOWROAD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(1..=SEEDS, |seed| seed..=seed);
    for seed in seeds {
        History {
            seed,
            front: front.server.address(),
            origin: &front.origin,
            world: &world,
            acknowledged: Mutex::default(),
        }
        .run();
    }
}

impl History<'_> {
    fn run(&self) {
        Visitor::of(self, 0, true).visit(ALONE);
        thread::scope(|scope| {
            for name in 1..=TOGETHER.0 {
                scope.spawn(move || Visitor::of(self, name, false).visit(TOGETHER.1));
            }
        });
        Visitor::of(self, TOGETHER.0 + 1, true).visit(ALONE / 4);
    }

    fn acknowledged(&self, of: Resource) -> u64 {
        let known = self
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.get(&of).copied().unwrap_or(0)
    }

    fn acknowledge(&self, of: Resource, number: u64) {
        let mut known = self
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(of).or_default();
        *known = number.max(*known);
    }
}

impl<'h> Visitor<'h> {
    fn of(history: &'h History<'h>, name: u64, is_alone: bool) -> Visitor<'h> {
        Visitor {
            history,
            name,
            draws: Draws(history.seed << 8 ^ name),
            client: Client::connect(history.front),
            tags: Vec::new(),
            asked: 0,
            is_alone,
        }
    }

    fn visit(&mut self, requests: usize) {
        for _ in 0..requests {
            let of = (self.history.seed, self.draws.below(4));
            match self.draws.below(100) {
                0..6 => self.post(of),
                6..14 => drop(self.history.world.change(of)),
                _ => self.read(of),
            }
        }
    }

    fn post(&mut self, of: Resource) {
        self.client.send(format!(
            "POST /{}/{} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n",
            of.0, of.1
        ));
        let response = self.client.response();
        if let Some(number) = response
            .field("x-version")
            .and_then(|number| number.parse().ok())
        {
            self.history.acknowledge(of, number);
        }
    }

    fn read(&mut self, of: Resource) {
        let request = self.request(of);
        self.client.send(head_of(&request));
        let response = match request.method {
            "HEAD" => self.client.response_to_head(),
            _ => self.client.response(),
        };
        if let Err(why) = oracle::judge(self.history.world, &request, &response) {
            self.fail(&request, &response, &why);
        }
        if let Some(tag) = response.field("etag") {
            self.tags.push((of, tag.to_string()));
        }
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

    fn fail(&self, request: &Request, response: &Response, why: &str) {
        let target = format!("/{}/{}", request.of.0, request.of.1);
        let asked = self.history.origin.asked();
        let lines = asked.iter().filter(|asked| asked.target == target);
        let asked: Vec<_> = lines
            .map(|asked| asked.head.replace("\r\n", " | "))
            .collect();
        let asked = &asked[asked.len().saturating_sub(6)..];
        let version = oracle::version_of(request, response);
        panic!(
            "seed {}: {why} (it may be {} at least)\n{}\n{}\n{version:?}\nthe origin was asked:\n{}",
            self.history.seed,
            request.oldest,
            head_of(request),
            response.head,
            asked.join("\n"),
        );
    }
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
