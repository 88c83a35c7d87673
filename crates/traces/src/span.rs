//! A span: a request, or a part of the work for it.

use std::borrow::Cow;

use crate::context::{SpanId, TraceId};

/// Longer texts are truncated, so that the memory of the queue is bounded.
pub const TEXT_LEN_MAX: usize = 1024;

/// Parameters of a query that are secrets, by the semantic conventions.
const SECRET_PARAMETERS: [&str; 16] = [
    "access_token",
    "api_key",
    "apikey",
    "AWSAccessKeyId",
    "id_token",
    "passwd",
    "password",
    "refresh_token",
    "secret",
    "sig",
    "Signature",
    "token",
    "X-Amz-Credential",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Goog-Signature",
];

/// The role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The answer to a client's request.
    Server,
    /// A request to another server.
    Client,
    /// Work in this server.
    Internal,
}

/// A span that has ended, or that is about to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
    /// The span that this one is part of; `None` for the first span of a trace.
    pub parent_id: Option<SpanId>,
    /// Whether `parent_id` is a span of another server.
    pub has_remote_parent: bool,
    /// The value of tracestate.
    pub trace_state: Option<Box<str>>,
    /// The role.
    pub kind: SpanKind,
    /// A name with few different values.
    pub name: Cow<'static, str>,
    /// The start, ns since 1970.
    pub start_unix_ns: u64,
    /// The end, ns since 1970.
    pub end_unix_ns: u64,
    /// The attributes; see [`Span::set`].
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// The description of the failure, perhaps empty; `None` if the work did not fail.
    pub failure: Option<Cow<'static, str>>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// A truth value.
    Flag(bool),
}

impl Span {
    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.push((name, value.into()));
    }

    /// Marks the work as failed, with the attribute `error.type`.
    pub fn fail(&mut self, error_type: impl Into<AttributeValue>, description: Cow<'static, str>) {
        // The first failure explains the others.
        if self.failure.is_none() {
            self.set("error.type", error_type);
            self.failure = Some(description);
        }
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> AttributeValue {
        AttributeValue::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(Cow::Owned(truncated(text)))
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> AttributeValue {
        AttributeValue::Number(number.into())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> AttributeValue {
        AttributeValue::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> AttributeValue {
        AttributeValue::Flag(flag)
    }
}

/// The text of bytes from a client: truncated, and without invalid UTF-8, which protobuf does not allow.
pub fn text(bytes: &[u8]) -> String {
    // A character that is cut here is replaced, too.
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_LEN_MAX)]).into_owned()
}

/// At most [`TEXT_LEN_MAX`] bytes of a text.
pub fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
    text
}

/// The query without the values of secret parameters.
pub fn redacted_query(query: &[u8]) -> String {
    let text = text(query);
    if !text
        .split('&')
        .any(|parameter| secret_name(parameter).is_some())
    {
        return text;
    }
    let parameters = text
        .split('&')
        .map(|parameter| match secret_name(parameter) {
            Some(name) => format!("{name}=REDACTED"),
            None => parameter.to_owned(),
        });
    parameters.collect::<Vec<_>>().join("&")
}

/// The name of a parameter with a secret value.
fn secret_name(parameter: &str) -> Option<&str> {
    let (name, _) = parameter.split_once('=')?;
    // No usual client encodes a name; one that does might hide the parameter.
    let is_encoded = name.contains('%');
    let mut secrets = SECRET_PARAMETERS.iter();
    (is_encoded || secrets.any(|secret| secret.eq_ignore_ascii_case(name))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_invalid_texts_are_bounded_and_valid() {
        assert_eq!(text(b"/a\xff"), "/a\u{fffd}");
        let umlauts = "ä".repeat(TEXT_LEN_MAX);
        assert_eq!(truncated(umlauts).len(), TEXT_LEN_MAX);
        let odd = format!("x{}", "ä".repeat(TEXT_LEN_MAX));
        assert_eq!(truncated(odd).len(), TEXT_LEN_MAX - 1);
        assert_eq!(text(&vec![b'x'; 5000]).len(), TEXT_LEN_MAX);
    }

    #[test]
    fn secret_parameters_of_a_query_are_redacted() {
        for (query, expected) in [
            ("a=b&c", "a=b&c"),
            ("", ""),
            (
                "a=b&sig=secret&Signature=x=y",
                "a=b&sig=REDACTED&Signature=REDACTED",
            ),
            ("sig", "sig"),
            ("X-Goog-Signature=1", "X-Goog-Signature=REDACTED"),
            ("x-amz-signature=1", "x-amz-signature=REDACTED"),
            ("s%69g=1&tokens=2", "s%69g=REDACTED&tokens=2"),
        ] {
            assert_eq!(redacted_query(query.as_bytes()), expected);
        }
    }
}
