//! Sticky sessions: a signed cookie names the server that answers a client.
//!
//! The cookie's value is the server's tag, the end of its validity and an HMAC-SHA256 of both. The tag is an HMAC of the
//! server's name, so the value shows no address, and servers keep their tags while they keep their names and the key. The
//! key depends on the origin and the cookie's name: a cookie of another origin is not valid.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hmac::{Hmac, KeyInit, Mac};
use lowroad_cache::cache_control::make_private;
use lowroad_cache::targeted_fields;
use lowroad_config::{OriginSticky, SameSite};
use lowroad_handler::{HandlerResponse, ResponseFields};
use lowroad_http::fields::FieldLines;
use lowroad_http::status::StatusCode;
use sha2::Sha256;

use super::servers::cookies;

/// The length of the signature in bytes.
const SIGNATURE_LEN: usize = 16;
/// The length of the signed part in bytes: the tag, and the end of the validity.
const SIGNED_LEN: usize = 16;
/// How many cookies of the name are verified, the last ones: a request full of them must not cost a signature each.
const COOKIES_MAX: usize = 8;
/// The end of the validity of a cookie without a lifetime.
const UNLIMITED: u64 = u64::MAX;

/// The key from which the keys of origins without a secret are derived.
pub type SessionKey = [u8; 32];

/// How requests found their servers, over all origins.
#[derive(Default)]
pub struct SessionCounters {
    kept: AtomicU64,
    begun: AtomicU64,
    moved: AtomicU64,
    stale: AtomicU64,
    forged: AtomicU64,
    crowded: AtomicU64,
}

impl SessionCounters {
    /// The counters by their names in the status.
    pub fn list(&self) -> [(&'static str, u64); 6] {
        [
            ("sticky.kept", &self.kept),
            ("sticky.begun", &self.begun),
            ("sticky.moved", &self.moved),
            ("sticky.stale", &self.stale),
            ("sticky.forged", &self.forged),
            ("sticky.crowded", &self.crowded),
        ]
        .map(|(name, count)| (name, count.load(Relaxed)))
    }
}

/// The sticky sessions of an origin.
pub struct StickySessions {
    cookie: Box<str>,
    key: SessionKey,
    lifetime_s: Option<u64>,
    /// The attributes after the value, except Secure.
    attributes: String,
    is_secure: Option<bool>,
}

/// The cookie of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCookie {
    Missing,
    /// The server with this tag. A cookie that is due for renewal has used up half of its lifetime.
    Server {
        tag: u64,
        is_due: bool,
    },
    /// Its lifetime has ended.
    Expired,
    /// It has no valid signature.
    Forged,
}

impl SessionCookie {
    /// The tag of the named server.
    pub fn tag(self) -> Option<u64> {
        match self {
            SessionCookie::Server { tag, .. } => Some(tag),
            SessionCookie::Missing | SessionCookie::Expired | SessionCookie::Forged => None,
        }
    }
}

impl std::fmt::Display for SessionCookie {
    /// Continues a sentence that begins with the cookie.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            SessionCookie::Missing => "is missing, and will be set",
            SessionCookie::Server { is_due: false, .. } => "is valid",
            SessionCookie::Server { is_due: true, .. } => "is valid, and will be renewed",
            SessionCookie::Expired => "has expired, and will be replaced",
            SessionCookie::Forged => "has no valid signature, and will be replaced",
        })
    }
}

/// The last cookies of a name in a request.
struct LastCookies<'r> {
    /// A ring: the cookie number `n` is at `n % COOKIES_MAX`.
    ring: [&'r [u8]; COOKIES_MAX],
    /// The number of all cookies of the name.
    count: usize,
}

impl<'r> LastCookies<'r> {
    fn new(fields: FieldLines<'r>, name: &str) -> LastCookies<'r> {
        let mut last = LastCookies {
            ring: [&[]; COOKIES_MAX],
            count: 0,
        };
        for value in cookies(fields, name.as_bytes()) {
            last.ring[last.count % COOKIES_MAX] = value;
            last.count += 1;
        }
        last
    }

    /// The values, the last one first.
    fn backwards(&self) -> impl Iterator<Item = &'r [u8]> {
        let numbers = self.count.saturating_sub(COOKIES_MAX)..self.count;
        numbers.rev().map(|number| self.ring[number % COOKIES_MAX])
    }
}

