//! The static table of QPACK, as text lines like those of the dynamic table. Read RFC 9204 appendix A.

use crate::field_coding::{FieldClass, TableEntry, is_prefix};
use crate::request::IndexedField as At;

macro_rules! table {
    ($($name:literal $value:literal $kind:expr,)*) => {
        static ENTRIES: [(&str, usize, FieldClass); STATIC_LEN] = {
            use FieldClass::*;
            [$((concat!($name, ": ", $value, "\r\n"), $name.len(), $kind),)*]
        };
    };
}

/// The number of entries.
const STATIC_LEN: usize = 99;
/// The index of a name that the table does not contain.
pub(super) const ABSENT: u8 = u8::MAX;

/// The entry with this index, counted from 0.
#[inline(always)]
pub(super) fn entry(index: usize) -> Option<TableEntry<'static>> {
    let (line, name_len, kind) = ENTRIES.get(index)?;
    Some(TableEntry {
        line: line.as_bytes(),
        name_len: *name_len,
        kind: *kind,
        is_value_valid: true,
    })
}

/// The index of the first entry with this name (in lower case), or [`ABSENT`].
pub(super) const fn index_of(name: &[u8]) -> u8 {
    let mut at = 0;
    while at < STATIC_LEN {
        let (line, name_len, _) = ENTRIES[at];
        if name_len == name.len() && is_prefix(name, line.as_bytes()) {
            return at as u8;
        }
        at += 1;
    }
    ABSENT
}

/// The index of the entry with this value and the name of the entry `first`, the first one with its name.
pub(super) fn index_with_value(first: u8, value: &[u8]) -> Option<usize> {
    let name = entry(usize::from(first))?;
    let name = name.line.get(..name.name_len)?;
    (usize::from(first)..STATIC_LEN).find(|index| {
        let (line, name_len, _) = ENTRIES[*index];
        let (entry_name, rest) = line.as_bytes().split_at(name_len);
        let entry_value = rest.get(2..rest.len() - 2);
        entry_name == name && entry_value == Some(value)
    })
}

