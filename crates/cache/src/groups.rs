//! Cache-Groups and Cache-Group-Invalidation: responses of one origin that are invalidated together. Read RFC 9875.

use alloc::vec::Vec;

use lowroad_http::structured_fields::{self, StructuredItem};

/// The most groups of a response that are accepted, as many as a cache has to support (§2).
const GROUPS_MAX: usize = 32;
/// The longest name in bytes that is accepted; more than a cache has to support.
const NAME_LEN_MAX: usize = 256;

/// The group names in the lines of Cache-Groups or Cache-Group-Invalidation; empty if the field is invalid. Names are
/// case-sensitive, and valid within one origin.
pub fn names<'v>(lines: impl IntoIterator<Item = &'v [u8]>) -> Vec<Vec<u8>> {
    let members = structured_fields::list(lines).unwrap_or_default();
    let name = |item| match item {
        StructuredItem::String(name) if name.len() <= NAME_LEN_MAX => Some(name),
        _ => None,
    };
    members
        .into_iter()
        .filter_map(name)
        .take(GROUPS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_structured_field_strings() {
        let read = names([&b"\"a, b\";x"[..], b"\"C\", d"]);
        assert_eq!(read, [b"a, b".to_vec(), b"C".to_vec()]);
        // One error makes the whole field invalid.
        assert!(names([&b"\"a\", \"b"[..]]).is_empty());
    }
}
