//! A DER reader: returns the elements of a sequence, each as tag and uninterpreted content. Malformed input yields
//! `None`.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const BMP_STRING: u8 = 0x1e;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// A context-specific tag; `constructed` if its content consists of elements.
pub(crate) const fn context(number: u8, constructed: bool) -> u8 {
    0x80 | number | if constructed { 0x20 } else { 0 }
}

/// The bytes that have not been read.
#[derive(Clone, Copy)]
pub(crate) struct DerReader<'a>(pub &'a [u8]);

#[derive(Clone, Copy)]
pub(crate) struct DerElement<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// Tag, length and content.
    pub encoded: &'a [u8],
}

impl<'a> DerElement<'a> {
    /// A reader of the elements in the content.
    pub fn reader(&self) -> DerReader<'a> {
        DerReader(self.content)
    }
}

impl<'a> DerReader<'a> {
    pub fn next(&mut self) -> Option<DerElement<'a>> {
        let start = self.0;
        let (&tag, rest) = start.split_first()?;
        // Tag numbers above 30 take several bytes; certificates don't use them.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (len, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        let encoded = &start[..start.len() - rest.len()];
        Some(DerElement {
            tag,
            content,
            encoded,
        })
    }

    /// Reads the next element; `None` if its tag is another one.
    pub fn expect(&mut self, tag: u8) -> Option<DerElement<'a>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// Reads the next element only if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Option<DerElement<'a>> {
        let mut ahead = *self;
        let element = ahead.expect(tag)?;
        *self = ahead;
        Some(element)
    }
}

impl<'a> Iterator for DerReader<'a> {
    type Item = DerElement<'a>;

    fn next(&mut self) -> Option<DerElement<'a>> {
        DerReader::next(self)
    }
}

/// Splits off a length: one byte if below 128, otherwise the number of length bytes (up to four) and these bytes.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((usize::from(first), rest));
    }
    let count = usize::from(first & 0x7f);
    // 0 is the indefinite form, which DER forbids (X.690, section 10.1). Four bytes suffice for any certificate.
    if count == 0 || count > 4 {
        return None;
    }
    let (digits, rest) = rest.split_at_checked(count)?;
    let len = digits
        .iter()
        .fold(0u64, |len, digit| len << 8 | u64::from(*digit));
    Some((usize::try_from(len).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_in_sequence() {
        let bytes = [0x30, 3, 2, 1, 7, 0x04, 0x81, 1, 9];
        let mut reader = DerReader(&bytes);
        let sequence = reader.expect(SEQUENCE).unwrap();
        assert_eq!(
            sequence.reader().expect(INTEGER).unwrap().content,
            [7].as_slice()
        );
        assert!(reader.optional(INTEGER).is_none());
        assert_eq!(reader.optional(OCTET_STRING).unwrap().content, [9]);
        assert!(Iterator::next(&mut reader).is_none());
    }

    #[test]
    fn truncated_or_oversized_element_is_rejected() {
        for bytes in [
            &[0x30u8][..],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x1f, 1, 1],
        ] {
            assert!(DerReader(bytes).next().is_none(), "{bytes:?}");
        }
    }
}
