//! An origin with changing resources. A version's number determines all properties of the version, so that a response
//! can be judged without other information. Does not depend on a cache.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lowroad_testkit::origin::OriginRequest;

/// Pseudorandom numbers from a seed (SplitMix64).
pub struct Draws(pub u64);

impl Draws {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, of: u64) -> bool {
        self.below(100) < of
    }
}

/// A resource: the seed of its history, and its number in the history.
pub type Resource = (u64, u64);

/// The kind of a version's caching fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fresh,
    ForAll,
    Stale,
    StaleMustRevalidate,
    StaleWhileRevalidate,
    NoCache,
    NoStore,
    Private,
    Silent,
}

const KINDS: [Kind; 9] = [
    Kind::Fresh,
    Kind::ForAll,
    Kind::Stale,
    Kind::StaleMustRevalidate,
    Kind::StaleWhileRevalidate,
    Kind::NoCache,
    Kind::NoStore,
    Kind::Private,
    Kind::Silent,
];

/// A version of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    pub of: Resource,
    pub number: u64,
    pub kind: Kind,
    pub status: u16,
    pub varies: bool,
    pub has_tag: bool,
    seed: u64,
}

impl Version {
    /// The version of a resource with this number.
    pub fn of(of: Resource, number: u64) -> Version {
        let mut draws = Draws(of.0 << 32 ^ of.1 << 16 ^ number);
        // Most versions of a resource have the same kind.
        let usual = Draws(of.0 << 32 ^ of.1).next();
        let kind = if draws.percent(70) {
            usual
        } else {
            draws.next()
        };
        let status = if draws.percent(75) {
            200
        } else {
            [404, 410, 301, 203][draws.below(4) as usize]
        };
        Version {
            of,
            number,
            kind: KINDS[(kind % KINDS.len() as u64) as usize],
            status,
            varies: draws.percent(40),
            has_tag: draws.percent(80),
            seed: draws.next(),
        }
    }

    /// Whether a response must not be sent to other clients.
    pub fn is_personal(&self, is_authorized: bool) -> bool {
        let is_for_all = matches!(self.kind, Kind::ForAll | Kind::StaleMustRevalidate);
        matches!(self.kind, Kind::NoStore | Kind::Private) || is_authorized && !is_for_all
    }

    /// The body in a language; if the version is personal, the body contains the client's ID.
    pub fn body(&self, language: &str, id: &str) -> Vec<u8> {
        let Version {
            of, number, seed, ..
        } = self;
        let piece = format!("{}/{}.{number}.{language}.{id};", of.0, of.1);
        // Some bodies are so long that clients can read them while they arrive.
        let times = if seed % 10 == 0 {
            2000 + seed / 10 % 1000
        } else {
            1 + seed / 10 % 40
        };
        piece.repeat(times as usize).into_bytes()
    }

    /// The ETag in a language.
    pub fn tag(&self, language: &str) -> String {
        format!("\"{}-{}-{}-{language}\"", self.of.0, self.of.1, self.number)
    }

    fn fields(&self, language: &str, id: &str) -> String {
        let control = match self.kind {
            Kind::Fresh => "Cache-Control: max-age=3600\r\n",
            Kind::ForAll => "Cache-Control: public, s-maxage=3600\r\n",
            Kind::Stale => "Cache-Control: max-age=60\r\nAge: 60\r\n",
            Kind::StaleMustRevalidate => {
                "Cache-Control: max-age=60, must-revalidate\r\nAge: 60\r\n"
            }
            Kind::StaleWhileRevalidate => {
                "Cache-Control: max-age=60, stale-while-revalidate=3600\r\nAge: 60\r\n"
            }
            Kind::NoCache => "Cache-Control: no-cache, max-age=3600\r\n",
            Kind::NoStore => "Cache-Control: no-store\r\n",
            Kind::Private => "Cache-Control: private, max-age=3600\r\n",
            Kind::Silent => "",
        };
        let vary = if self.varies {
            "Vary: Accept-Language\r\n"
        } else {
            ""
        };
        let tag = match self.has_tag && id.is_empty() {
            true => format!("ETag: {}\r\n", self.tag(language)),
            false => String::new(),
        };
        format!(
            "{control}{vary}{tag}X-Version: {}\r\nX-Language: {language}\r\nX-Id: {id}\r\n",
            self.number
        )
    }
}