/// The server that has answered a request.
pub struct SessionServer {
    pub tag: u64,
    /// Whether a server with the tag of the request's cookie exists.
    pub is_named_known: bool,
    pub unix_s: u64,
    /// Whether the client's request came over https.
    pub is_https: bool,
}

impl StickySessions {
    /// The sessions of the origin `name`. `generated` is the key if the configuration has no secret.
    pub fn new(config: &OriginSticky, name: &str, generated: &SessionKey) -> StickySessions {
        let secret = match &config.secret {
            Some(secret) => secret.expose().as_bytes(),
            // Random, so that no client can sign cookies.
            None => generated,
        };
        let mut mac = mac_of(secret);
        mac.update(b"lowroad sticky session\0");
        // Neither a name nor a cookie contains NUL.
        mac.update(&[name.as_bytes(), b"\0", config.cookie.as_bytes()].concat());
        // The path of the route could differ from that of the client, so the cookie is for the whole host.
        let mut attributes = String::from("; Path=/");
        if let Some(lifetime_s) = config.lifetime_s {
            attributes.push_str(&format!("; Max-Age={lifetime_s}"));
        }
        if config.is_http_only {
            attributes.push_str("; HttpOnly");
        }
        attributes.push_str(match config.same_site {
            SameSite::Lax => "; SameSite=Lax",
            SameSite::Strict => "; SameSite=Strict",
            SameSite::None => "; SameSite=None",
        });
        StickySessions {
            cookie: config.cookie.as_str().into(),
            key: mac.finalize().into_bytes().into(),
            lifetime_s: config.lifetime_s,
            attributes,
            is_secure: config.is_secure,
        }
    }

