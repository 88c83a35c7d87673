//! The servers of an origin, and which of them gets a request: the one that there is, or one of a group. Knows nothing of
//! connections.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_config::HashBy;
use lowroad_engine::Local;
use lowroad_handler::{Outline, Request};
use lowroad_http::fields::Lines;
use lowroad_origin::group::{MemberId, NoMember, PickRequest, Status, hash_of};
use lowroad_origin::names::{self, Following};
use lowroad_origin::{Attempt, Pool, Upstream};

use super::checks::Checks;
use super::link::Links;

/// A server at one address.
pub struct Place {
    /// How it is called in the log: `origin http://127.0.0.1:3000`.
    pub name: Box<str>,
    /// The connections to it.
    pub pool: Arc<Pool<Links>>,
    /// What Host it gets if that is its own affair.
    pub host: Box<[u8]>,
    /// By what scheme it is reached: `http` or `https`.
    pub scheme: &'static str,
    /// Requests that could not be repeated.
    unrepeated: AtomicU64,
    /// What went wrong last.
    latest: Mutex<Option<Box<str>>>,
}

impl Place {
    /// A server that nothing is known of.
    pub fn new(name: String, pool: Arc<Pool<Links>>, host: &str, scheme: &'static str) -> Place {
        Place {
            name: name.into(),
            pool,
            host: host.as_bytes().into(),
            scheme,
            unrepeated: AtomicU64::new(0),
            latest: Mutex::default(),
        }
    }

    /// Something went wrong: for status.
    pub fn failed(&self, why: &str) {
        *self.latest() = Some(why.into());
    }

    /// Counts a request that was not repeated, since its body was longer than the limit.
    pub fn count_unrepeated(&self) {
        self.unrepeated.fetch_add(1, Relaxed);
    }

    fn latest(&self) -> MutexGuard<'_, Option<Box<str>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its connections, and what went wrong last.
    fn text(&self) -> String {
        let counts = self.pool.counts();
        let mut text = format!(
            "{} connections in use, {} kept, {} opened, {} used again, {} did not come about, \
             {} requests not repeated (body too large)",
            counts.connections_max.saturating_sub(counts.free),
            counts.idle,
            counts.opened,
            counts.reused,
            counts.failed,
            self.unrepeated.load(Relaxed)
        );
        if let Some(why) = &*self.latest() {
            text.push_str(&format!("; latest failure: {why}"));
        }
        text
    }
}

/// A try of one of several servers.
pub type Try = Attempt<Arc<Place>>;

/// The servers of one origin, for all routes that go there. Its tasks end with it.
pub struct Servers {
    /// How the origin is called in the log.
    pub name: Box<str>,
    members: Members,
    random: AtomicU64,
}

/// Who there is.
pub enum Members {
    /// One server, at one address that is never looked up again, and that nobody asks how it is.
    One(Arc<Place>),
    /// Any.
    Group(Group),
}

/// Servers of which one is chosen.
pub struct Group {
    /// Them.
    pub upstream: Arc<Upstream<Arc<Place>>>,
    /// Who asks them.
    pub workers: Arc<[Local]>,
    /// By what of a request, if it is by that.
    pub hash: Option<HashBy>,
    /// Lets their names be looked up.
    pub following: Vec<Following>,
    /// Asks how they are.
    pub checks: Option<Arc<Checks>>,
}

impl Servers {
    /// These.
    pub fn new(name: &str, members: Members) -> Servers {
        Servers {
            name: format!("origin {name}").into(),
            members,
            random: AtomicU64::new(random_seed()),
        }
    }

    /// Each server, for people: how it stands, what it did, and what went wrong last.
    pub fn status(&self) -> Vec<String> {
        let group = match &self.members {
            Members::One(place) => return vec![format!("{}: {}", place.name, place.text())],
            Members::Group(group) => group,
        };
        let now_ms = group.workers[0].timers.now_ms();
        let members = group.upstream.with(|group| {
            let of = |one: Status| Some((group.place(one.member)?.clone(), one));
            group
                .status(now_ms)
                .into_iter()
                .filter_map(of)
                .collect::<Vec<_>>()
        });
        let text = |(place, one): &(Arc<Place>, Status)| {
            let backup = if one.backup { ", backup" } else { "" };
            let counts = &one.counts;
            let failed = counts.connect_failed + counts.timed_out + counts.lost;
            let failed = failed + counts.malformed + counts.server_errors;
            format!(
                "{}: {}{backup}, weight {}, {} requests now, {} answered, {failed} failed, taken out {} times; {}",
                place.name,
                one.standing,
                one.weight,
                one.requests,
                counts.answered,
                counts.ejected,
                place.text()
            )
        };
        let mut lines: Vec<String> = members.iter().map(text).collect();
        for why in group.following.iter().filter_map(Following::failure) {
            lines.push(format!("{}: {why}", self.name));
        }
        lines
    }

