//! Validates the names of certificates: hosts, or wildcards of one level (`*.example.org`).

use std::fmt;

/// The reason that a name cannot be in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidIdentifier {
    /// Empty, or more than 253 bytes.
    Length,
    /// A label is empty, too long, or has characters other than letters, digits and hyphens.
    Label,
    /// An IP address or a single label: public authorities do not issue certificates for them.
    NotPublic,
}

impl fmt::Display for InvalidIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidIdentifier::Length => "a name must have 1 to 253 bytes",
            InvalidIdentifier::Label => {
                "each label must have 1 to 63 letters, digits and hyphens (other scripts as `xn--…`)"
            }
            InvalidIdentifier::NotPublic => {
                "an address or a single word is not a public name; authorities issue certificates for domains"
            }
        })
    }
}

/// Validates and normalizes a name: lower case, without a final dot.
///
/// # Errors
/// `InvalidIdentifier`
pub fn check(name: &str) -> Result<String, InvalidIdentifier> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name.is_empty() || name.len() > 253 {
        return Err(InvalidIdentifier::Length);
    }
    let labels = || name.strip_prefix("*.").unwrap_or(&name).split('.');
    if !labels().all(is_label) {
        return Err(InvalidIdentifier::Label);
    }
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    // A numeric last label means an IPv4 address.
    if labels().count() < 2 || labels().next_back().is_none_or(is_number) {
        return Err(InvalidIdentifier::NotPublic);
    }
    Ok(name)
}

fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !label.is_empty()
        && label.len() <= 63
        && label.bytes().all(is_inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_normalized_to_lower_case() {
        assert_eq!(check("WWW.Example.org."), Ok("www.example.org".into()));
        assert_eq!(check("*.example.org"), Ok("*.example.org".into()));
        assert_eq!(
            check("xn--bcher-kva.example"),
            Ok("xn--bcher-kva.example".into())
        );
    }

    #[test]
    fn invalid_names_are_refused() {
        assert_eq!(check(""), Err(InvalidIdentifier::Length));
        assert_eq!(check(&"a.".repeat(200)), Err(InvalidIdentifier::Length));
        for name in [
            "a..b",
            "../etc",
            "a_b.example",
            "-a.example",
            "a.*.b",
            "a b.c",
            "**.a.b",
        ] {
            assert_eq!(check(name), Err(InvalidIdentifier::Label), "{name}");
        }
        for name in ["localhost", "127.0.0.1", "*.org", "example.123"] {
            assert_eq!(check(name), Err(InvalidIdentifier::NotPublic), "{name}");
        }
    }
}
