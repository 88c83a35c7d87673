//! Parses the Cache-Control field of a response. Read RFC 9111 §5.2 and §4.2.1.
//!
//! Malformed directives set [`CacheControl::malformed`] and are otherwise ignored. The qualified forms
//! `private="field"` and `no-cache="field"` also set the flags `private` and `no_cache`: RFC 9111 permits this stricter
//! reading. A caller that can store a response without some fields uses [`CacheControl::no_cache_unqualified`],
//! [`CacheControl::private_unqualified`] and [`field_names`].

use alloc::vec::Vec;

use lowroad_http::equals_lower;
use lowroad_http::fields::{ResponseFields, StandardHeader, is_token};

use crate::targeted_fields;

/// The largest value of delta-seconds; larger ones are reduced to it (§1.2.2).
const DELTA_SECS_MAX: u64 = 1 << 31;

/// The directives in all Cache-Control lines of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// The response has a Cache-Control line, perhaps an empty one.
    pub present: bool,
    /// A line could not be parsed completely.
    pub malformed: bool,
    /// `no-store`
    pub no_store: bool,
    /// `no-cache`, with field names or without.
    pub no_cache: bool,
    /// `no-cache` without field names.
    pub no_cache_unqualified: bool,
    /// `private`, with field names or without.
    pub private: bool,
    /// `private` without field names.
    pub private_unqualified: bool,
    /// `public`
    pub public: bool,
    /// `must-revalidate`, or `proxy-revalidate`, which has the same effect on a shared cache.
    pub must_revalidate: bool,
    /// `must-revalidate` itself, which also permits storing responses to requests with Authorization (§3.5).
    pub must_revalidate_directive: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `immutable` (RFC 8246)
    pub immutable: bool,
    /// `max-age`
    pub max_age: DeltaSeconds,
    /// `s-maxage`
    pub s_maxage: DeltaSeconds,
    /// `stale-while-revalidate` (RFC 5861)
    pub stale_while_revalidate: DeltaSeconds,
    /// `stale-if-error` (RFC 5861)
    pub stale_if_error: DeltaSeconds,
}

/// The delta-seconds argument of a directive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaSeconds {
    /// The directive is absent.
    #[default]
    Absent,
    /// Seconds, at most 2^31.
    Secs(u64),
    /// The argument is not a number, or the directive occurs with different numbers.
    Invalid,
}

impl CacheControl {
    /// Adds the directives of one Cache-Control line.
    pub fn add_line(&mut self, line: &[u8]) {
        self.present = true;
        for directive in CacheDirectives::new(line) {
            match directive {
                Some((name, argument)) => self.add_directive(name, argument),
                None => self.malformed = true,
            }
        }
    }

    /// Adds one directive, of Cache-Control or of a field with the same directives (CDN-Cache-Control).
    pub(crate) fn add_directive(&mut self, name: &[u8], argument: Option<&[u8]>) {
        self.no_store |= equals_lower(name, b"no-store");
        self.no_cache |= equals_lower(name, b"no-cache");
        self.no_cache_unqualified |=
            equals_lower(name, b"no-cache") && argument.is_none_or(has_no_names);
        self.private |= equals_lower(name, b"private");
        self.private_unqualified |=
            equals_lower(name, b"private") && argument.is_none_or(has_no_names);
        self.public |= equals_lower(name, b"public");
        // `must-revalidate` and `proxy-revalidate` have the same effect on a shared cache.
        self.must_revalidate |=
            equals_lower(name, b"must-revalidate") || equals_lower(name, b"proxy-revalidate");
        self.must_revalidate_directive |= equals_lower(name, b"must-revalidate");
        self.must_understand |= equals_lower(name, b"must-understand");
        self.immutable |= equals_lower(name, b"immutable");
        for (directive, delta) in [
            ("max-age", &mut self.max_age),
            ("s-maxage", &mut self.s_maxage),
            ("stale-while-revalidate", &mut self.stale_while_revalidate),
            ("stale-if-error", &mut self.stale_if_error),
        ] {
            if name.eq_ignore_ascii_case(directive.as_bytes()) {
                *delta = delta.combine(argument);
            }
        }
    }
}

/// The field names in the arguments of `private` and `no-cache` in a line of Cache-Control. A shared cache stores the
/// response without these fields (§5.2.2.4, §5.2.2.7).
pub fn field_names(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Without `=` there are no arguments.
    let line = if line.contains(&b'=') { line } else { &[] };
    let qualified = |(name, argument): (&[u8], _)| {
        (equals_lower(name, b"no-cache") || equals_lower(name, b"private")).then_some(argument)?
    };
    // RFC 9111 §5.2.2: only the qualified forms of these directives name fields.
    let arguments = CacheDirectives::new(line).flatten().filter_map(qualified);
    let names = arguments.flat_map(|it| it.split(|b| matches!(b, b',' | b'"')));
    names
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty())
}

