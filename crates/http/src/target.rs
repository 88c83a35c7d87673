//! Decodes and encodes the paths of request targets. Read RFC 3986 §2.1 and §3.3.

use alloc::vec::Vec;

use crate::refusal::RequestRefusal;

/// Percent-decodes a path once and merges slashes. A path that a file system, a proxy and this server might interpret
/// differently is refused: NUL, encoded slashes, backslashes, and dot segments in any encoding.
///
/// # Errors
/// `TargetInvalid` if `path` does not begin with `/`; `TargetTooLong` if `scratch` is shorter than `path`;
/// `PathEscape`, `PathNul`, `PathSlash`, `PathDots`.
pub fn decode<'a>(path: &'a [u8], scratch: &'a mut [u8]) -> Result<&'a [u8], RequestRefusal> {
    decode_as(path, scratch, SlashDecoding::Refused)
}

/// Like [`decode`], for handlers that do not map paths to files: encoded slashes and backslashes are ordinary bytes of
/// the path. Dot segments are refused here, too, whether they are delimited by slashes, encoded slashes or backslashes.
///
/// # Errors
/// Those of [`decode`], except `PathSlash`.
pub fn decode_with_slashes<'a>(
    path: &'a [u8],
    scratch: &'a mut [u8],
) -> Result<&'a [u8], RequestRefusal> {
    decode_as(path, scratch, SlashDecoding::Decoded)
}

/// The length of the decoded path up to the first encoded slash or the first backslash in any form; the length of the
/// whole path if it has neither.
#[must_use]
pub fn plain_len(path: &[u8]) -> usize {
    let (mut len, mut rest, mut last) = (0, path, 0);
    while let Ok(Some((byte, after))) = next(rest, SlashDecoding::Refused) {
        len += usize::from(byte != b'/' || last != b'/');
        (rest, last) = (after, byte);
    }
    len
}

/// The treatment of encoded slashes and of backslashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlashDecoding {
    Refused,
    Decoded,
}

fn decode_as<'a>(
    path: &'a [u8],
    scratch: &'a mut [u8],
    slashes: SlashDecoding,
) -> Result<&'a [u8], RequestRefusal> {
    if path.first() != Some(&b'/') {
        return Err(RequestRefusal::TargetInvalid);
    }
    // Decoding never makes a path longer.
    let out = scratch
        .get_mut(..path.len())
        .ok_or(RequestRefusal::TargetTooLong)?;
    let mut len = 0;
    let mut rest = path;
    while let Some((byte, after)) = next(rest, slashes)? {
        rest = after;
        // File systems merge slashes, too; without merging, one file would have several paths.
        if byte == b'/' && len > 0 && out[len - 1] == b'/' {
            continue;
        }
        out[len] = byte;
        len += 1;
    }
    let decoded = &out[..len];
    // Dot segments are refused after decoding, since `%2e%2e` is one, too. Backslashes delimit segments here because
    // some origins treat them as slashes.
    if decoded
        .split(|b| matches!(b, b'/' | b'\\'))
        .any(|segment| segment == b"." || segment == b"..")
    {
        return Err(RequestRefusal::PathDots);
    }
    Ok(decoded)
}

/// Decodes the first byte of a path. Also returns the rest.
fn next(path: &[u8], slashes: SlashDecoding) -> Result<Option<(u8, &[u8])>, RequestRefusal> {
    match path {
        [] => Ok(None),
        [b'%', high, low, rest @ ..] => {
            let (high, low) = (hex(*high)?, hex(*low)?);
            match high << 4 | low {
                0 => Err(RequestRefusal::PathNul),
                // Some programs decode a path before they split it into segments, others after.
                b'/' | b'\\' if slashes == SlashDecoding::Refused => Err(RequestRefusal::PathSlash),
                byte => Ok(Some((byte, rest))),
            }
        }
        [b'%', ..] => Err(RequestRefusal::PathEscape),
        [b'\\', ..] if slashes == SlashDecoding::Refused => Err(RequestRefusal::PathSlash),
        [0, ..] => Err(RequestRefusal::PathNul),
        [byte, rest @ ..] => Ok(Some((*byte, rest))),
    }
}

fn hex(digit: u8) -> Result<u8, RequestRefusal> {
    hex_digit(digit).ok_or(RequestRefusal::PathEscape)
}

