//! Validation of stored responses at the origin: builds the conditional request, selects the response that a 304 refers
//! to, and updates its header fields (freshening). Read RFC 9111 §3.2, §4.3 and RFC 9110 §8.8.

use alloc::vec::Vec;

use lowroad_http::date;
use lowroad_http::fields::FieldNames;

/// A field line.
pub type RawFieldLine<'f> = (&'f [u8], &'f [u8]);

/// The validators of a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredValidators<'f> {
    /// The raw entity tag; weak if it begins with `W/`.
    pub etag: Option<&'f [u8]>,
    /// The raw Last-Modified.
    pub last_modified: Option<&'f [u8]>,
}

/// The fields that make a request conditional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionalFields {
    /// If-None-Match
    pub if_none_match: Option<Vec<u8>>,
    /// If-Modified-Since
    pub if_modified_since: Option<Vec<u8>>,
}

/// Header fields of a stored response that neither a 304 nor a response to HEAD updates: they describe the message, the
/// stored content, or one connection.
const FIELDS_NOT_UPDATED: [&[u8]; 16] = [
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authentication-info",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"www-authenticate",
    b"content-digest",
    // Another ETag would denote other content than the stored one.
    b"etag",
];

impl<'f> StoredValidators<'f> {
    /// The validators of a response with these fields. A validator with different values on several lines is ignored.
    pub fn from_fields(fields: impl IntoIterator<Item = RawFieldLine<'f>>) -> StoredValidators<'f> {
        let (mut etags, mut dates) = (Vec::new(), Vec::new());
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"etag") {
                etags.push(value.trim_ascii());
            } else if name.eq_ignore_ascii_case(b"last-modified") {
                dates.push(value.trim_ascii());
            }
        }
        StoredValidators {
            etag: single(&etags).filter(|tag| is_tag(tag)),
            last_modified: single(&dates),
        }
    }

    /// Whether there is no validator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    fn opaque(&self) -> Option<&'f [u8]> {
        self.etag.map(|tag| tag.strip_prefix(b"W/").unwrap_or(tag))
    }

    fn strong(&self) -> Option<&'f [u8]> {
        self.etag.filter(|tag| !tag.starts_with(b"W/"))
    }
}

fn single<'f>(values: &[&'f [u8]]) -> Option<&'f [u8]> {
    let first = *values.first()?;
    values.iter().all(|v| *v == first).then_some(first)
}

fn is_tag(tag: &[u8]) -> bool {
    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
    matches!(opaque, [b'"', inner @ .., b'"'] if !inner.iter().any(|b| *b <= b' ' || *b == b'"'))
}

/// The preconditions for validating the stored response `selected`. They include the entity tags of the URL's other
/// variants, so that a 304 can select one of those instead (§4.3.1).
pub fn conditions<'f>(
    selected: StoredValidators<'_>,
    others: impl IntoIterator<Item = StoredValidators<'f>>,
) -> ConditionalFields {
    let mut tags: Vec<&[u8]> = selected.etag.into_iter().collect();
    // If `selected` has only a date, the others' tags are left out: If-None-Match takes precedence over dates.
    if !tags.is_empty() || selected.last_modified.is_none() {
        for tag in others.into_iter().filter_map(|v| v.etag) {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
    }
    ConditionalFields {
        if_none_match: (!tags.is_empty()).then(|| tags.join(&b", "[..])),
        if_modified_since: selected.last_modified.map(<[u8]>::to_vec),
    }
}

/// The index in `stored` of the response that a 304 refers to (§4.3.4); `validated` is the index of the response that
/// was to be validated. `None` if the 304 refers to a response that is not stored.
#[must_use]
pub fn selected(
    stored: &[StoredValidators<'_>],
    validated: usize,
    response: StoredValidators<'_>,
) -> Option<usize> {
    let others = (0..stored.len()).filter(|at| *at != validated);
    let mut candidates = core::iter::once(validated).chain(others);
    let mut find = |is_match: fn(&StoredValidators<'_>, &StoredValidators<'_>) -> bool| {
        candidates.find(|at| {
            stored
                .get(*at)
                .is_some_and(|candidate| is_match(candidate, &response))
        })
    };
    // RFC 9111 §4.3.4: a strong validator selects only an equal one.
    if response.strong().is_some() {
        return find(|candidate, response| candidate.strong() == response.strong());
    }
    // A weak tag is compared without `W/` (RFC 9110 §8.8.3.2).
    if response.etag.is_some() {
        return find(|candidate, response| candidate.opaque() == response.opaque());
    }
    if response.last_modified.is_some() {
        return find(|candidate, response| candidate.last_modified == response.last_modified);
    }
    // A 304 without validators refers to the response that was being validated.
    stored.get(validated).map(|_| validated)
}

/// Freshens the fields of a stored response with those of a 304, or of a response to HEAD for the same version
/// (`HeadComparison::Same`): each new field replaces all lines of that name (§3.2).
pub fn merged<'f>(
    stored: &[RawFieldLine<'f>],
    new: &[RawFieldLine<'f>],
    excluded_fields: &FieldNames,
) -> Vec<RawFieldLine<'f>> {
    let options = connection_options(new);
    let is_retained = |name: &[u8]| {
        FIELDS_NOT_UPDATED.iter().any(|retained_name| retained_name.eq_ignore_ascii_case(name))
            || excluded_fields.contains(name)
            // Fields named by Connection are hop-by-hop (RFC 9110 §7.6.1).
            || options.contains(name)
    };
    let new_lines = new.iter().copied().filter(|(name, _)| !is_retained(name));
    let new_lines: Vec<RawFieldLine<'f>> = new_lines.collect();
    let new_names: FieldNames<&[u8]> = new_lines.iter().map(|(name, _)| *name).collect();
    // Without a new Age, the stored one is obsolete: the response came directly from the origin.
    let is_replaced = |name: &[u8]| new_names.contains(name) || name.eq_ignore_ascii_case(b"age");
    let stored = stored
        .iter()
        .copied()
        .filter(|(name, _)| !is_replaced(name));
    let mut merged_lines: Vec<RawFieldLine<'f>> = stored.collect();
    merged_lines.extend(new_lines);
    merged_lines
}

/// The field names in Connection.
fn connection_options<'f>(fields: &[RawFieldLine<'f>]) -> FieldNames<&'f [u8]> {
    let lines = fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let options = lines.flat_map(|(_, value)| value.split(|b| *b == b','));
    options.map(<[u8]>::trim_ascii).collect()
}

