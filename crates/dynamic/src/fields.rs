//! The fields of a response in their order, in one piece of memory, as lines that can go out as
//! they are. It knows which fields are the server's own affair; not what the others mean.

/// What the server says itself, or says to its own next hop only; a program's are dropped.
const OWN: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// The field by which a program names what its response depends on; not for clients.
pub const TAG_FIELD: &str = "cache-tag";
/// The fields with which a program can say for how long its response holds.
const LIFETIME: [&str; 2] = ["cache-control", "expires"];

/// A bit for each length that one of these names has.
const KNOWN_LENS: u32 = lens(&OWN) | lens(&[TAG_FIELD]) | lens(&LIFETIME);

const fn lens(names: &[&str]) -> u32 {
    let (mut lens, mut at) = (0, 0);
    while at < names.len() {
        lens |= 1 << names[at].len();
        at += 1;
    }
    lens
}

/// Room for the fields of an ordinary response.
const LINES_LEN: usize = 256;

/// Fields in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// `name: value\r\n` each; names are tokens, values have no control characters.
    lines: Vec<u8>,
    len: usize,
    lifetime: bool,
    tags: bool,
}

impl Fields {
    /// No fields.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether Cache-Control or Expires is among them.
    pub fn give_lifetime(&self) -> bool {
        self.lifetime
    }

    /// Adds a field, unless it is the server's own affair. `name` must be a token; what a value
    /// cannot have, like the bytes of a line end, becomes a space.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        let at = self.lines.len() + name.len() + 2;
        self.append(name.as_bytes(), value);
        let written = self.lines.get_mut(at..).unwrap_or_default();
        let len = written.len().saturating_sub(2);
        let refused = |byte: &&mut u8| !is_text(**byte);
        let written = written.iter_mut().take(len);
        written.filter(refused).for_each(|byte| *byte = b' ');
    }

    /// Adds a field as [`push`](Fields::push) does; false, and nothing is added, if name or value
    /// are not those of a field (RFC 9110 §5).
    pub fn try_push(&mut self, name: &[u8], value: &[u8]) -> bool {
        let good = is_token(name) && value.iter().fold(true, |good, byte| good & is_text(*byte));
        if good {
            self.append(name, value);
        }
        good
    }

    /// Name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let lines = self.lines.split_inclusive(|byte| *byte == b'\n');
        lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let value = line.get(colon + 2..line.len().checked_sub(2)?)?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, value))
        })
    }

    /// The values of those with this name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.iter();
        let named = named.filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value)
    }

    /// The lines for a client, if all are; else some, as [`iter`](Fields::iter) has them, are not.
    pub fn lines(&self) -> Option<&[u8]> {
        (!self.tags).then_some(&self.lines)
    }

    /// Bytes that they take.
    pub fn size(&self) -> usize {
        self.lines.len()
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        // Most have a length that none of those has of which more must be known.
        if name.len() < u32::BITS as usize && KNOWN_LENS >> name.len() & 1 != 0 {
            let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
            if OWN.iter().any(is) {
                return;
            }
            self.tags |= is(&TAG_FIELD);
            self.lifetime |= LIFETIME.iter().any(is);
        }
        if self.lines.capacity() == 0 {
            let len = name.len() + value.len() + 4;
            self.lines = Vec::with_capacity(len.max(LINES_LEN));
        }
        self.lines.extend_from_slice(name);
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
        self.len += 1;
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(from: I) -> Fields {
        let mut fields = Fields::new();
        from.into_iter()
            .for_each(|(name, value)| fields.push(name, value));
        fields
    }
}

/// Whether this is a token (RFC 9110 §5.6.2).
pub fn is_token(name: &[u8]) -> bool {
    let good = |good, byte: &u8| good & TOKEN[usize::from(*byte)];
    !name.is_empty() && name.iter().fold(true, good)
}

fn is_text(byte: u8) -> bool {
    (byte >= b' ') & (byte != 0x7f) | (byte == b'\t')
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_lines_in_their_order() {
        let mut fields = Fields::new();
        fields.push("Content-Type", b"text/plain");
        assert!(fields.try_push(b"X-A", b"b\tc: d"));
        fields.push("Empty", b"");
        let lines = &b"Content-Type: text/plain\r\nX-A: b\tc: d\r\nEmpty: \r\n"[..];
        assert_eq!((fields.lines(), fields.len()), (Some(lines), 3));
        let again: Fields = fields.iter().collect();
        assert_eq!(again, fields);
        assert_eq!(fields.values("x-a").next(), Some(&b"b\tc: d"[..]));
        assert!(!fields.give_lifetime());
    }

    #[test]
    fn no_value_is_two_lines() {
        let mut fields = Fields::new();
        fields.push("X", b"b\r\nSet-Cookie: c\0");
        assert_eq!(fields.lines(), Some(&b"X: b  Set-Cookie: c \r\n"[..]));
        for (name, value) in [
            (&b""[..], &b"b"[..]),
            (b"X A", b"b"),
            (b"X:", b"b"),
            (b"X", b"b\r\nSet-Cookie: c"),
            (b"X", b"\x7f"),
        ] {
            assert!(!fields.try_push(name, value), "{name:?}");
        }
        assert_eq!(fields.len(), 1);
    }

    #[test]
    fn what_is_the_servers_is_dropped_and_what_counts_is_known() {
        let mut fields = Fields::new();
        for name in ["Date", "CONTENT-LENGTH", "Transfer-Encoding", "Upgrade"] {
            fields.push(name, b"1");
        }
        assert!(fields.is_empty());
        fields.push("expires", b"0");
        assert!(fields.give_lifetime() && fields.lines().is_some());
        fields.push("Cache-Tag", b"a, b");
        assert_eq!(fields.lines(), None);
        assert_eq!(fields.values(TAG_FIELD).next(), Some(&b"a, b"[..]));
    }
}