/// The value of a hexadecimal digit.
pub(crate) fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Appends `path` percent-encoded for Location and for a quoted HTML attribute: characters that would need quoting
/// there are escaped, and so is `:`, which could turn a relative reference into one with a scheme. `/` is not escaped;
/// a reference that begins with `//` would name another host, but a path from [`decode`] never does.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(*byte),
            b'-' | b'.' | b'_' | b'~' | b'/' | b'@' | b'!' | b'$' | b'(' | b')' => {
                out.push(*byte);
            }
            b'*' | b'+' | b',' | b';' | b'=' => out.push(*byte),
            byte => {
                let (high, low) = (byte >> 4, byte & 15);
                out.extend_from_slice(&[b'%', HEX[usize::from(high)], HEX[usize::from(low)]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(path: &str) -> Result<Vec<u8>, RequestRefusal> {
        let mut scratch = [0; 200];
        decode(path.as_bytes(), &mut scratch).map(<[u8]>::to_vec)
    }

    #[test]
    fn paths_are_decoded_once() {
        // Decoding twice would turn `%252e` into a dot after the check.
        for (path, want) in [
            ("/", &b"/"[..]),
            ("/a/b.html", b"/a/b.html"),
            ("/a%20b", b"/a b"),
            ("/%e4%F6", b"/\xe4\xf6"),
            ("//a///b/", b"/a/b/"),
            // A second decoding would make a dot segment.
            ("/%252e%252e/", b"/%2e%2e/"),
            ("/...", b"/..."),
            ("/.a/..b/c..", b"/.a/..b/c.."),
            ("/a%3Fb%23c", b"/a?b#c"),
        ] {
            assert_eq!(decoded(path).as_deref(), Ok(want), "{path}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        // Path traversal: some programs map each of these spellings to another file.
        for (path, why) in [
            ("", RequestRefusal::TargetInvalid),
            ("a", RequestRefusal::TargetInvalid),
            ("/a%00", RequestRefusal::PathNul),
            ("/%", RequestRefusal::PathEscape),
            ("/%4", RequestRefusal::PathEscape),
            ("/%4g", RequestRefusal::PathEscape),
            // A nonstandard escape of some old servers.
            ("/%u0041", RequestRefusal::PathEscape),
            ("/a%2fb", RequestRefusal::PathSlash),
            ("/a%2Fb", RequestRefusal::PathSlash),
            ("/a%5cb", RequestRefusal::PathSlash),
            ("/a\\b", RequestRefusal::PathSlash),
            ("/..", RequestRefusal::PathDots),
            ("/../a", RequestRefusal::PathDots),
            ("/a/..", RequestRefusal::PathDots),
            ("/a/./b", RequestRefusal::PathDots),
            ("/%2e%2e/a", RequestRefusal::PathDots),
            ("/.%2E/a", RequestRefusal::PathDots),
            ("/a//../b", RequestRefusal::PathDots),
        ] {
            assert_eq!(decoded(path), Err(why), "{path}");
        }
        assert_eq!(
            decode(b"/abc", &mut [0; 3]),
            Err(RequestRefusal::TargetTooLong)
        );
    }

    #[test]
    fn decode_with_slashes_accepts_encoded_slashes_but_no_dot_segments() {
        // Applications use encoded slashes in identifiers.
        let decoded = |path: &str| {
            let mut scratch = [0; 200];
            decode_with_slashes(path.as_bytes(), &mut scratch).map(<[u8]>::to_vec)
        };
        for (path, want, plain_len) in [
            ("/a/AC%2FDC/x", &b"/a/AC/DC/x"[..], 5),
            ("/a%5Cb\\c", b"/a\\b\\c", 2),
            ("/a\\b", b"/a\\b", 2),
            ("//a//%2Fb", b"/a/b", 3),
            ("/a%20b", b"/a b", 4),
        ] {
            assert_eq!(decoded(path).as_deref(), Ok(want), "{path}");
            assert_eq!(plain_len_of(path), plain_len, "{path}");
        }
        for path in [
            "/..%2fa",
            "/a/..%2F..%2fetc",
            "/%2e%2e%2f",
            "/a%2f.%2fb",
            "/a/..%5C..%5cetc",
            "/a\\..\\b",
        ] {
            assert_eq!(decoded(path), Err(RequestRefusal::PathDots), "{path}");
        }
        assert_eq!(decoded("/a%2f%00"), Err(RequestRefusal::PathNul));
    }

    fn plain_len_of(path: &str) -> usize {
        super::plain_len(path.as_bytes())
    }

    #[test]
    fn encoded_path_decodes_to_the_same_bytes() {
        let name: Vec<u8> = (1..=255u8).filter(|b| !matches!(b, b'/' | b'\\')).collect();
        let mut encoded = b"/".to_vec();
        encode_path(&name, &mut encoded);
        assert!(
            encoded
                .iter()
                .all(|b| b.is_ascii_graphic() && !b"\"'<>&?#:".contains(b))
        );
        let mut scratch = [0; 1000];
        assert_eq!(
            decode(&encoded, &mut scratch).map(|path| &path[1..]),
            Ok(&name[..])
        );
    }
}
