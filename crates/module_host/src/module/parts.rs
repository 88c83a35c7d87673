//! Extracts cookies and parameters for modules, and checks paths and log lines. All functions are pure.

use std::borrow::Cow;

use lowroad_http::fields::FieldLines;

/// The value of a cookie (RFC 6265 §4.2.1).
pub fn cookie<'a>(fields: FieldLines<'a>, name: &[u8]) -> Option<&'a [u8]> {
    let cookies = fields.filter(|(field_name, _)| field_name.eq_ignore_ascii_case(b"cookie"));
    let mut pairs = cookies.flat_map(|(_, value)| value.split(|byte| *byte == b';'));
    pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}

/// The first query parameter with this name, decoded like an HTML form.
pub fn parameter<'a>(query: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let index = pair.iter().position(|byte| *byte == b'=');
        let (raw_name, value) = match index {
            Some(index) => (&pair[..index], &pair[index + 1..]),
            None => (pair, &pair[pair.len()..]),
        };
        // Names are compared after decoding, since a client may encode any character.
        (*decode(raw_name) == *name).then(|| decode(value))
    })
}

/// Decodes percent-encoding; `+` is a space.
fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    decoded.push(high << 4 | low);
                    rest = tail;
                }
                // An invalid escape is left unchanged, as in browsers.
                _ => decoded.push(b'%'),
            },
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Whether this is a decoded path in normalized form, as routes expect.
pub fn is_path(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/');
    path.starts_with(b"/")
        && !path.contains(&0)
        // `//` and dot segments would be other names for a file on a route that may have access rules.
        && !path.windows(2).any(|two| two == b"//")
        && !segments.any(|segment| segment == b"." || segment == b"..")
}

/// Converts a text to one log line: without control characters, and at most `len_max` long.
pub fn line(text: &str, len_max: usize) -> Cow<'_, str> {
    if text.len() <= len_max && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    // A line break could forge a log line.
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    Cow::Owned(text.trim_end().chars().map(visible).take(len_max).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_found_by_its_full_name() {
        let fields = || FieldLines::new(b"Cookie: xid=0; id=7\r\ncookie: b=2;\r\n");
        assert_eq!(cookie(fields(), b"id"), Some(&b"7"[..]));
        assert_eq!(cookie(fields(), b"b"), Some(&b"2"[..]));
        assert_eq!(cookie(fields(), b"i"), None);
    }

    #[test]
    fn parameters_are_decoded() {
        let found =
            |name: &[u8]| parameter(b"a=1&b%3D=x+y%C3%BC&c&d=%zz%", name).map(Cow::into_owned);
        assert_eq!(found(b"a").as_deref(), Some(&b"1"[..]));
        assert_eq!(found(b"b=").as_deref(), Some("x y\u{fc}".as_bytes()));
        assert_eq!(found(b"c").as_deref(), Some(&b""[..]));
        assert_eq!(found(b"d").as_deref(), Some(&b"%zz%"[..]));
        assert_eq!(found(b"e"), None);
    }

    #[test]
    fn paths_with_dot_segments_are_rejected() {
        assert!(is_path(b"/a/..b/.c"));
        for path in [&b"a"[..], b"", b"/..", b"/a/./b", b"/a\0", b"//a", b"/a//"] {
            assert!(!is_path(path), "{path:?}");
        }
    }

    #[test]
    fn log_line_has_no_control_characters_and_a_limit() {
        assert_eq!(line("a\nb\u{1b}[0m\n", 100), "a b [0m");
        assert_eq!(line("abcdef", 3), "abc");
    }
}
