//! Parses structured fields (dictionaries and lists), as strictly as RFC 8941 requires. Read RFC 8941 §3 and §4.2.
//!
//! A field that violates any rule is `None` as a whole. Parameters are checked but not returned. Decimals and byte
//! sequences are checked, but their values are not returned, since no field parsed here needs them.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// The most members that are accepted.
const MEMBERS_MAX: usize = 256;

/// A member of a dictionary or list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StructuredItem {
    /// An integer of at most 15 digits.
    Integer(i64),
    /// A token.
    Token(Vec<u8>),
    /// A string, without its quotes and escapes.
    String(Vec<u8>),
    /// A boolean; also the value of a key that is given without a value.
    Boolean(bool),
    /// The items of an inner list.
    Inner(Vec<StructuredItem>),
    /// A decimal or a byte sequence.
    Other,
}

/// Parses a dictionary from the lines of a field. For a repeated key the last value counts, in the position of the
/// first.
pub fn dictionary<'v>(
    lines: impl IntoIterator<Item = &'v [u8]>,
) -> Option<Vec<(Vec<u8>, StructuredItem)>> {
    let joined = joined(lines);
    let mut members: Vec<(Vec<u8>, StructuredItem)> = Vec::new();
    // A map instead of a linear search: a field with many keys must not cost quadratic time.
    let mut indexes: BTreeMap<&[u8], usize> = BTreeMap::new();
    StructuredReader(&joined).members(|reader| {
        let key = reader.key()?;
        // RFC 8941 §3.2: a key without a value is true.
        let value = match reader.skip(b'=') {
            true => reader.member()?,
            false => {
                reader.parameters()?;
                StructuredItem::Boolean(true)
            }
        };
        match indexes.entry(key) {
            Entry::Occupied(entry) => members.get_mut(*entry.get())?.1 = value,
            Entry::Vacant(entry) => {
                entry.insert(members.len());
                members.push((key.to_vec(), value));
            }
        }
        (members.len() <= MEMBERS_MAX).then_some(())
    })?;
    Some(members)
}

/// Parses a list from the lines of a field.
pub fn list<'v>(lines: impl IntoIterator<Item = &'v [u8]>) -> Option<Vec<StructuredItem>> {
    let joined = joined(lines);
    let mut members = Vec::new();
    StructuredReader(&joined).members(|reader| {
        members.push(reader.member()?);
        (members.len() <= MEMBERS_MAX).then_some(())
    })?;
    Some(members)
}

// RFC 8941 §4.2: the lines are combined into one list first.
fn joined<'v>(lines: impl IntoIterator<Item = &'v [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for (at, line) in lines.into_iter().enumerate() {
        if at > 0 {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(line);
    }
    joined
}

/// A parser; holds the rest of the input.
struct StructuredReader<'b>(&'b [u8]);

impl<'b> StructuredReader<'b> {
    /// Parses comma-separated members with `parse_member` until the end.
    fn members(
        &mut self,
        mut parse_member: impl FnMut(&mut StructuredReader<'b>) -> Option<()>,
    ) -> Option<()> {
        self.spaces();
        while !self.0.is_empty() {
            parse_member(self)?;
            self.blanks();
            if self.0.is_empty() {
                return Some(());
            }
            self.skip(b',').then_some(())?;
            self.blanks();
            // RFC 8941 §4.2.1: a trailing comma is an error.
            (!self.0.is_empty()).then_some(())?;
        }
        Some(())
    }

    fn member(&mut self) -> Option<StructuredItem> {
        let item = match self.skip(b'(') {
            true => StructuredItem::Inner(self.inner()?),
            false => self.bare()?,
        };
        self.parameters()?;
        Some(item)
    }

    /// Parses an inner list after its opening parenthesis.
    fn inner(&mut self) -> Option<Vec<StructuredItem>> {
        let mut items = Vec::new();
        loop {
            self.spaces();
            if self.skip(b')') {
                return Some(items);
            }
            items.push(self.bare()?);
            self.parameters()?;
            matches!(self.0, [b' ' | b')', ..]).then_some(())?;
            (items.len() <= MEMBERS_MAX).then_some(())?;
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.skip(b';') {
            self.spaces();
            self.key()?;
            if self.skip(b'=') {
                self.bare()?;
            }
        }
        Some(())
    }

    fn bare(&mut self) -> Option<StructuredItem> {
        match self.0.first()? {
            b'"' => self.string().map(StructuredItem::String),
            b'?' => self.boolean().map(StructuredItem::Boolean),
            b':' => self.binary(),
            b'-' | b'0'..=b'9' => self.number(),
            // A token (RFC 8941 §3.3.4).
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                let is_part =
                    |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(b);
                Some(StructuredItem::Token(self.take_while(is_part).to_vec()))
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        self.skip(b'"').then_some(())?;
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(text),
                b'\\' => {
                    let (escaped, rest) = self.0.split_first()?;
                    matches!(escaped, b'"' | b'\\').then(|| text.push(*escaped))?;
                    self.0 = rest;
                }
                // RFC 8941 §3.3.3: strings are printable ASCII.
                0x20..=0x7e => text.push(*byte),
                _ => return None,
            }
        }
    }

    fn boolean(&mut self) -> Option<bool> {
        let (value, rest) = match self.0 {
            [b'?', b'0', rest @ ..] => (false, rest),
            [b'?', b'1', rest @ ..] => (true, rest),
            _ => return None,
        };
        self.0 = rest;
        Some(value)
    }

    fn binary(&mut self) -> Option<StructuredItem> {
        self.skip(b':').then_some(())?;
        // RFC 8941 §3.3.5: base64, of which the value is not used.
        self.take_while(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b));
        self.skip(b':').then_some(StructuredItem::Other)
    }

