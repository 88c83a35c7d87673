//! Parses CDN-Cache-Control, a targeted field, which overrides Cache-Control and Expires in shared caches. Read RFC
//! 9213.

use alloc::string::ToString;

use crate::cache_control::CacheControl;
use lowroad_http::structured_fields::{self, StructuredItem};

/// Fields with lifetimes for caches of a kind. They would override Cache-Control there (RFC 9213 §2.2).
pub const NAMES: [&str; 2] = ["CDN-Cache-Control", "Surrogate-Control"];

/// Whether a field has lifetimes for caches of a kind.
pub fn is_targeted(name: &str) -> bool {
    NAMES.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Parses the field's lines. `None` if the field is absent, empty or invalid: then Cache-Control and Expires count
/// (§2.1). A directive with a value of the wrong type makes the whole field invalid.
pub fn read(lines: &[&[u8]]) -> Option<CacheControl> {
    if lines.is_empty() {
        return None;
    }
    let members = structured_fields::dictionary(lines.iter().copied()).filter(|m| !m.is_empty())?;
    let mut control = CacheControl {
        present: true,
        ..CacheControl::default()
    };
    for (name, value) in members {
        let is_time = [
            &b"max-age"[..],
            b"s-maxage",
            b"stale-while-revalidate",
            b"stale-if-error",
        ]
        .contains(&&*name);
        match value {
            StructuredItem::Integer(secs) if is_time => {
                let secs = u64::try_from(secs).ok()?.to_string();
                control.add_directive(&name, Some(secs.as_bytes()));
            }
            _ if is_time => return None,
            StructuredItem::Boolean(false) => {}
            // Qualified `no-cache` and `private` count as unqualified: stricter, and simpler.
            _ => control.add_directive(&name, None),
        }
    }
    Some(control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_control::DeltaSeconds;

    #[test]
    fn valid_cdn_cache_control_is_parsed() {
        let control =
            read(&[b"max-age=99999999999, must-revalidate, private=?0"]).expect("it is valid");
        assert_eq!(control.max_age, DeltaSeconds::Secs(1 << 31));
        assert!(control.must_revalidate && !control.private && !control.no_store);
    }

    #[test]
    fn invalid_or_empty_cdn_cache_control_is_ignored() {
        // RFC 9213 §2.1.
        for bad in [
            "",
            "max-age=\"1\"",
            "max-age=1, &&",
            "max-age=-1",
            "max-age",
            "max-age =1",
        ] {
            assert_eq!(read(&[bad.as_bytes()]), None, "{bad}");
        }
        assert_eq!(read(&[]), None);
    }
}
