//! Preconditions: evaluates conditional requests against the validators of the selected representation. Read RFC 9110
//! §8.8 (validators) and §13, above all the order in §13.2.2.
//!
//! To be evaluated only if the response to the request without its preconditions would be 2xx (§13.2.1).

use crate::date;
use crate::field_values::FieldLineValues;
use crate::list_values;
use crate::method::Method;
use crate::range::{self, RangesSpecifier};
use crate::request::Request;

/// The validators of the selected representation.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag with its quotes; weak if it begins with `W/`; empty if there is none.
    pub etag: &'a [u8],
    /// Seconds since 1970.
    pub last_modified: Option<u64>,
}

/// The outcome of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionOutcome {
    /// Respond as if there were no preconditions.
    Proceed,
    /// 304 (Not Modified).
    NotModified,
    /// 412 (Precondition Failed).
    Failed,
}

/// Evaluates all preconditions except If-Range. `now_secs` (seconds since 1970) is needed for dates with two-digit
/// years.
#[inline]
pub fn evaluate(
    req: &Request<'_>,
    validators: &Validators<'_>,
    now_secs: u64,
) -> PreconditionOutcome {
    match req.is_conditional() {
        true => evaluate_steps(req, validators, now_secs),
        false => PreconditionOutcome::Proceed,
    }
}

/// Whether a precondition or a range may make the response differ from the whole representation.
#[inline]
pub fn may_differ(req: &Request<'_>) -> bool {
    req.is_conditional()
}

/// The requested ranges of a representation of `len` bytes. Range applies to GET only, and only if If-Range permits it
/// (§13.1.5, §14.2). To be called after [`evaluate`].
pub fn ranges(
    req: &Request<'_>,
    validators: &Validators<'_>,
    now_secs: u64,
    len: u64,
) -> RangesSpecifier {
    match req.range() {
        // RFC 9110 §14.2: Range is defined for GET only.
        Some(value) if req.method == Method::Get && if_range_holds(req, validators, now_secs) => {
            range::evaluate(value, len)
        }
        _ => RangesSpecifier::Whole,
    }
}

/// All steps of §13.2.2 except the last, which is [`if_range_holds`].
fn evaluate_steps(
    req: &Request<'_>,
    validators: &Validators<'_>,
    now_secs: u64,
) -> PreconditionOutcome {
    if !req.if_match().is_empty() {
        if !any_matches(&req.if_match(), validators.etag, TagComparison::Strong) {
            return PreconditionOutcome::Failed;
        }
    } else if modified_after(req.if_unmodified_since(), validators, now_secs) == Some(true) {
        // If-Unmodified-Since counts only without If-Match (§13.1.4).
        return PreconditionOutcome::Failed;
    }
    let is_read = matches!(req.method, Method::Get | Method::Head);
    if !req.if_none_match().is_empty() {
        // Without a match If-None-Match is true, and If-Modified-Since is ignored (§13.1.3).
        if !any_matches(&req.if_none_match(), validators.etag, TagComparison::Weak) {
            return PreconditionOutcome::Proceed;
        }
        return match is_read {
            true => PreconditionOutcome::NotModified,
            false => PreconditionOutcome::Failed,
        };
    }
    if is_read && modified_after(req.if_modified_since(), validators, now_secs) == Some(false) {
        return PreconditionOutcome::NotModified;
    }
    PreconditionOutcome::Proceed
}

/// Whether Range applies: there is no If-Range, or it matches this representation exactly (§13.1.5). A weak validator
/// never matches. A date is weak if the representation changed within the current second, since it might change again
/// in that second (§8.8.2.2).
pub fn if_range_holds(req: &Request<'_>, validators: &Validators<'_>, now_secs: u64) -> bool {
    let Some(value) = req.if_range() else {
        return true;
    };
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return match take_tag(value) {
            Some((tag, rest)) => rest.is_empty() && strong_match(tag, validators.etag),
            None => false,
        };
    }
    match (date::parse(value, now_secs), validators.last_modified) {
        // §13.1.5: an exact match, and the date must be a strong validator.
        (Some(date), Some(modified)) => date == modified && modified < now_secs,
        _ => false,
    }
}

/// Whether the representation changed after the date in a field. `None` if the field is absent or not a valid date, or
/// the modification time is unknown: the precondition is then ignored.
fn modified_after(
    field: Option<&[u8]>,
    validators: &Validators<'_>,
    now_secs: u64,
) -> Option<bool> {
    let date = date::parse(field?, now_secs)?;
    Some(validators.last_modified? > date)
}

/// The comparison of entity tags (§8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagComparison {
    /// Equal, and neither tag is weak.
    Strong,
    /// Equal, ignoring `W/`.
    Weak,
}

/// Whether one of the listed tags matches, or the field is `*`, which matches any representation. A malformed list
/// matches nothing, so that the whole response is sent and no resource is modified.
fn any_matches(values: &FieldLineValues<'_>, etag: &[u8], comparison: TagComparison) -> bool {
    let matches = |tag: &[u8]| match comparison {
        TagComparison::Strong => strong_match(tag, etag),
        TagComparison::Weak => weak_match(tag, etag),
    };
    values
        .iter()
        .any(|value| value == b"*" || list_matches(value, matches))
}

/// Whether one tag of the list in `value` matches, and the whole list is valid. Tags may contain commas, so the list
/// cannot simply be split at commas.
pub fn list_matches(value: &[u8], matches: impl Fn(&[u8]) -> bool) -> bool {
    let mut rest = value;
    let mut matched = false;
    loop {
        // RFC 9110 §5.6.1: empty members are allowed.
        while let [b',' | b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        if rest.is_empty() {
            return matched;
        }
        let Some((tag, after)) = take_tag(rest) else {
            return false;
        };
        // The rest of the list has to be valid even after a match.
        matched |= matches(tag);
        rest = list_values::trim_start(after);
        if !matches!(rest, [] | [b',', ..]) {
            return false;
        }
    }
}

fn strong_match(tag: &[u8], etag: &[u8]) -> bool {
    tag == etag && tag.starts_with(b"\"")
}

fn weak_match(tag: &[u8], etag: &[u8]) -> bool {
    let opaque = |tag| <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag);
    opaque(tag) == opaque(etag)
}

/// Splits off the entity tag at the start of `value`, with `W/` and quotes.
fn take_tag(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let quoted = value.strip_prefix(b"W/").unwrap_or(value);
    let opaque = quoted.strip_prefix(b"\"")?;
    // RFC 9110 §8.8.3: no spaces, no quotes, no DEL.
    let is_etagc = |b: &u8| matches!(b, 0x21 | 0x23..=0x7e | 0x80..);
    let len = opaque.iter().position(|b| !is_etagc(b))?;
    let rest = opaque.get(len..)?.strip_prefix(b"\"")?;
    value.split_at_checked(value.len() - rest.len())
}

#[cfg(test)]
mod tests;
