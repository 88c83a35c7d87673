//! The servers of an origin, and which of them gets a request: the one that there is, or one of a group. Knows nothing of
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_config::HashBy;
use lowroad_engine::Local;
use lowroad_http::fields::Lines;
use lowroad_origin::group::{MemberId, NoMember, hash_of};
use lowroad_origin::names::Following;
use lowroad_origin::{Attempt, Pool, Upstream};

use super::checks::Checks;
use super::link::Links;
use crate::Request;

/// A server at one address.
pub struct Place {
    /// How it is called in the log: `origin http://127.0.0.1:3000`.
    pub name: Box<str>,
    /// The connections to it.
    pub pool: Arc<Pool<Links>>,
    /// What Host it gets if that is its own affair.
    pub host: Box<[u8]>,
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
        let key = group.hash.as_ref().and_then(|by| key(by, request));
        let now_ms = group.workers[worker % group.workers.len()].timers.now_ms();
        let random = mixed(self.random.fetch_add(1, Relaxed));
        let attempt = group.upstream.attempt(key, tried, now_ms, random)?;
        Ok((attempt.place.clone(), Some(attempt)))
    }
}

/// What consistent hashing knows a request by.
fn key(by: &HashBy, request: &Request) -> Option<u64> {
    match by {
        HashBy::Url => Some(hash_of(request.target())),
        HashBy::Address => Some(match request.peer.to_canonical() {
            std::net::IpAddr::V4(address) => hash_of(&address.octets()),
            std::net::IpAddr::V6(address) => hash_of(&address.octets()),
        }),
        HashBy::Header(name) => request.field(name).map(hash_of),
        HashBy::Cookie(name) => cookie(request.fields(), name.as_bytes()).map(hash_of),
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