/// Makes a response private: no shared cache may store it (RFC 9111 §5.2.2.7).
pub fn make_private(fields: &mut ResponseFields) {
    let control = private_value(fields.values("Cache-Control"));
    // The fields are rebuilt, since there is no removal of single lines.
    let mut changed = ResponseFields::new();
    if let Some(date) = fields.date() {
        changed.set_date(*date);
    }
    for (name, value) in fields.iter() {
        let is_control =
            StandardHeader::find(name.as_bytes()) == Some(StandardHeader::CacheControl);
        if !is_control && !targeted_fields::is_targeted(name) {
            changed.push(name, value);
        }
    }
    changed.push("Cache-Control", &control);
    *fields = changed;
}

/// A value of Cache-Control that keeps a response out of shared caches (§5.2.2.7), with the directives of these lines
/// that private caches obey. Malformed directives are omitted.
pub fn private_value<'l>(lines: impl Iterator<Item = &'l [u8]>) -> Vec<u8> {
    let mut value = b"private".to_vec();
    let for_shared: [&[u8]; 4] = [b"public", b"s-maxage", b"proxy-revalidate", b"private"];
    for (name, argument) in lines.flat_map(CacheDirectives::new).flatten() {
        // Qualified forms of `private` would be weaker than the one in front.
        if name.is_empty() || for_shared.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            continue;
        }
        value.extend_from_slice(b", ");
        value.extend_from_slice(name);
        if let Some(argument) = argument {
            value.push(b'=');
            value.extend_from_slice(argument);
        }
    }
    value
}

/// Whether an argument of `private` or `no-cache` names no field or is not a list of names: the directive then counts
/// as unqualified.
fn has_no_names(argument: &[u8]) -> bool {
    let inner = match argument {
        [b'"', inner @ .., b'"'] => inner,
        bare => bare,
    };
    let mut names = inner
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|n| !n.is_empty())
        .peekable();
    names.peek().is_none() || !names.all(|name| name.iter().all(|b| is_token_byte(*b)))
}

/// The directives of one line, each with its argument; `None` for a malformed one.
pub(crate) struct CacheDirectives<'l>(&'l [u8]);

impl<'l> CacheDirectives<'l> {
    pub(crate) fn new(line: &'l [u8]) -> CacheDirectives<'l> {
        CacheDirectives(line)
    }
}

impl<'l> Iterator for CacheDirectives<'l> {
    type Item = Option<(&'l [u8], Option<&'l [u8]>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            let Some((member, rest)) = take_member(core::mem::take(&mut self.0)) else {
                return Some(None);
            };
            self.0 = rest;
            let member = member.trim_ascii();
            if !member.is_empty() {
                return Some(split(member));
            }
        }
        None
    }
}

/// Splits a directive into name and argument.
fn split(member: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (name, argument) = match member.iter().position(|b| *b == b'=') {
        Some(at) => (&member[..at], Some(&member[at + 1..])),
        None => (member, None),
    };
    (name.is_empty() || is_token(name)).then_some((name, argument))
}

impl DeltaSeconds {
    /// The seconds; `None` if the directive is absent or invalid.
    #[must_use]
    pub fn secs(self) -> Option<u64> {
        match self {
            DeltaSeconds::Secs(secs) => Some(secs),
            DeltaSeconds::Absent | DeltaSeconds::Invalid => None,
        }
    }

    /// Adds another occurrence of the directive.
    pub(crate) fn combine(self, argument: Option<&[u8]>) -> DeltaSeconds {
        let new = argument.and_then(delta_secs);
        match (self, new) {
            (DeltaSeconds::Absent, Some(secs)) => DeltaSeconds::Secs(secs),
            (DeltaSeconds::Secs(previous), Some(secs)) if previous == secs => self,
            // RFC 9111 §4.2.1: conflicting values make the response stale.
            _ => DeltaSeconds::Invalid,
        }
    }
}

/// Parses seconds, as a token or a quoted string; larger values are capped (§1.2.2).
fn delta_secs(argument: &[u8]) -> Option<u64> {
    let bare = match argument {
        [b'"', inner @ .., b'"'] => inner,
        bare => bare,
    };
    parse_delta_secs(bare)
}