/// The language that the origin selects by Accept-Language.
pub fn language(version: &Version, accepted: Option<&str>) -> &'static str {
    match accepted {
        _ if !version.varies => "all",
        Some(accepted) if accepted.starts_with("de") => "de",
        Some(accepted) if accepted.starts_with("fr") => "fr",
        _ => "en",
    }
}

/// The state of all resources. Times are values of a counter.
#[derive(Default)]
pub struct World {
    moments: AtomicU64,
    states: Mutex<HashMap<Resource, State>>,
}

#[derive(Default)]
struct State {
    number: u64,
    /// The last time at which the origin confirmed a version in a language as current.
    confirmed: HashMap<(u64, &'static str), u64>,
    failed: u64,
}

impl World {
    /// Returns a time that is later than all earlier ones.
    pub fn moment(&self) -> u64 {
        self.moments.fetch_add(1, SeqCst) + 1
    }

    /// Changes a resource independently of requests.
    pub fn change(&self, of: Resource) -> u64 {
        let mut states = self.states();
        let state = states.entry(of).or_default();
        state.number += 1;
        state.number
    }

    /// The newest version of a resource.
    pub fn newest(&self, of: Resource) -> u64 {
        self.states().entry(of).or_default().number
    }

    /// The time at which the origin last confirmed a version.
    pub fn confirmed(&self, of: Resource, number: u64, language: &'static str) -> u64 {
        let mut states = self.states();
        let state = states.entry(of).or_default();
        state
            .confirmed
            .get(&(number, language))
            .copied()
            .unwrap_or(0)
    }

    /// The time of the last failed response for a resource.
    pub fn failed(&self, of: Resource) -> u64 {
        self.states().entry(of).or_default().failed
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Resource, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The origin's response to a request: head and body.
    pub fn answer(&self, asked: &OriginRequest) -> (String, Vec<u8>) {
        let of = resource(&asked.target);
        let id = asked.field("x-id").unwrap_or("");
        let mut draws = Draws(of.0 ^ (asked.number as u64) << 20);
        if asked.method == "POST" {
            return match draws.percent(20) {
                true => whole(500, "X-Id: \r\n", Vec::new()),
                false => {
                    let fields = format!("X-Version: {}\r\n", self.change(of));
                    whole(200, &fields, Vec::new())
                }
            };
        }
        let moment = self.moment();
        let mut states = self.states();
        let state = states.entry(of).or_default();
        if draws.percent(4) {
            state.failed = moment;
            return whole(503, &format!("X-Id: {id}\r\n"), b"failed".to_vec());
        }
        let version = Version::of(of, state.number);
        let language = language(&version, asked.field("accept-language"));
        state.confirmed.insert((version.number, language), moment);
        drop(states);
        let is_personal = version.is_personal(asked.field("authorization").is_some());
        let fields = version.fields(language, if is_personal { id } else { "" });
        let body = version.body(language, if is_personal { id } else { "" });
        let has = |tags: &str| tags.contains(&version.tag(language));
        let is_known = asked.field("if-none-match").is_some_and(has);
        if is_known && version.status == 200 && version.has_tag && !is_personal {
            return (format!("HTTP/1.1 304 A\r\n{fields}\r\n"), Vec::new());
        }
        let range = asked.field("range").filter(|_| asked.method == "GET");
        match range.and_then(|range| part(range, body.len())) {
            Some((from, to)) if version.status == 200 && asked.field("if-range").is_none() => {
                let fields = format!(
                    "{fields}Content-Range: bytes {from}-{to}/{}\r\n",
                    body.len()
                );
                whole(206, &fields, body[from..=to].to_vec())
            }
            _ => whole(version.status, &fields, body),
        }
    }
}

/// The first and last byte of a range.
pub fn part(range: &str, len: usize) -> Option<(usize, usize)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
    (from < len).then(|| (from, to.min(len - 1)))
}

/// The resource that a target names.
fn resource(target: &str) -> Resource {
    let mut numbers = target
        .split('/')
        .skip(1)
        .filter_map(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn whole(status: u16, fields: &str, body: Vec<u8>) -> (String, Vec<u8>) {
    (
        format!(
            "HTTP/1.1 {status} A\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        ),
        body,
    )
}
