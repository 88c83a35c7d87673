//! The static table of HPACK, as text lines like those of the dynamic table. Read RFC 7541 appendix A.

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
pub(super) const STATIC_LEN: usize = 61;

/// The entry with this index, counted from 1.
#[inline(always)]
pub(super) fn entry(index: usize) -> Option<TableEntry<'static>> {
    let (line, name_len, kind) = ENTRIES.get(index.checked_sub(1)?)?;
    Some(TableEntry {
        line: line.as_bytes(),
        name_len: *name_len,
        kind: *kind,
        is_value_valid: true,
    })
}

/// The index of the first entry with this name (in lower case); 0 if there is none.
pub(super) const fn index_of(name: &[u8]) -> u8 {
    let mut at = 0;
    while at < STATIC_LEN {
        let (line, name_len, _) = ENTRIES[at];
        if name_len == name.len() && is_prefix(name, line.as_bytes()) {
            return at as u8 + 1;
        }
        at += 1;
    }
    0
}

table! {
    ":authority" "" InvalidAuthority,
    ":method" "GET" Method,
    ":method" "POST" Method,
    ":path" "/" Path,
    ":path" "/index.html" Path,
    ":scheme" "http" Scheme,
    ":scheme" "https" Scheme,
    ":status" "200" Status,
    ":status" "204" Status,
    ":status" "206" Status,
    ":status" "304" Status,
    ":status" "400" Status,
    ":status" "404" Status,
    ":status" "500" Status,
    "accept-charset" "" Plain,
    "accept-encoding" "gzip, deflate" Indexed(At::AcceptEncoding),
    "accept-language" "" Plain,
    "accept-ranges" "" Plain,
    "accept" "" Plain,
    "access-control-allow-origin" "" Plain,
    "age" "" Plain,
    "allow" "" Plain,
    "authorization" "" Presence(At::Authorization),
    "cache-control" "" Presence(At::CacheControl),
    "content-disposition" "" Plain,
    "content-encoding" "" Plain,
    "content-language" "" Plain,
    "content-length" "" ContentLength,
    "content-location" "" Plain,
    "content-range" "" Plain,
    "content-type" "" Plain,
    "cookie" "" Cookie,
    "date" "" Plain,
    "etag" "" Plain,
    "expect" "" Expect,
    "expires" "" Plain,
    "from" "" Plain,
    "host" "" InvalidHost,
    "if-match" "" Indexed(At::IfMatch),
    "if-modified-since" "" Indexed(At::IfModifiedSince),
    "if-none-match" "" Indexed(At::IfNoneMatch),
    "if-range" "" Indexed(At::IfRange),
    "if-unmodified-since" "" Indexed(At::IfUnmodifiedSince),
    "last-modified" "" Plain,
    "link" "" Plain,
    "location" "" Plain,
    "max-forwards" "" Plain,
    "proxy-authenticate" "" Plain,
    "proxy-authorization" "" Plain,
    "range" "" Indexed(At::Range),
    "referer" "" Indexed(At::Referer),
    "refresh" "" Plain,
    "retry-after" "" Plain,
    "server" "" Plain,
    "set-cookie" "" Plain,
    "strict-transport-security" "" Plain,
    "transfer-encoding" "" ConnectionSpecific,
    "user-agent" "" Indexed(At::UserAgent),
    "vary" "" Plain,
    "via" "" Plain,
    "www-authenticate" "" Plain,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_entries_have_the_class_of_their_name_and_value() {
        for index in 1..=STATIC_LEN {
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
        assert!(entry(0).is_none() && entry(62).is_none());
        assert_eq!((index_of(b"date"), index_of(b"x")), (33, 0));
    }
}