/// Parses digits to a number of seconds, at most 2^31.
pub(crate) fn parse_delta_secs(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // RFC 9111 §1.2.2: larger values are used as 2^31.
    let add = |secs: u64, digit: &u8| (secs * 10 + u64::from(digit - b'0')).min(DELTA_SECS_MAX);
    Some(digits.iter().fold(0, add))
}

/// Splits `list` into its first member and the text after the comma; `None` if a quoted string is not closed. Reads no
/// byte after that comma, so that a line is read once.
fn take_member(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in list.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            // RFC 9110 §5.6.4: a backslash escapes within quotes only.
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return Some((&list[..at], &list[at + 1..])),
            _ => {}
        }
    }
    // An unterminated string leaves the rest of the line unusable.
    (!quoted).then_some((list, &[]))
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || b"!#$%&'*+.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> CacheControl {
        let mut all = CacheControl::default();
        for line in lines {
            all.add_line(line.as_bytes());
        }
        all
    }

    #[test]
    fn directives_are_case_insensitive_and_span_lines() {
        let all = read(&[
            "Public, MAX-AGE=60 ,, s-maxage=\"5\"",
            "no-Store,proxy-revalidate",
        ]);
        assert!(all.present && all.public && all.no_store && all.must_revalidate);
        assert!(!all.malformed && !all.private && !all.no_cache && !all.must_understand);
        assert_eq!(
            (all.max_age, all.s_maxage),
            (DeltaSeconds::Secs(60), DeltaSeconds::Secs(5))
        );
    }

    #[test]
    fn directives_inside_quoted_strings_are_ignored() {
        // A naive split at commas would find directives in the quoted string.
        let all = read(&[r#"ext="a, no-store, \", private", max-age=1"#]);
        assert!(!all.no_store && !all.private && !all.malformed);
        assert_eq!(all.max_age, DeltaSeconds::Secs(1));
    }

    #[test]
    fn qualified_private_and_no_cache_set_the_unqualified_flags() {
        let all = read(&[r#"private="a, b", no-cache="Set-Cookie""#]);
        assert!(
            all.private && all.no_cache && !all.private_unqualified && !all.no_cache_unqualified
        );
        let names = field_names(br#"private="a, B", no-cache="Set-Cookie", x="y""#);
        assert!(names.eq([&b"a"[..], b"B", b"Set-Cookie"]));
        for bare in ["private, private=\"a\"", "private=\"\"", "private=\"a b\""] {
            assert!(read(&[bare]).private_unqualified, "{bare}");
        }
    }

    #[test]
    fn stale_while_revalidate_and_stale_if_error_are_parsed() {
        let all = read(&["stale-while-revalidate=5, stale-if-error=9, immutable"]);
        assert!(all.immutable);
        assert_eq!(all.stale_while_revalidate.secs(), Some(5));
        assert_eq!(all.stale_if_error, DeltaSeconds::Secs(9));
    }

    #[test]
    fn conflicting_duplicate_directives_are_invalid() {
        // RFC 9111 §4.2.1.
        assert_eq!(
            read(&["max-age=1, max-age=1"]).max_age,
            DeltaSeconds::Secs(1)
        );
        assert_eq!(
            read(&["max-age=1", "max-age=2"]).max_age,
            DeltaSeconds::Invalid
        );
        assert_eq!(
            read(&["max-age=1,max-age=x,max-age=1"]).max_age,
            DeltaSeconds::Invalid
        );
    }

    #[test]
    fn non_numeric_delta_seconds_are_invalid() {
        // RFC 9111 §4.2.1: invalid lifetimes make the response stale; too large ones are capped (§1.2.2).
        for bad in [
            "max-age",
            "max-age=",
            "max-age=-1",
            "max-age=1.5",
            "max-age=\"\"",
            "max-age=1s",
            "max-age=\"1",
        ] {
            let all = read(&[bad]);
            assert!(
                all.max_age == DeltaSeconds::Invalid || all.malformed,
                "{bad}"
            );
        }
        let long = "max-age=99999999999999999999999999";
        assert_eq!(read(&[long]).max_age, DeltaSeconds::Secs(DELTA_SECS_MAX));
    }

    #[test]
    fn invalid_names_and_unterminated_quotes_are_malformed() {
        for bad in ["max-age =60", "foo bar", "a=\"b, no-store", "=5"] {
            let all = read(&[bad]);
            assert!(all.malformed || bad == "=5", "{bad}");
        }
        assert!(read(&[""]).present && !read(&[""]).malformed);
    }
}