/// The relation of a response to HEAD to a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadComparison {
    /// The same version: the stored fields are freshened.
    Same,
    /// Another version: the stored response is stale.
    Other,
    /// Unknown: the response to HEAD lacks the validators that would identify its version.
    Nothing,
}

/// Compares a stored response with a response to HEAD (§4.3.5). The result is `Same` only if both have the same strong
/// entity tag, or if they have equal validators, at least one. RFC 9111 does not require this, but otherwise the fields
/// of one version could be combined with the content of another.
#[must_use]
pub fn compare_head(stored: &[RawFieldLine<'_>], head: &[RawFieldLine<'_>]) -> HeadComparison {
    let value = |lines: &[RawFieldLine<'_>], name: &[u8]| {
        let line = lines.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        line.map(|(_, value)| value.trim_ascii().to_vec())
    };
    let value_pair = |name: &[u8]| (value(stored, name), value(head, name));
    // RFC 9111 §4.3.5: the fields that identify the version.
    let compared = [b"etag", &b"last-modified"[..], b"content-length"].map(value_pair);
    if compared
        .iter()
        .any(|(stored, new)| new.is_some() && stored != new)
    {
        return HeadComparison::Other;
    }
    let (stored_validators, head_validators) = (
        StoredValidators::from_fields(stored.iter().copied()),
        StoredValidators::from_fields(head.iter().copied()),
    );
    let has_strong_tag = head_validators.strong().is_some()
        && stored_validators.strong() == head_validators.strong();
    let all_match = !stored_validators.is_empty()
        && stored_validators == head_validators
        && compared[..2].iter().all(|(stored, new)| stored == new);
    match has_strong_tag || all_match {
        true => HeadComparison::Same,
        false => HeadComparison::Nothing,
    }
}