table! {
    ":authority" "" InvalidAuthority,
    ":path" "/" Path,
    "age" "0" Plain,
    "content-disposition" "" Plain,
    "content-length" "0" ContentLength,
    "cookie" "" Cookie,
    "date" "" Plain,
    "etag" "" Plain,
    "if-modified-since" "" Indexed(At::IfModifiedSince),
    "if-none-match" "" Indexed(At::IfNoneMatch),
    "last-modified" "" Plain,
    "link" "" Plain,
    "location" "" Plain,
    "referer" "" Indexed(At::Referer),
    "set-cookie" "" Plain,
    ":method" "CONNECT" Method,
    ":method" "DELETE" Method,
    ":method" "GET" Method,
    ":method" "HEAD" Method,
    ":method" "OPTIONS" Method,
    ":method" "POST" Method,
    ":method" "PUT" Method,
    ":scheme" "http" Scheme,
    ":scheme" "https" Scheme,
    ":status" "103" Status,
    ":status" "200" Status,
    ":status" "304" Status,
    ":status" "404" Status,
    ":status" "503" Status,
    "accept" "*/*" Plain,
    "accept" "application/dns-message" Plain,
    "accept-encoding" "gzip, deflate, br" Indexed(At::AcceptEncoding),
    "accept-ranges" "bytes" Plain,
    "access-control-allow-headers" "cache-control" Plain,
    "access-control-allow-headers" "content-type" Plain,
    "access-control-allow-origin" "*" Plain,
    "cache-control" "max-age=0" Presence(At::CacheControl),
    "cache-control" "max-age=2592000" Presence(At::CacheControl),
    "cache-control" "max-age=604800" Presence(At::CacheControl),
    "cache-control" "no-cache" Presence(At::CacheControl),
    "cache-control" "no-store" Presence(At::CacheControl),
    "cache-control" "public, max-age=31536000" Presence(At::CacheControl),
    "content-encoding" "br" Plain,
    "content-encoding" "gzip" Plain,
    "content-type" "application/dns-message" Plain,
    "content-type" "application/javascript" Plain,
    "content-type" "application/json" Plain,
    "content-type" "application/x-www-form-urlencoded" Plain,
    "content-type" "image/gif" Plain,
    "content-type" "image/jpeg" Plain,
    "content-type" "image/png" Plain,
    "content-type" "text/css" Plain,
    "content-type" "text/html; charset=utf-8" Plain,
    "content-type" "text/plain" Plain,
    "content-type" "text/plain;charset=utf-8" Plain,
    "range" "bytes=0-" Indexed(At::Range),
    "strict-transport-security" "max-age=31536000" Plain,
    "strict-transport-security" "max-age=31536000; includesubdomains" Plain,
    "strict-transport-security" "max-age=31536000; includesubdomains; preload" Plain,
    "vary" "accept-encoding" Plain,
    "vary" "origin" Plain,
    "x-content-type-options" "nosniff" Plain,
    "x-xss-protection" "1; mode=block" Plain,
    ":status" "100" Status,
    ":status" "204" Status,
    ":status" "206" Status,
    ":status" "302" Status,
    ":status" "400" Status,
    ":status" "403" Status,
    ":status" "421" Status,
    ":status" "425" Status,
    ":status" "500" Status,
    "accept-language" "" Plain,
    "access-control-allow-credentials" "FALSE" Plain,
    "access-control-allow-credentials" "TRUE" Plain,
    "access-control-allow-headers" "*" Plain,
    "access-control-allow-methods" "get" Plain,
    "access-control-allow-methods" "get, post, options" Plain,
    "access-control-allow-methods" "options" Plain,
    "access-control-expose-headers" "content-length" Plain,
    "access-control-request-headers" "content-type" Plain,
    "access-control-request-method" "get" Plain,
    "access-control-request-method" "post" Plain,
    "alt-svc" "clear" Plain,
    "authorization" "" Presence(At::Authorization),
    "content-security-policy" "script-src 'none'; object-src 'none'; base-uri 'none'" Plain,
    "early-data" "1" Plain,
    "expect-ct" "" Plain,
    "forwarded" "" Plain,
    "if-range" "" Indexed(At::IfRange),
    "origin" "" Plain,
    "purpose" "prefetch" Plain,
    "server" "" Plain,
    "timing-allow-origin" "*" Plain,
    "upgrade-insecure-requests" "1" Plain,
    "user-agent" "" Indexed(At::UserAgent),
    "x-forwarded-for" "" Plain,
    "x-frame-options" "deny" Plain,
    "x-frame-options" "sameorigin" Plain,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_entries_have_the_class_of_their_name_and_value() {
        for index in 0..STATIC_LEN {
            let Some(entry) = entry(index) else {
                panic!("{index}");
            };
            let (name, rest) = entry.line.split_at(entry.name_len);
            let value = rest
                .strip_prefix(b": ")
                .and_then(|rest| rest.strip_suffix(b"\r\n"));
            let kind = value.map(|value| FieldClass::for_name(name).with_value(value));
            assert_eq!(kind, Some(entry.kind), "{index}");
        }
        assert!(entry(99).is_none());
    }

    #[test]
    fn entries_are_found_by_name_and_value() {
        assert_eq!((index_of(b":authority"), index_of(b"x")), (0, ABSENT));
        assert_eq!((index_of(b"date"), index_of(b"user-agent")), (6, 95));
        let status = index_of(b":status");
        assert_eq!(index_with_value(status, b"500"), Some(71));
        assert_eq!(index_with_value(status, b"201"), None);
        assert_eq!(index_with_value(index_of(b"age"), b""), None);
        assert_eq!(index_with_value(ABSENT, b""), None);
    }
}
