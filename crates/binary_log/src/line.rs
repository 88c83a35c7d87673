//! The words of a request line.

/// A request line of three words, which its first and its last space separate, so that the line can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestWords<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The request target, which may contain spaces if the line was malformed.
    pub target: &'a [u8],
    /// The protocol.
    pub protocol: &'a [u8],
}

impl<'a> RequestWords<'a> {
    /// Splits a line. A line without three words becomes the target as a whole.
    pub fn from_line(line: &'a [u8]) -> RequestWords<'a> {
        let split = || {
            let first = memchr::memchr(b' ', line)?;
            let last = memchr::memrchr(b' ', line)?;
            let words = RequestWords {
                method: &line[..first],
                target: line.get(first + 1..last)?,
                protocol: &line[last + 1..],
            };
            // With an empty method or protocol, `append` would not restore the line.
            (!words.method.is_empty() && !words.protocol.is_empty()).then_some(words)
        };
        split().unwrap_or(RequestWords {
            method: b"",
            target: line,
            protocol: b"",
        })
    }

    /// Appends the line.
    pub fn append(&self, out: &mut Vec<u8>) {
        if self.method.is_empty() {
            out.extend_from_slice(self.target);
            return;
        }
        for word in [self.method, b" ", self.target, b" ", self.protocol] {
            out.extend_from_slice(word);
        }
    }

    /// The target without its query.
    pub fn path(&self) -> &'a [u8] {
        let end = memchr::memchr(b'?', self.target).unwrap_or(self.target.len());
        &self.target[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_lines_are_restored() {
        for line in [
            &b"GET / HTTP/1.1"[..],
            b"GET /a b HTTP/1.1",
            b"GET  HTTP/1.1",
            b"GET HTTP/1.1",
            b" / HTTP/1.1",
            b"GET / ",
            b" ",
            b"  ",
            b"",
            b"\x16\x03\x01",
        ] {
            let mut again = Vec::new();
            RequestWords::from_line(line).append(&mut again);
            assert_eq!(again, line);
        }
        let words = RequestWords::from_line(b"GET /a?b=/c HTTP/1.1");
        assert_eq!(words.path(), b"/a");
    }
}
