//! Maps the path of a client's request to that of the request to an origin, and paths in the response back (nginx:
//! `proxy_pass` with a URI, `proxy_redirect`, `proxy_cookie_path`). The bytes of the path that the client sent are kept.

use lowroad_config::PathPrefixes;
use lowroad_http::fields::{ResponseFields, StandardHeader};
use lowroad_http::target::encode_path;

#[cfg(test)]
mod tests;

/// The prefixes of the paths of a route.
pub struct PathMap {
    /// The prefix of the client's path, decoded; does not end in a slash.
    strip: Vec<u8>,
    /// The prefix of the client's path, percent-encoded.
    client_prefix: Vec<u8>,
    /// The prefix of the origin's path, percent-encoded.
    add: Vec<u8>,
    restores: bool,
}

impl PathMap {
    /// The map of a route; `None` if paths are not changed.
    pub fn new(prefixes: &PathPrefixes) -> Option<PathMap> {
        if prefixes.is_empty() {
            return None;
        }
        let mut client_prefix = Vec::new();
        encode_path(prefixes.strip.as_bytes(), &mut client_prefix);
        Some(PathMap {
            strip: prefixes.strip.clone().into_bytes(),
            client_prefix,
            add: prefixes.add.clone().into_bytes(),
            restores: prefixes.restores,
        })
    }

    /// The prefix that is removed from the client's path, percent-encoded; empty if there is none.
    pub fn client_prefix(&self) -> &[u8] {
        &self.client_prefix
    }

    /// The prefix with which paths in responses begin after their translation; `None` if they are not translated.
    pub fn restored_prefix(&self) -> Option<String> {
        let prefix = String::from_utf8_lossy(&self.client_prefix);
        self.restores.then(|| format!("{prefix}/"))
    }

    /// The target of the request to the origin for the client's target (path and query). A target that is not a path
    /// (`*`), or does not have the prefix, is returned unchanged.
    pub fn origin_target(&self, target: &[u8]) -> Vec<u8> {
        let path_len = target.iter().position(|byte| *byte == b'?');
        let (path, query) = target.split_at(path_len.unwrap_or(target.len()));
        let Some(rest) = self.rest_of(path) else {
            return target.to_vec();
        };
        let mut out = Vec::with_capacity(self.add.len() + rest.len() + query.len() + 1);
        out.extend_from_slice(&self.add);
        // A request target must not be empty (RFC 9112 §3.2.1).
        if !rest.is_empty() || self.add.is_empty() {
            out.push(b'/');
        }
        // An encoded slash after the prefix separates segments like a plain one.
        let separator_len = if rest.starts_with(b"%") { 3 } else { 1 };
        let mut rest = rest.get(separator_len..).unwrap_or_default();
        // Two slashes in front could be read as the begin of an authority.
        while let [b'/' | b'\\', after @ ..] = rest
            && self.add.is_empty()
        {
            rest = after;
        }
        out.extend_from_slice(rest);
        out.extend_from_slice(query);
        out
    }

    /// The part of the client's path after the prefix: empty, or beginning with a slash in any encoding.
    fn rest_of<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        // The target `*` of OPTIONS has no path to translate (RFC 9112 §3.2.4).
        if path.first() != Some(&b'/') {
            return None;
        }
        match self.strip.is_empty() {
            true => Some(path),
            false => after_prefix(path, &self.strip),
        }
    }

    /// Translates the path of a reference in a request field, such as Destination (RFC 4918 §10.3), for the origin.
    /// `None` if it is not changed.
    pub fn origin_reference(&self, reference: &[u8], authority: &[u8]) -> Option<OriginReference> {
        let (front, target) = split_reference(reference, authority)?;
        // The origin would resolve the segments, to a path without its prefix.
        if has_dot_segments(target) {
            return Some(OriginReference::Refused);
        }
        let translated = [front, &self.origin_target(target)].concat();
        Some(OriginReference::Translated(translated))
    }

    /// Translates the paths in the fields of a response for the client, which requested `authority`.
    pub fn restore(&self, fields: &mut ResponseFields, authority: &[u8]) {
        if !self.restores {
            return;
        }
        for name in [StandardHeader::Location, StandardHeader::ContentLocation] {
            fields.replace(name, |value| self.client_reference(value, authority));
        }
        fields.replace(StandardHeader::Refresh, |value| {
            self.client_refresh(value, authority)
        });
        fields.replace(StandardHeader::SetCookie, |value| self.client_cookie(value));
    }

    /// The reference for the client; `None` if it is not changed: it refers to another host, is relative, or has a path
    /// without the origin's prefix.
    fn client_reference(&self, reference: &[u8], authority: &[u8]) -> Option<Vec<u8>> {
        let (front, target) = split_reference(reference, authority)?;
        let path_len = target.iter().position(|byte| b"?#".contains(byte));
        let (path, rest) = target.split_at(path_len.unwrap_or(target.len()));
        let path = self.client_path(path)?;
        // Two slashes would name a host (RFC 3986 §4.2); browsers treat a backslash as a slash.
        let dot: &[u8] = match path.get(1) {
            Some(b'/' | b'\\') if front.is_empty() => b"/.",
            _ => b"",
        };
        Some([front, dot, &path, rest].concat())
    }

    /// The client's path for a path of the origin, which begins with a slash.
    fn client_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let rest = match self.add.is_empty() {
            false => path_after(path, self.add.strip_suffix(b"/").unwrap_or(&self.add))?,
            // An application that knows the prefix (X-Forwarded-Prefix) has added it already.
            true if path_after(path, &self.client_prefix).is_some() => return None,
            true => path,
        };
        let path = [&self.client_prefix, rest].concat();
        Some(if path.is_empty() { b"/".into() } else { path })
    }

    /// `5; url=/x` with a translated reference. Refresh is not standardised except by HTML (§4.2.5.3).
    fn client_refresh(&self, value: &[u8], authority: &[u8]) -> Option<Vec<u8>> {
        let is_key = |at: &usize| value[*at..*at + 4].eq_ignore_ascii_case(b"url=");
        let key = (0..value.len().saturating_sub(3)).find(is_key)?;
        let (front, reference) = value.split_at(key + 4);
        let quote: &[u8] = match reference.first() {
            Some(b'"') => b"\"",
            Some(b'\'') => b"'",
            _ => b"",
        };
        let inner = &reference[quote.len()..];
        let end = inner.iter().position(|byte| quote.contains(byte));
        let (inner, rest) = inner.split_at(end.unwrap_or(inner.len()));
        let inner = self.client_reference(inner, authority)?;
        Some([front, quote, &inner, rest].concat())
    }

    /// A value of Set-Cookie with a translated Path (RFC 6265 §5.2.4).
    fn client_cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut attributes: Vec<Vec<u8>> =
            value.split(|byte| *byte == b';').map(Vec::from).collect();
        let mut is_changed = false;
        // The first part is the cookie itself, which may have the name `path`.
        for attribute in attributes.iter_mut().skip(1) {
            let Some(equals) = attribute.iter().position(|byte| *byte == b'=') else {
                continue;
            };
            let (name, path) = attribute.split_at(equals + 1);
            if !name[..equals].trim_ascii().eq_ignore_ascii_case(b"path") {
                continue;
            }
            let path = path.trim_ascii();
            let path = match path {
                // The prefix without a slash also matches the path that equals it.
                b"/" if self.add.is_empty() && !self.client_prefix.is_empty() => {
                    Some(self.client_prefix.clone())
                }
                [b'/', ..] => self.client_path(path),
                _ => None,
            };
            if let Some(path) = path {
                *attribute = [name, &path].concat();
                is_changed = true;
            }
        }
        is_changed.then(|| attributes.join(&b';'))
    }
}

