//! The sets of characters of RFC 9110 §5, at their edges.

use super::*;

#[test]
fn token_characters_are_those_of_rfc_9110() {
    for text in ["a", "X-Frame-Options", "!#$%&'*+-.^_`|~", "0"] {
        assert!(is_token(text), "{text}");
    }
    for text in ["", "a b", "a:", "a\t", "ü", "a\r", "(", "\"", "a/b"] {
        assert!(!is_token(text), "{text:?}");
    }
}

#[test]
fn field_values_with_controls_or_outer_whitespace_are_refused() {
    for text in ["", "a", "a b\tc", "max-age=60, public", "\"quoted\"", "~"] {
        assert!(is_field_value(text), "{text}");
    }
    for text in [" a", "a ", "\ta", "a\r\nb", "a\nb", "a\0", "a\x7f", "ü"] {
        assert!(!is_field_value(text), "{text:?}");
    }
}

#[test]
fn managed_fields_are_lower_case_sorted_and_unique() {
    assert!(MANAGED.is_sorted_by(|a, b| a < b));
    assert!(
        MANAGED
            .iter()
            .all(|name| is_token(name) && *name == name.to_ascii_lowercase())
    );
}
