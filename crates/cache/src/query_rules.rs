//! Rules of the operator for the query in a cache key: arguments that do not matter, and the order of arguments.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use crate::pattern::decode_escapes;

/// Rules for the query in a cache key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRules {
    /// The names of arguments that are left out.
    ignored: Vec<ArgumentPattern>,
    /// Whether arguments are sorted by name.
    sorts: bool,
}

/// A name of arguments, or the beginning of names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ArgumentPattern {
    front: Vec<u8>,
    is_prefix: bool,
}

impl QueryRules {
    /// Leaves out the arguments with these names; a `*` at the end of a name stands for any text.
    pub fn new<'n>(ignored: impl IntoIterator<Item = &'n str>, sorts: bool) -> QueryRules {
        let patterns = ignored
            .into_iter()
            .map(|name| match name.strip_suffix('*') {
                Some(front) => ArgumentPattern {
                    front: front.as_bytes().to_owned(),
                    is_prefix: true,
                },
                None => ArgumentPattern {
                    front: name.as_bytes().to_owned(),
                    is_prefix: false,
                },
            });
        QueryRules {
            ignored: patterns.collect(),
            sorts,
        }
    }

    /// Whether the rules change no query.
    pub fn is_empty(&self) -> bool {
        self.ignored.is_empty() && !self.sorts
    }

    /// The query in the key; `None` if all arguments are left out. Arguments that programs may take for parts of one value
    /// keep their order, which may have a meaning.
    pub fn normalize(&self, query: &[u8]) -> Option<Vec<u8>> {
        // `/a?` and `/a` may be different resources.
        if query.is_empty() {
            return Some(Vec::new());
        }
        let mut arguments: Vec<(Vec<u8>, &[u8])> = query
            .split(|byte| *byte == b'&')
            .map(|argument| (name_of(argument), argument))
            .filter(|(name, argument)| !self.is_ignored(name, argument))
            .collect();
        // A question mark without arguments would distinguish the key from that of a request without a query.
        if arguments.is_empty() {
            return None;
        }
        // A stable sort keeps the order of arguments with one variable.
        if self.sorts {
            arguments.sort_by(|(a, _), (b, _)| variable_of(a).cmp(variable_of(b)));
        }
        let texts: Vec<&[u8]> = arguments.iter().map(|(_, argument)| *argument).collect();
        Some(texts.join(&b'&'))
    }

    fn is_ignored(&self, name: &[u8], argument: &[u8]) -> bool {
        // Some origins also split at semicolons, and would find a further argument behind this one.
        !argument.contains(&b';') && self.ignored.iter().any(|pattern| pattern.matches(name))
    }

    /// A target with the normalized query.
    pub fn normalize_target(&self, target: &[u8]) -> Vec<u8> {
        let Some(mark) = target.iter().position(|byte| *byte == b'?') else {
            return target.to_owned();
        };
        let (path, query) = (&target[..mark], &target[mark + 1..]);
        match self.normalize(query) {
            Some(query) => [path, b"?", &query].concat(),
            None => path.to_owned(),
        }
    }
}

impl ArgumentPattern {
    fn matches(&self, name: &[u8]) -> bool {
        match self.is_prefix {
            true => name.starts_with(&self.front),
            false => name == self.front,
        }
    }
}

/// The decoded name of an argument.
fn name_of(argument: &[u8]) -> Vec<u8> {
    let end = argument.iter().position(|byte| *byte == b'=');
    decode_escapes(&argument[..end.unwrap_or(argument.len())])
}

/// The bytes of the variable that the name of an argument sets: PHP takes `a[]`, `a[0]` and `a` for one, and dots, spaces
/// and underscores for equal.
fn variable_of(name: &[u8]) -> impl Iterator<Item = u8> {
    let before_bracket = name.split(|byte| *byte == b'[').next().unwrap_or(name);
    let bytes = before_bracket.iter().map(|byte| match byte {
        // `+` is a space in queries.
        b'.' | b' ' | b'+' => b'_',
        byte => *byte,
    });
    bytes.skip_while(|byte| *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_arguments_are_left_out_and_others_keep_their_bytes() {
        let rules = QueryRules::new(["utm_*", "gclid"], false);
        for (target, expected) in [
            ("/a", "/a"),
            ("/a?", "/a?"),
            ("/a?utm_source=x", "/a"),
            ("/a?b=%41&utm_source=x&gclid&c", "/a?b=%41&c"),
            ("/a?%75tm_x=1&gclids=2&UTM_y=3", "/a?gclids=2&UTM_y=3"),
            ("/a?b=1&a=2", "/a?b=1&a=2"),
            ("/a?b&&c", "/a?b&&c"),
            ("/a?utm_x=1;c=2", "/a?utm_x=1;c=2"),
        ] {
            let normalized = rules.normalize_target(target.as_bytes());
            assert_eq!(normalized, expected.as_bytes(), "{target}");
        }
    }

    #[test]
    fn sorted_arguments_with_equal_names_keep_their_order() {
        let rules = QueryRules::new([], true);
        let normalized = rules.normalize(b"b=2&a=9&%62=1&b=0");
        assert_eq!(normalized.as_deref(), Some(&b"a=9&b=2&%62=1&b=0"[..]));
        assert!(QueryRules::default().is_empty() && !rules.is_empty());
    }

    #[test]
    fn sorted_arguments_of_one_variable_keep_their_order() {
        let rules = QueryRules::new([], true);
        for (query, expected) in [
            ("b=0&a[]=2&a=1&a[0]=3", "a[]=2&a=1&a[0]=3&b=0"),
            ("b=0&a%5B1%5D=2&a%5b0%5d=1", "a%5B1%5D=2&a%5b0%5d=1&b=0"),
            ("z=1&a.b=2&a_b=1&a+b=3", "a.b=2&a_b=1&a+b=3&z=1"),
            ("b[]=1&ab[]=2&a[]=3", "a[]=3&ab[]=2&b[]=1"),
        ] {
            let normalized = rules.normalize(query.as_bytes());
            assert_eq!(normalized.as_deref(), Some(expected.as_bytes()), "{query}");
        }
    }
}