/// Splits a reference to this server into scheme and authority, which may be absent, and the target. `None` for a
/// reference to another host, and for a relative path.
fn split_reference<'r>(reference: &'r [u8], authority: &[u8]) -> Option<(&'r [u8], &'r [u8])> {
    if let [b'/', rest @ ..] = reference {
        // `//host` names another host (RFC 3986 §4.2); browsers treat a backslash as a slash.
        let names_host = matches!(rest.first(), Some(b'/' | b'\\'));
        return (!names_host).then_some((&reference[..0], reference));
    }
    let schemes = [&b"http://"[..], b"https://"];
    let scheme = schemes.iter().find(|scheme| {
        let start = reference.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })?;
    let rest = &reference[scheme.len()..];
    let len = rest.iter().position(|byte| b"/?#\\".contains(byte))?;
    let is_same = !authority.is_empty() && rest[..len].eq_ignore_ascii_case(authority);
    (is_same && rest[len] == b'/').then(|| reference.split_at(scheme.len() + len))
}

/// A reference in a request field for the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginReference {
    /// The reference with the origin's path.
    Translated(Vec<u8>),
    /// The path has dot segments, so that it may lead out of the route's paths: the field is not sent.
    Refused,
}

/// Whether the path of a target has the segment `.` or `..` in any encoding, or an invalid escape, which origins decode
/// differently.
fn has_dot_segments(target: &[u8]) -> bool {
    let end = target.iter().position(|byte| b"?#".contains(byte));
    let mut rest = &target[..end.unwrap_or(target.len())];
    let (mut segment_len, mut is_dots) = (0, true);
    while !rest.is_empty() {
        // An invalid escape may hide a dot segment from this check.
        let Some((byte, after)) = first_byte(rest) else {
            return true;
        };
        match byte {
            b'/' | b'\\' if segment_len > 0 && is_dots => return true,
            b'/' | b'\\' => (segment_len, is_dots) = (0, true),
            byte => {
                segment_len += 1;
                is_dots &= byte == b'.' && segment_len <= 2;
            }
        }
        rest = after;
    }
    segment_len > 0 && is_dots
}

/// The rest of an encoded path after a prefix in the same encoding, if the prefix ends at a segment.
fn path_after<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    matches!(rest.first(), None | Some(b'/')).then_some(rest)
}

/// The rest of an encoded path after a decoded prefix, which ends at a segment. Repeated slashes count as one.
fn after_prefix<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let (mut rest, mut last) = (path, 0);
    for expected in prefix {
        let (mut byte, mut after) = first_byte(rest)?;
        while byte == b'/' && last == b'/' {
            (byte, after) = first_byte(after)?;
        }
        if byte != *expected {
            return None;
        }
        (rest, last) = (after, byte);
    }
    match first_byte(rest) {
        // Patterns take a backslash for a slash, as some origins do.
        None | Some((b'/' | b'\\', _)) => Some(rest),
        Some(_) => None,
    }
}

/// The first byte of an encoded path, decoded, and the rest.
fn first_byte(path: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match path {
        [b'%', high, low, rest @ ..] => {
            let byte = digit(*high)? << 4 | digit(*low)?;
            Some((u8::try_from(byte).ok()?, rest))
        }
        [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}
