//! Parses No-Vary-Search, a response field that tells which differences between queries do not matter, and normalizes
//! queries for the cache key accordingly. Read the field's draft (draft-ietf-httpbis-no-vary-search).
//!
//! Queries are decoded before the comparison (`+` is a space). If the field is invalid, every difference matters.

use alloc::vec::Vec;

use crate::pattern::decode_escapes;
use lowroad_http::structured_fields::{self, StructuredItem};

/// The parsed field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoVarySearch {
    /// The order of the parameters' keys does not matter.
    pub ignores_key_order: bool,
    params: QueryParams,
}

/// The query parameters that do not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum QueryParams {
    #[default]
    None,
    These(Vec<Vec<u8>>),
    AllBut(Vec<Vec<u8>>),
}

impl NoVarySearch {
    /// Parses the field's lines; if they are invalid, every difference matters.
    pub fn read<'v>(lines: impl IntoIterator<Item = &'v [u8]>) -> NoVarySearch {
        structured_fields::dictionary(lines)
            .and_then(NoVarySearch::from_members)
            .unwrap_or_default()
    }

    fn from_members(members: Vec<(Vec<u8>, StructuredItem)>) -> Option<NoVarySearch> {
        let mut parsed = NoVarySearch::default();
        let mut except = None;
        for (key, value) in members {
            match (&*key, value) {
                (b"key-order", StructuredItem::Boolean(is_free)) => {
                    parsed.ignores_key_order = is_free
                }
                (b"params", StructuredItem::Boolean(true)) => {
                    parsed.params = QueryParams::AllBut(Vec::new())
                }
                (b"params", StructuredItem::Boolean(false)) => parsed.params = QueryParams::None,
                (b"params", StructuredItem::Inner(names)) => {
                    parsed.params = QueryParams::These(strings(names)?)
                }
                (b"except", StructuredItem::Inner(names)) => except = Some(strings(names)?),
                // A known key with a value of the wrong type makes the field invalid.
                (b"key-order" | b"params" | b"except", _) => return None,
                // Unknown keys are ignored, for extensions.
                _ => {}
            }
        }
        match (&mut parsed.params, except) {
            (_, None) => {}
            (QueryParams::AllBut(names), Some(except)) => *names = except,
            // `except` is valid only with `params`.
            _ => return None,
        }
        Some(parsed)
    }

    /// Whether every difference matters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == NoVarySearch::default()
    }

    /// Normalizes a query: if two queries have equal results, one response answers both.
    #[must_use]
    pub fn normalised(&self, query: &[u8]) -> Vec<u8> {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = query
            .split(|b| *b == b'&')
            .filter(|pair| !pair.is_empty())
            .map(pair)
            .filter(|(key, _)| self.is_significant(key))
            .collect();
        if self.ignores_key_order {
            // Stable: values of one key keep their order.
            pairs.sort_by(|(a, _), (two, _)| a.cmp(two));
        }
        let mut out = Vec::new();
        for (key, value) in pairs {
            for part in [key, value] {
                // A length prefix makes the encoding unambiguous.
                out.extend_from_slice(&(part.len() as u64).to_be_bytes());
                out.extend_from_slice(&part);
            }
        }
        out
    }

    fn is_significant(&self, key: &Vec<u8>) -> bool {
        match &self.params {
            QueryParams::None => true,
            QueryParams::These(names) => names.binary_search(key).is_err(),
            QueryParams::AllBut(names) => names.binary_search(key).is_ok(),
        }
    }
}

fn pair(pair: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let at = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
    (
        decoded(&pair[..at]),
        decoded(pair.get(at + 1..).unwrap_or_default()),
    )
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let with_spaces: Vec<u8> = text
        .iter()
        .map(|b| if *b == b'+' { b' ' } else { *b })
        .collect();
    decode_escapes(&with_spaces)
}

fn strings(items: Vec<StructuredItem>) -> Option<Vec<Vec<u8>>> {
    let string = |item| match item {
        StructuredItem::String(text) => Some(decoded(&text)),
        _ => None,
    };
    let mut strings: Vec<Vec<u8>> = items.into_iter().map(string).collect::<Option<_>>()?;
    strings.sort_unstable();
    Some(strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(field: &str, one: &str, two: &str) -> bool {
        let field = NoVarySearch::read([field.as_bytes()]);
        field.normalised(one.as_bytes()) == field.normalised(two.as_bytes())
    }

    #[test]
    fn params_lists_insignificant_keys() {
        assert!(same("params=(\"utm\")", "a=1&utm=2", "utm=3&a=1"));
        assert!(!same("params=(\"utm\")", "a=1", "a=2"));
        assert!(same("params", "a=1", "") && same("params, except=(\"a\")", "a=1&b=2", "a=1"));
        assert!(!same("params, except=(\"a\")", "a=1", "a=2"));
    }

    #[test]
    fn parameter_order_matters_without_key_order() {
        assert!(!same("", "a=1&b=2", "b=2&a=1"));
        assert!(same("key-order", "a=1&b=%32", "b=2&a=1"));
        assert!(!same("key-order", "a=1&a=2", "a=2&a=1"));
        assert!(!same("key-order", "a=1%26b=2", "a=1&b=2"));
    }

    #[test]
    fn invalid_no_vary_search_is_ignored() {
        // Every difference then matters, which is safe.
        for bad in [
            "params=1",
            "except=(\"a\")",
            // A token instead of a string.
            "params=(a)",
            "key-order=x",
            "params, &",
            // `except` needs `params` without a list.
            "params=(\"a\"), except=(\"b\")",
        ] {
            assert!(NoVarySearch::read([bad.as_bytes()]).is_empty(), "{bad}");
        }
    }
}