    fn number(&mut self) -> Option<StructuredItem> {
        let sign = if self.skip(b'-') { -1 } else { 1 };
        let digits = self.take_while(u8::is_ascii_digit);
        if self.skip(b'.') {
            let fraction = self.take_while(u8::is_ascii_digit);
            // RFC 8941 §3.3.2: at most 12 integer digits and 3 fractional ones.
            let fits = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return fits.then_some(StructuredItem::Other);
        }
        // RFC 8941 §3.3.1.
        (1..=15).contains(&digits.len()).then_some(())?;
        let number = digits
            .iter()
            .fold(0, |n: i64, d| n * 10 + i64::from(d - b'0'));
        Some(StructuredItem::Integer(sign * number))
    }

    fn key(&mut self) -> Option<&'b [u8]> {
        // RFC 8941 §3.1.2: a key begins with a lower-case letter or `*`.
        matches!(self.0, [b'a'..=b'z' | b'*', ..]).then_some(())?;
        let is_part = |b: &u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
        Some(self.take_while(is_part))
    }

    fn skip(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn spaces(&mut self) {
        self.take_while(|b| *b == b' ');
    }

    fn blanks(&mut self) {
        self.take_while(|b| matches!(b, b' ' | b'\t'));
    }

    fn take_while(&mut self, is_part: impl Fn(&u8) -> bool) -> &'b [u8] {
        let end = self
            .0
            .iter()
            .position(|b| !is_part(b))
            .unwrap_or(self.0.len());
        let (part, rest) = self.0.split_at(end);
        self.0 = rest;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn dictionaries_keep_the_last_value_of_a_key() {
        // RFC 8941 §4.2.2.
        let lines = [
            &b"max-age=60, must-revalidate;x=1"[..],
            b"max-age=5,a=\"b\\\"\"",
        ];
        let read = dictionary(lines).expect("it is valid");
        let expected = vec![
            (b"max-age".to_vec(), StructuredItem::Integer(5)),
            (b"must-revalidate".to_vec(), StructuredItem::Boolean(true)),
            (b"a".to_vec(), StructuredItem::String(b"b\"".to_vec())),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn inner_lists_and_all_types_are_read() {
        let read = dictionary([&b"params=(\"a\" \"b\";x), e=?0, t=tok/x, d=1.5, b=:aGk=:"[..]]);
        let read: Vec<StructuredItem> = read
            .expect("it is valid")
            .into_iter()
            .map(|(_, i)| i)
            .collect();
        let inner = StructuredItem::Inner(vec![
            StructuredItem::String(b"a".to_vec()),
            StructuredItem::String(b"b".to_vec()),
        ]);
        let token = StructuredItem::Token(b"tok/x".to_vec());
        let expected = [
            inner,
            StructuredItem::Boolean(false),
            token,
            StructuredItem::Other,
            StructuredItem::Other,
        ];
        assert_eq!(read, expected);
        assert_eq!(list([&b""[..]]), Some(vec![]));
    }

    #[test]
    fn malformed_member_invalidates_the_whole_field() {
        // RFC 8941 §4.2: parsing fails as a whole.
        for bad in [
            "max-age=1, &&&&&",
            "a,",
            ",a",
            "A=1",
            "a=",
            "a=\"x",
            "a=\"\\x\"",
            "a b",
            "max-age =1",
            "max-age= 1",
            // Sixteen digits.
            "a=1234567890123456",
            "a=-",
            "a=(1",
            "a=(1\"b\")",
            "a;B",
            "a=?2",
            "a=1.",
            "a=:",
        ] {
            assert_eq!(dictionary([bad.as_bytes()]), None, "{bad}");
        }
    }
}