    /// The name of the cookie.
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// The tag of the server with this name.
    pub fn tag_of(&self, server: &str) -> u64 {
        let mut mac = mac_of(&self.key);
        mac.update(b"server\0");
        mac.update(server.as_bytes());
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        // 64 bits suffice: a collision of two servers of a group would only join their sessions.
        digest
            .first_chunk()
            .map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// The last valid cookie among the fields of a request. A browser may send several with the same name: those of other
    /// paths and domains, which another server or an attacker on a neighbouring host has set. It sends those with longer
    /// paths first (RFC 6265 §5.4), so this server's cookie, with the path `/`, is among the last.
    pub fn read(&self, fields: FieldLines<'_>, unix_s: u64) -> SessionCookie {
        self.read_last(&LastCookies::new(fields, &self.cookie), unix_s)
    }

    /// Reads the cookie of a request to answer, and counts requests of which not all cookies are verified.
    pub fn read_counted(
        &self,
        fields: FieldLines<'_>,
        unix_s: u64,
        counters: &SessionCounters,
    ) -> SessionCookie {
        let cookies = LastCookies::new(fields, &self.cookie);
        if cookies.count > COOKIES_MAX {
            counters.crowded.fetch_add(1, Relaxed);
        }
        self.read_last(&cookies, unix_s)
    }

    fn read_last(&self, cookies: &LastCookies<'_>, unix_s: u64) -> SessionCookie {
        let mut found = SessionCookie::Missing;
        for value in cookies.backwards() {
            match self.read_value(value, unix_s) {
                server @ SessionCookie::Server { .. } => return server,
                // An expired cookie is a session that has ended, and explains more than a foreign one.
                SessionCookie::Expired => found = SessionCookie::Expired,
                _ if found == SessionCookie::Missing => found = SessionCookie::Forged,
                _ => {}
            }
        }
        found
    }

    fn read_value(&self, value: &[u8], unix_s: u64) -> SessionCookie {
        let Some((tag, end_s)) = self.verify(value) else {
            return SessionCookie::Forged;
        };
        if end_s <= unix_s {
            return SessionCookie::Expired;
        }
        let remaining_s = end_s - unix_s;
        let is_due = match self.lifetime_s {
            // A longer validity is from an earlier configuration.
            Some(lifetime_s) => remaining_s < lifetime_s / 2 || remaining_s > lifetime_s,
            None => end_s != UNLIMITED,
        };
        SessionCookie::Server { tag, is_due }
    }

    /// Adds a cookie to a response, unless the request had the right one, and counts the result.
    pub fn complete(
        &self,
        read: SessionCookie,
        server: &SessionServer,
        response: &mut HandlerResponse,
        counters: &SessionCounters,
    ) {
        let counter = match read {
            SessionCookie::Missing => &counters.begun,
            SessionCookie::Forged => &counters.forged,
            SessionCookie::Expired => &counters.stale,
            SessionCookie::Server { tag, .. } if tag == server.tag => &counters.kept,
            SessionCookie::Server { .. } if server.is_named_known => &counters.moved,
            SessionCookie::Server { .. } => &counters.stale,
        };
        // Relaxed suffices: the counters are independent.
        counter.fetch_add(1, Relaxed);
        // A cache takes the fields of 304 for its stored response, and joins those of parts.
        let is_part = matches!(
            response.status,
            StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT
        );
        let is_right =
            matches!(read, SessionCookie::Server { tag, is_due: false } if tag == server.tag);
        if !is_right && !is_part {
            exclude_cookie_from_caches(&mut response.fields);
            let line = self.set_cookie(server);
            response.fields.push("Set-Cookie", line.as_bytes());
        }
    }

    fn set_cookie(&self, server: &SessionServer) -> String {
        let end_s = self
            .lifetime_s
            .map_or(UNLIMITED, |lifetime_s| server.unix_s + lifetime_s);
        let mut value = [0; SIGNED_LEN];
        value[..8].copy_from_slice(&server.tag.to_be_bytes());
        value[8..].copy_from_slice(&end_s.to_be_bytes());
        let signature: [u8; 32] = self.signature(&value).finalize().into_bytes().into();
        let mut line = format!("{}=", self.cookie);
        for byte in value.iter().chain(&signature[..SIGNATURE_LEN]) {
            line.push_str(&format!("{byte:02x}"));
        }
        line.push_str(&self.attributes);
        if self.is_secure.unwrap_or(server.is_https) {
            line.push_str("; Secure");
        }
        line
    }

    /// The tag and the end of the validity, if the signature is valid.
    fn verify(&self, text: &[u8]) -> Option<(u64, u64)> {
        let bytes: [u8; SIGNED_LEN + SIGNATURE_LEN] = unhex(text)?;
        let (value, signature) = bytes.split_first_chunk::<SIGNED_LEN>()?;
        // Takes the same time for every signature, so that timing reveals nothing about the right one.
        self.signature(value)
            .verify_truncated_left(signature)
            .ok()?;
        // Only now are the bytes known to be from this server.
        let (tag, end_s) = value.split_first_chunk::<8>()?;
        let end_s: [u8; 8] = end_s.try_into().ok()?;
        Some((u64::from_be_bytes(*tag), u64::from_be_bytes(end_s)))
    }

    fn signature(&self, value: &[u8; SIGNED_LEN]) -> Hmac<Sha256> {
        let mut mac = mac_of(&self.key);
        mac.update(b"cookie\0");
        mac.update(value);
        mac
    }
}

/// Lets caches store a response without the cookie that is about to be added.
fn exclude_cookie_from_caches(fields: &mut ResponseFields) {
    let has = |name: &str| fields.values(name).next().is_some();
    // The application's own cookie would be removed as well, although the response may be for one client; and caches that
    // read a targeted field with a lifetime ignore Cache-Control (RFC 9213 §2.2). `Pragma: no-cache` counts only without
    // Cache-Control (RFC 9111 §5.4).
    let mut names = ["Set-Cookie", "Pragma"]
        .into_iter()
        .chain(targeted_fields::NAMES);
    match names.any(has) {
        true => make_private(fields),
        false => fields.push("Cache-Control", b"private=\"set-cookie\""),
    }
}

fn mac_of(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn unhex<const LEN: usize>(text: &[u8]) -> Option<[u8; LEN]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; LEN];
    // A longer text would otherwise be valid, too.
    if text.len() != 2 * LEN {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
