//! Content codings, and the negotiation of one by Accept-Encoding. Read RFC 9110 §8.4.1 and §12.5.3.

use crate::field_values::FieldLineValues;
use crate::list_values;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// No coding.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl ContentCoding {
    /// Every coding, in the server's order of preference.
    pub const ALL: [ContentCoding; 4] = [
        ContentCoding::Brotli,
        ContentCoding::Zstd,
        ContentCoding::Gzip,
        ContentCoding::Identity,
    ];

    /// The value of Content-Encoding.
    pub const fn as_str(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
        }
    }

    /// The suffix of a precompressed file's name; empty for identity.
    pub const fn file_suffix(self) -> &'static str {
        match self {
            ContentCoding::Identity => "",
            ContentCoding::Gzip => ".gz",
            ContentCoding::Brotli => ".br",
            ContentCoding::Zstd => ".zst",
        }
    }

    /// The coding with this name in any case; `x-gzip` is an alias of gzip (RFC 9110 §8.4.1.3).
    pub fn parse(name: &[u8]) -> Option<ContentCoding> {
        let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
        let coding = ContentCoding::ALL.into_iter().find(|e| name_is(e.as_str()));
        coding.or_else(|| name_is("x-gzip").then_some(ContentCoding::Gzip))
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of codings in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CodingSet(u8);

impl CodingSet {
    /// No coding.
    pub const EMPTY: CodingSet = CodingSet(0);

    /// The set with these [`bits`](Self::bits).
    pub const fn from_bits(bits: u8) -> CodingSet {
        CodingSet(bits)
    }

    /// The set as a byte.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Adds a coding.
    pub const fn insert(&mut self, encoding: ContentCoding) {
        self.0 |= encoding.bit();
    }

    /// Removes a coding.
    pub const fn remove(&mut self, encoding: ContentCoding) {
        self.0 &= !encoding.bit();
    }

    /// Returns the set with one more coding, for constants.
    pub const fn with(mut self, encoding: ContentCoding) -> CodingSet {
        self.insert(encoding);
        self
    }

    /// Whether the coding is in the set.
    pub const fn contains(self, encoding: ContentCoding) -> bool {
        self.0 & encoding.bit() != 0
    }

    /// Whether there is no coding in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The codings of the set, in order of preference.
    pub fn iter(self) -> impl Iterator<Item = ContentCoding> {
        ContentCoding::ALL
            .into_iter()
            .filter(move |e| self.contains(*e))
    }
}

/// Selects the coding of the response (RFC 9110 §12.5.3): the available coding with the highest weight in the request;
/// among equal weights, the first in the server's order of preference. Identity is always available; it is also
/// selected if the client accepts no available coding, or sends no Accept-Encoding.
#[inline]
pub fn choose(accept: &FieldLineValues<'_>, available: CodingSet) -> ContentCoding {
    if accept.is_empty() || available.is_empty() {
        return ContentCoding::Identity;
    }
    CodingWeights::parse(accept).choose(available)
}

/// The weights in Accept-Encoding, in thousandths.
#[derive(Default)]
struct CodingWeights {
    /// Indexed by coding; `None` if not named.
    by_coding: [Option<u16>; 4],
    /// The weight of `*`.
    wildcard: Option<u16>,
}

impl CodingWeights {
    /// Malformed members and unknown codings are ignored. If a coding is named twice, the lower weight counts.
    fn parse(accept: &FieldLineValues<'_>) -> CodingWeights {
        let mut weights = CodingWeights::default();
        for member in accept.iter().flat_map(list_values::members) {
            let (coding, weight) = match member.iter().position(|b| *b == b';') {
                None => (member, Some(1000)),
                Some(at) => (
                    list_values::trim_end(&member[..at]),
                    parse_weight(&member[at + 1..]),
                ),
            };
            let slot = match coding {
                b"*" => &mut weights.wildcard,
                _ => match ContentCoding::parse(coding) {
                    Some(encoding) => &mut weights.by_coding[encoding as usize],
                    None => continue,
                },
            };
            *slot = match (*slot, weight) {
                // The lower weight counts: `gzip, gzip;q=0` excludes gzip.
                (Some(old), Some(new)) => Some(old.min(new)),
                (old, new) => old.or(new),
            };
        }
        weights
    }

    fn choose(&self, available: CodingSet) -> ContentCoding {
        let mut best = (0, ContentCoding::Identity);
        for encoding in available.with(ContentCoding::Identity).iter() {
            let weight = self.weight(encoding);
            // The comparison is strict: among equal weights the first in the order of preference wins.
            if weight > best.0 {
                best = (weight, encoding);
            }
        }
        best.1
    }

    /// The weight of a coding. Identity is acceptable unless it is excluded, but any coding named in the field is
    /// preferred to it.
    fn weight(&self, encoding: ContentCoding) -> u16 {
        match self.by_coding[encoding as usize].or(self.wildcard) {
            Some(weight) => weight,
            None if encoding == ContentCoding::Identity => 1,
            None => 0,
        }
    }
}

/// Parses the weight after a `;`, in thousandths: `q=` and 0 to 1 with up to three decimals (RFC 9110 §12.4.2). `None`
/// if malformed.
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let value = match list_values::trim(parameter) {
        [b'q' | b'Q', b'=', value @ ..] => value,
        _ => return None,
    };
    match value {
        [b'1'] => Some(1000),
        [b'1', b'.', zeros @ ..] if zeros.len() <= 3 && zeros.iter().all(|b| *b == b'0') => {
            Some(1000)
        }
        [b'0'] | [b'0', b'.'] => Some(0),
        [b'0', b'.', decimals @ ..] if decimals.len() <= 3 => {
            let thousandths = list_values::decimal(decimals)? * [100, 10, 1][decimals.len() - 1];
            thousandths.try_into().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::ContentCoding::{Brotli, Gzip, Identity, Zstd};
    use super::*;
    use crate::h1::parse;
    use crate::limits::RequestLimits;

    const ALL: CodingSet = CodingSet::EMPTY.with(Gzip).with(Brotli).with(Zstd);
    const GZIP: CodingSet = CodingSet::EMPTY.with(Gzip);

    #[track_caller]
    fn assert_chosen(accept: &str, available: CodingSet, expected: ContentCoding) {
        let values = FieldLineValues::from_value(accept.as_bytes());
        assert_eq!(
            choose(&values, available),
            expected,
            "{accept:?} {available:?}"
        );
    }

    #[test]
    fn coding_set_insert_remove_and_iteration() {
        let mut set = CodingSet::EMPTY;
        assert!(set.is_empty() && !set.contains(Gzip));
        set.insert(Gzip);
        set.insert(Brotli);
        assert!(set.contains(Gzip) && !set.contains(Zstd));
        assert!(set.iter().eq([Brotli, Gzip]));
        set.remove(Brotli);
        assert_eq!(set, GZIP);
    }

    #[test]
    fn identity_without_accept_encoding_or_available_coding() {
        assert_eq!(choose(&FieldLineValues::NONE, ALL), Identity);
        assert_chosen("", ALL, Identity);
        assert_chosen("gzip, br", CodingSet::EMPTY, Identity);
        assert_chosen("br", GZIP, Identity);
        assert_chosen("deflate, compress", ALL, Identity);
    }

    #[test]
    fn server_preference_decides_among_equal_weights() {
        assert_chosen("gzip, deflate, br, zstd", ALL, Brotli);
        assert_chosen("gzip, zstd", ALL, Zstd);
        assert_chosen("gzip", ALL, Gzip);
        assert_chosen("GZip", ALL, Gzip);
        assert_chosen("x-gzip", ALL, Gzip);
        assert_chosen("gzip, identity", ALL, Gzip);
        assert_chosen("*", ALL, Brotli);
        assert_chosen("*", GZIP, Gzip);
    }

    #[test]
    fn client_weights_override_server_preference() {
        // RFC 9110 §12.4.2.
        assert_chosen("gzip;q=1.0, br;q=0.9", ALL, Gzip);
        assert_chosen("gzip;q=0.5, br;q=0.9, zstd;q=0.91", ALL, Zstd);
        assert_chosen("gzip;q=0.5, identity", ALL, Identity);
        assert_chosen("gzip;q=0.001", ALL, Gzip);
        assert_chosen("gzip ; q=0.5 ,br; Q=0.4", ALL, Gzip);
        assert_chosen("*;q=0.1, gzip;q=0.2", ALL, Gzip);
        assert_chosen("identity;q=0.5, *;q=0.4", ALL, Identity);
    }

    #[test]
    fn weight_zero_excludes_a_coding() {
        // RFC 9110 §12.4.2: "not acceptable"; identity is the fallback nevertheless.
        assert_chosen("gzip;q=0", ALL, Identity);
        assert_chosen("gzip;q=0.000, br", GZIP, Identity);
        assert_chosen("*, br;q=0", ALL, Zstd);
        assert_chosen("gzip, gzip;q=0", ALL, Identity);
        assert_chosen("br;q=0, *;q=0", ALL, Identity);
        assert_chosen("identity;q=0", ALL, Identity);
        assert_chosen("identity;q=0, gzip;q=0.1", ALL, Gzip);
    }

    #[test]
    fn malformed_accept_encoding_members_are_ignored() {
        for member in [
            "gzip;q=2",
            "gzip;q=1.1",
            "gzip;q=1.0000",
            "gzip;q=0.0001",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;q",
            "gzip;",
            // RFC 9110 §12.5.3 has no further parameters.
            "gzip;q=0.5;x=y",
            "gzip;x=1",
            "gzip q=1",
            "gzip;q=.5",
            "gz ip",
            "\"gzip\"",
        ] {
            assert_chosen(member, ALL, Identity);
        }
        assert_chosen("gzip;q=2, ,;q=1, zstd", ALL, Zstd);
    }

    #[test]
    fn accept_encoding_lines_are_combined() {
        // RFC 9110 §5.3.
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip;q=0.5\r\n\
            X: y\r\naccept-encoding: zstd;q=0.6\r\n\r\n";
        match parse(head, &RequestLimits::default()) {
            Ok(Some(head)) => {
                assert_eq!(choose(&head.request.accept_encoding(), ALL), Zstd);
            }
            other => panic!("{other:?}"),
        }
    }
}
