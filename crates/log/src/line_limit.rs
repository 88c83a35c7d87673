//! Bounds the length of a line: of one that is too long, the texts are truncated, so that it stays a valid line of its
//! format. Otherwise a client could keep its request out of a log of messages by a long field.

/// The maximum length of an entry in a message: less than a UDP datagram can hold (65,507 bytes), with room for the
/// header.
pub const MESSAGE_LINE_LEN_MAX: usize = 65_000;
/// The lengths to which texts are truncated, in bytes as received, until the line is short enough.
const TEXT_LENS: [usize; 6] = [usize::MAX, 8192, 2048, 512, 128, 0];

/// The maximum length of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineLimit {
    len_max: usize,
}

impl LineLimit {
    /// No limit, for files.
    pub const NONE: LineLimit = LineLimit {
        len_max: usize::MAX,
    };
    /// The limit of messages.
    pub const MESSAGE: LineLimit = LineLimit {
        len_max: MESSAGE_LINE_LEN_MAX,
    };

    /// Appends a line. `format` appends it with texts of at most the passed length.
    #[inline]
    pub fn append(self, out: &mut Vec<u8>, mut format: impl FnMut(usize, &mut Vec<u8>)) {
        let start = out.len();
        // The first length is unlimited, so that a usual line is formatted only once.
        for text_len_max in TEXT_LENS {
            out.truncate(start);
            format(text_len_max, out);
            if out.len() - start <= self.len_max {
                return;
            }
        }
    }
}

/// The beginning of a text. A character of UTF-8 is not divided.
#[inline]
pub(crate) fn truncated(text: &[u8], len_max: usize) -> &[u8] {
    if text.len() <= len_max {
        return text;
    }
    let is_continuation = |byte: &u8| byte & 0xC0 == 0x80;
    // A character has at most three bytes after the first; more are no UTF-8.
    let start = (len_max.saturating_sub(3)..=len_max)
        .rev()
        .find(|at| !is_continuation(&text[*at]));
    &text[..start.unwrap_or(len_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_until_the_line_fits() {
        let append = |limit: LineLimit, text_len: usize| {
            let mut out = b"earlier\n".to_vec();
            let text = vec![b'x'; text_len];
            // Each byte of the text is escaped, and has six bytes.
            limit.append(&mut out, |len_max, out| {
                out.extend_from_slice(&truncated(&text, len_max).repeat(6));
            });
            out.len() - 8
        };
        for (text_len, len) in [
            (10, 60),
            (10_833, 64_998),
            (10_834, 6 * 8192),
            (1 << 20, 6 * 8192),
        ] {
            assert_eq!(append(LineLimit::MESSAGE, text_len), len);
            assert_eq!(append(LineLimit::NONE, text_len), 6 * text_len);
        }
    }

    #[test]
    fn characters_are_not_divided() {
        let text = "aä€\u{1f600}".as_bytes();
        for (len_max, expected) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aä"),
            (5, "aä"),
            (6, "aä€"),
            (9, "aä€"),
            (10, "aä€\u{1f600}"),
        ] {
            assert_eq!(truncated(text, len_max), expected.as_bytes(), "{len_max}");
        }
        assert_eq!(truncated(&[0x80; 9], 4), [0x80; 4]);
    }
}