    /// Why no server can be chosen: that a name has no address yet explains an empty group.
    pub fn explain_absence(&self, none: NoMember) -> String {
        let following = self.group().map_or(&[][..], |group| &group.following);
        names::explain_absence(none, following)
    }

    /// Which server a request would be given to now, and why that one.
    pub fn whom(&self, outline: &Outline<'_>) -> Option<String> {
        let group = match &self.members {
            Members::One(place) => return Some(format!("{}: the only one", place.name)),
            Members::Group(group) => group,
        };
        let key = group.hash.as_ref().and_then(|by| key(by, outline));
        let now_ms = group.workers[0].timers.now_ms();
        let random = mixed(self.random.load(Relaxed));
        Some(group.upstream.with(|group| {
            let pick = PickRequest {
                key,
                client: Some(outline.peer),
                tried: &[],
            };
            let looked = group.look(&pick, now_ms, random);
            let place = looked.map(|(member, why)| (group.place(member), why));
            match place {
                Ok((Some(place), why)) => format!("{}: {why}", place.name),
                Ok((None, _)) => format!("{}: {}", self.name, NoMember::Empty),
                Err(none) => format!("{}: {}", self.name, self.explain_absence(none)),
            }
        }))
    }

    /// The group, if it is one.
    pub fn group(&self) -> Option<&Group> {
        match &self.members {
            Members::One(_) => None,
            Members::Group(group) => Some(group),
        }
    }

    /// The server for a request, which is none of those that were tried.
    ///
    /// # Errors
    /// [`NoMember`]
    pub fn choose(
        &self,
        request: &Request,
        tried: &[MemberId],
        worker: usize,
    ) -> Result<(Arc<Place>, Option<Try>), NoMember> {
        let group = match &self.members {
            Members::One(place) => return Ok((place.clone(), None)),
            Members::Group(group) => group,
        };
        let key = group.hash.as_ref().and_then(|by| {
            let outline = Outline {
                target: request.target(),
                peer: request.peer,
                fields: request.fields(),
            };
            key(by, &outline)
        });
        let now_ms = group.workers[worker % group.workers.len()].timers.now_ms();
        let random = mixed(self.random.fetch_add(1, Relaxed));
        let pick = PickRequest {
            key,
            client: Some(request.peer),
            tried,
        };
        let attempt = group.upstream.attempt(&pick, now_ms, random)?;
        Ok((attempt.place.clone(), Some(attempt)))
    }
}

/// What consistent hashing knows a request by.
fn key(by: &HashBy, outline: &Outline<'_>) -> Option<u64> {
    let fields = &outline.fields;
    match by {
        HashBy::Url => Some(hash_of(outline.target)),
        HashBy::Address => Some(match outline.peer.to_canonical() {
            IpAddr::V4(address) => hash_of(&address.octets()),
            IpAddr::V6(address) => hash_of(&address.octets()),
        }),
        HashBy::Header(name) => {
            let named = |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name.as_bytes());
            let (_, value) = fields.clone().find(named)?;
            Some(hash_of(value))
        }
        HashBy::Cookie(name) => cookie(fields.clone(), name.as_bytes()).map(hash_of),
    }
}

/// The value of a cookie, the first of that name.
fn cookie<'r>(fields: Lines<'r>, name: &[u8]) -> Option<&'r [u8]> {
    let cookies = fields.filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let mut pairs = cookies.flat_map(|(_, value)| value.split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name)?;
        value.strip_prefix(b"=")
    })
}

/// Another one at each start: proxies of one kind must not draw the same.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Spreads a number's bits over all of it (the end of SplitMix64).
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let lines = Lines::of(b"Cookie: a=1; id=x=y;b\r\ncookie: id=z; c=\r\n");
        let found = |name: &str| cookie(lines.clone(), name.as_bytes());
        assert_eq!(found("id"), Some(&b"x=y"[..]));
        assert_eq!(found("c"), Some(&b""[..]));
        assert_eq!((found("b"), found("i")), (None, None));
    }
}