/// Whether a Last-Modified is a strong validator: at least one second earlier than Date (RFC 9110 §8.8.2.2).
#[must_use]
pub fn is_strong_date(last_modified: &[u8], response_date: &[u8], now_secs: u64) -> bool {
    let parse_date = |text| date::parse(text, now_secs);
    matches!((parse_date(last_modified), parse_date(response_date)), (Some(modified), Some(response_time)) if modified < response_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(etag: &'static str) -> StoredValidators<'static> {
        StoredValidators {
            etag: Some(etag.as_bytes()),
            last_modified: None,
        }
    }

    #[test]
    fn conditional_request_has_all_etags_and_the_date() {
        let one = StoredValidators::from_fields([
            (&b"ETag"[..], &b"\"a\""[..]),
            (b"last-modified", b"D"),
        ]);
        let sent = conditions(one, [tag("W/\"b\""), tag("\"a\"")]);
        assert_eq!(sent.if_none_match.as_deref(), Some(&b"\"a\", W/\"b\""[..]));
        assert_eq!(sent.if_modified_since.as_deref(), Some(&b"D"[..]));
        assert_eq!(
            StoredValidators::from_fields([(&b"etag"[..], &b"a b"[..])]).etag,
            None
        );
        let twice = [(&b"etag"[..], &b"\"a\""[..]), (b"etag", b"\"b\"")];
        assert!(StoredValidators::from_fields(twice).is_empty());
    }

    #[test]
    fn validators_of_a_304_select_the_stored_response() {
        // RFC 9111 §4.3.4.
        let stored = [tag("\"a\""), tag("W/\"b\""), tag("\"c\"")];
        assert_eq!(selected(&stored, 0, tag("\"c\"")), Some(2));
        assert_eq!(selected(&stored, 0, tag("W/\"b\"")), Some(1));
        assert_eq!(
            selected(&stored, 0, tag("\"b\"")),
            None,
            "a strong one names no weak one"
        );
        assert_eq!(selected(&stored, 1, StoredValidators::default()), Some(1));
        assert_eq!(selected(&[], 0, StoredValidators::default()), None);
    }

    #[test]
    fn freshening_preserves_fields_about_the_content() {
        // RFC 9111 §3.2: fields about the stored content are not updated.
        let stored: [RawFieldLine<'_>; 5] = [
            (b"A", b"1"),
            (b"a", b"2"),
            (b"Content-Length", b"5"),
            (b"X", b"y"),
            (b"Age", b"9"),
        ];
        let new: [RawFieldLine<'_>; 5] = [
            (b"a", b"3"),
            (b"content-length", b"0"),
            (b"Connection", b"z"),
            (b"z", b"1"),
            (b"p", b"1"),
        ];
        let expected: [RawFieldLine<'_>; 3] =
            [(b"Content-Length", b"5"), (b"X", b"y"), (b"a", b"3")];
        let left_out = [b"p"[..].into()].into_iter().collect();
        assert_eq!(merged(&stored, &new, &left_out), expected);
    }

    #[test]
    fn head_response_freshens_the_same_version() {
        let stored: [RawFieldLine<'_>; 2] = [(b"ETag", b"\"a\""), (b"Content-Length", b"5")];
        let says = |head: &[RawFieldLine<'_>]| compare_head(&stored, head);
        assert_eq!(says(&[(b"etag", b"\"a\"")]), HeadComparison::Same);
        assert_eq!(says(&[(b"content-length", b"6")]), HeadComparison::Other);
        let dated: [RawFieldLine<'_>; 2] = [(b"etag", b"\"a\""), (b"last-modified", b"x")];
        assert_eq!(says(&dated), HeadComparison::Other);
    }

    #[test]
    fn head_response_without_validator_freshens_nothing() {
        // The fields could belong to another version than the stored body.
        let tagged: [RawFieldLine<'_>; 2] = [(b"ETag", b"\"a\""), (b"Content-Length", b"5")];
        let head: [RawFieldLine<'_>; 1] = [(b"content-length", b"5")];
        assert_eq!(compare_head(&tagged, &head), HeadComparison::Nothing);
        assert_eq!(compare_head(&tagged[1..], &head), HeadComparison::Nothing);
        let dated: [RawFieldLine<'_>; 2] = [tagged[0], (b"last-modified", b"x")];
        assert_eq!(compare_head(&dated, &dated[1..]), HeadComparison::Nothing);
        assert_eq!(compare_head(&dated, &dated[..1]), HeadComparison::Same);
        let weak: [RawFieldLine<'_>; 2] = [(b"etag", b"W/\"a\""), dated[1]];
        assert_eq!(compare_head(&weak, &weak[..1]), HeadComparison::Nothing);
        assert_eq!(compare_head(&weak, &weak), HeadComparison::Same);
        let twice: [RawFieldLine<'_>; 2] = [tagged[0], (b"etag", b"\"b\"")];
        assert_eq!(compare_head(&dated, &twice), HeadComparison::Nothing);
        assert_eq!(compare_head(&tagged, &twice), HeadComparison::Nothing);
        let unquoted: [RawFieldLine<'_>; 2] = [(b"etag", b"a"), dated[1]];
        for part in [&unquoted[..1], &unquoted[1..]] {
            assert_eq!(compare_head(&unquoted, part), HeadComparison::Nothing);
        }
        assert_eq!(
            compare_head(&tagged[1..], &[(b"content-length", b"6")]),
            HeadComparison::Other
        );
    }
}
