//! Cache-Groups and Cache-Group-Invalidation: responses of one origin that are invalidated together. Read RFC 9875.

use alloc::vec::Vec;

use lowroad_http::structured_fields::{self, StructuredItem};

/// The number of groups of a response that a cache has to support (§2).
const GROUPS_MAX: usize = 32;
/// The longest name in bytes that is accepted; more than a cache has to support.
const NAME_LEN_MAX: usize = 256;

/// The groups in the lines of one of the fields; empty if the field is invalid. Names are compared byte by byte,
/// within one origin.
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
    fn strings_are_groups() {
        let read = names([&b"\"a, b\";x"[..], b"\"C\", d"]);
        assert_eq!(read, [b"a, b".to_vec(), b"C".to_vec()]);
        // One fault makes the whole field invalid.
        assert!(names([&b"\"a\", \"b"[..]]).is_empty());
    }
}
