//! Finds the levels of this network namespace by their pinned maps, without their daemons.

use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::programs::folder;

/// Opens all levels. Also returns a message for each that can't be opened.
///
/// # Errors
/// When the namespace can't be determined: a message for the user.
pub fn all() -> Result<(Vec<SoftirqLevel>, Vec<String>), String> {
    let folders = folder::all().map_err(|error| error.to_string())?;
    let (mut levels, mut broken) = (Vec::new(), Vec::new());
    for folder in folders {
        match SoftirqLevel::open(&folder) {
            Ok(level) => levels.push(level),
            // One damaged level must not hide the others.
            Err(error) => broken.push(error.to_string()),
        }
    }
    Ok((levels, broken))
}

/// Opens all levels, or those that answer on `port`. Returns at least one.
///
/// # Errors
/// When there is none: a message for the user.
pub fn at_least_one(port: Option<u16>) -> Result<Vec<SoftirqLevel>, String> {
    let (mut levels, broken) = all()?;
    if let Some(port) = port {
        levels.retain(|level| level.ports().contains(&port));
    }
    match (levels.is_empty(), broken.first(), port) {
        (false, _, _) => Ok(levels),
        (true, Some(broken), _) => Err(broken.clone()),
        (true, None, port) => Err(no_level_text(port)),
    }
}

/// A message that there is no level, with a likely reason.
#[must_use]
pub fn no_level_text(port: Option<u16>) -> String {
    let (suffix, port_name) = match port {
        Some(port) => (format!(" to port {port}"), port.to_string()),
        None => (String::new(), "PORT".to_owned()),
    };
    let reason =
        folder::pin_visibility_problem().map_or_else(String::new, |reason| format!("; {reason}"));
    format!(
        "nothing is attached{suffix} here; run `lowroad attach {port_name}`, or name another network \
         namespace with --netns{reason}"
    )
}

/// The URL of a key, and the request fields that select among the URL's variants.
#[must_use]
pub fn describe_key(key: &[u8]) -> (String, Vec<String>) {
    let Some(parts) = lowroad_softirq::key::RequestKey::parse(key) else {
        return (format!("(no key: {})", key.escape_ascii()), Vec::new());
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let url = format!("http://{}{}", text(parts.host), text(parts.target));
    let fields = [
        ("Accept-Encoding", parts.accept_encoding),
        ("If-None-Match", parts.if_none_match),
        ("If-Modified-Since", parts.if_modified_since),
    ];
    let mut variant: Vec<String> = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}", text(value?))))
        .collect();
    if parts.class.is_http10() {
        variant.push("HTTP/1.0".into());
    }
    if parts.class.closes() {
        variant.push("Connection: close".into());
    }
    variant.push(format!("at {}", parts.address));
    (url, variant)
}

/// A number with thousands separators: 1,234,567.
#[must_use]
pub fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        // Groups of three count from the right.
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_softirq::key::{ConnectionClass, KeyParts, RequestKey};

    #[test]
    fn keys_are_described_by_url_and_fields() {
        let parts = KeyParts {
            class: ConnectionClass::new(true, false),
            address: [192, 0, 2, 1].into(),
            port: 80,
            target: b"/a?b",
            host: b"h:81",
            accept_encoding: Some(b"gzip"),
            if_none_match: None,
            if_modified_since: None,
        };
        let key = RequestKey::build(&parts).expect("a key");
        let (url, variant) = describe_key(key.as_bytes());
        assert_eq!(url, "http://h:81/a?b");
        let wanted = ["Accept-Encoding: gzip", "Connection: close", "at 192.0.2.1"];
        assert_eq!(variant, wanted);
        assert!(describe_key(b"\xff").0.contains("no key"));
    }

    #[test]
    fn digits_are_grouped_in_threes() {
        assert_eq!(group_digits(0), "0");
        assert_eq!(group_digits(999), "999");
        assert_eq!(group_digits(1_000), "1,000");
        assert_eq!(group_digits(1_234_567), "1,234,567");
    }
}
