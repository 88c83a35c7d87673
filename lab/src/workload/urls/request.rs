//! A request of a list, built in advance in two forms: followed by others on its connection, or the last.

use super::super::{ExpectedResponse, WorkloadVersion, wire};
use super::{UrlSpec, UrlStyle};

/// The condition field of a conditional request, with the date of all the lab's files.
pub(super) const CONDITION: &str = wire::FILES_CONDITION;

/// A request in its sent form.
pub(super) struct PreparedRequest {
    /// The request followed by others on its connection, and the request as the last.
    forms: [RequestForm; 2],
    expected: ExpectedResponse,
    conditional: bool,
}

struct RequestForm {
    bytes: Box<[u8]>,
    /// Offset of the empty line, before which more fields can be inserted.
    fields_end: usize,
}

impl PreparedRequest {
    /// Builds both forms.
    pub(super) fn new(
        class: u8,
        spec: &UrlSpec,
        style: &UrlStyle,
    ) -> Result<PreparedRequest, String> {
        check(spec)?;
        let expected = ExpectedResponse {
            class,
            head_only: spec.method == "HEAD",
            status: spec.expected_status,
            len: spec.expected_len,
            crc32: spec.crc32,
        };
        // A conditional request is answered with 304, so another expected status excludes it.
        let expects_200 = spec.expected_status.is_none_or(|status| status == 200);
        let conditional = spec.method == "GET" && expects_200;
        let forms = [build(spec, style, false), build(spec, style, true)];
        Ok(PreparedRequest {
            forms,
            expected,
            conditional,
        })
    }

    /// Whether a condition may be added: the request is a GET for an existing file.
    pub(super) fn can_be_conditional(&self) -> bool {
        self.conditional
    }

    /// Appends the request unchanged.
    pub(super) fn append(&self, last: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.forms[usize::from(last)].bytes);
    }

    /// Appends the request with more fields.
    pub(super) fn append_with(
        &self,
        last: bool,
        fields: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let RequestForm { bytes, fields_end } = &self.forms[usize::from(last)];
        out.extend_from_slice(&bytes[..*fields_end]);
        fields(out);
        out.extend_from_slice(&bytes[*fields_end..]);
    }

    /// The expected response; the condition of a conditional request is false, since files don't change.
    pub(super) fn expected(&self, conditional: bool) -> ExpectedResponse {
        if conditional {
            ExpectedResponse {
                status: Some(304),
                len: Some(0),
                crc32: None,
                ..self.expected
            }
        } else {
            self.expected
        }
    }
}

fn build(spec: &UrlSpec, style: &UrlStyle, last: bool) -> RequestForm {
    // HTTP/1.0 without keep-alive allows only one request, which is also the last.
    let last = last || style.version == WorkloadVersion::Http10;
    let has_host = spec
        .fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = (!has_host).then_some(style.host.as_str());
    let fields = spec.fields.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_str()));
    let text = wire::head(
        wire::RequestLine {
            method: &spec.method,
            target: &spec.path,
            version: style.version,
        },
        host.map(|host| ("Host", host)).into_iter().chain(fields),
        spec.body.len(),
        last,
    );
    let fields_end = text.len();
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&spec.body);
    RequestForm {
        bytes: bytes.into(),
        fields_end,
    }
}

fn check(spec: &UrlSpec) -> Result<(), String> {
    let UrlSpec { method, path, .. } = spec;
    if !wire::is_method(method) {
        return Err(format!(
            "{path}: {method:?} is not a usable method; give GET, HEAD, POST ..."
        ));
    }
    wire::check_target(path).map_err(|error| format!("{path:?} is not a path: {error}"))?;
    for (name, value) in &spec.fields {
        if !wire::is_token(name) || !wire::is_value(value) {
            return Err(format!(
                "{path}: {name:?}: {value:?} is not a field; give it as Name: value"
            ));
        }
        if let Some(reason) = wire::reserved_reason(name) {
            return Err(format!("{path}: the field {name} can't be given; {reason}"));
        }
    }
    Ok(())
}
