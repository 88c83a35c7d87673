//! The messages of OTLP: an export request with spans, and the collector's response.

use std::borrow::Cow;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span as OtlpSpan, Status, span,
};
use prost::Message;

use crate::export_policy::PartialSuccess;
use crate::span::{AttributeValue, Span, SpanKind, TEXT_LEN_MAX, truncated};

/// The media type of the messages.
pub const MEDIA_TYPE: &str = "application/x-protobuf";

/// The version of the semantic conventions of the attributes.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// The trace flag of a sampled span.
const SAMPLED: u32 = 0x1;
/// Whether the parent is known to be local or remote, and whether it is remote.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The description of this server in each export request.
#[derive(Clone, Debug)]
pub struct ExportResource {
    resource: Resource,
    scope: InstrumentationScope,
}

impl ExportResource {
    /// A resource with these attributes. `name` of this version records its spans.
    pub fn new(attributes: &[(String, String)], name: &str, version: &str) -> ExportResource {
        let attributes = attributes
            .iter()
            .map(|(name, value)| key_value(name, Value::StringValue(value.clone())));
        ExportResource {
            resource: Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            },
            scope: InstrumentationScope {
                name: name.into(),
                version: version.into(),
                ..InstrumentationScope::default()
            },
        }
    }

    /// Encodes an export request.
    pub fn encode(&self, spans: Vec<Box<Span>>) -> Vec<u8> {
        let scope_spans = ScopeSpans {
            scope: Some(self.scope.clone()),
            spans: spans.into_iter().map(|span| message(*span)).collect(),
            schema_url: SCHEMA_URL.into(),
        };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            schema_url: SCHEMA_URL.into(),
        };
        let request = ExportTraceServiceRequest {
            resource_spans: vec![resource_spans],
        };
        request.encode_to_vec()
    }
}

/// Reads the body of a successful response. `None` if it is not such a message; the spans count as accepted all the
/// same, since the status says so.
pub fn decode_response(body: &[u8]) -> Option<PartialSuccess> {
    let response = ExportTraceServiceResponse::decode(body).ok()?;
    let partial = response.partial_success.unwrap_or_default();
    Some(PartialSuccess {
        refused: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        message: printable(&partial.error_message),
    })
}

/// A collector's text for a line of the log.
pub fn printable(text: &str) -> String {
    let is_shown = |byte: &char| !byte.is_control();
    truncated(text.chars().filter(is_shown).take(TEXT_LEN_MAX).collect())
}

fn message(span: Span) -> OtlpSpan {
    let kind = match span.kind {
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
        SpanKind::Internal => span::SpanKind::Internal,
    };
    let parent_flags = match span.has_remote_parent {
        true => HAS_IS_REMOTE | IS_REMOTE,
        false => HAS_IS_REMOTE,
    };
    let attributes = span.attributes.into_iter();
    OtlpSpan {
        trace_id: span.trace_id.bytes().to_vec(),
        span_id: span.span_id.bytes().to_vec(),
        parent_span_id: span
            .parent_id
            .map_or(Vec::new(), |parent| parent.bytes().to_vec()),
        trace_state: span.trace_state.map_or(String::new(), String::from),
        flags: SAMPLED | parent_flags,
        name: span.name.into_owned(),
        kind: kind.into(),
        start_time_unix_nano: span.start_unix_ns,
        // The wall clock may have been set back.
        end_time_unix_nano: span.end_unix_ns.max(span.start_unix_ns),
        attributes: attributes
            .map(|(name, value)| key_value(name, any_value(value)))
            .collect(),
        status: span.failure.map(error_status),
        ..OtlpSpan::default()
    }
}

fn error_status(description: Cow<'static, str>) -> Status {
    Status {
        message: description.into_owned(),
        code: StatusCode::Error.into(),
    }
}

fn any_value(value: AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => Value::StringValue(text.into_owned()),
        AttributeValue::Number(number) => Value::IntValue(number),
        AttributeValue::Flag(flag) => Value::BoolValue(flag),
    }
}

fn key_value(name: &str, value: Value) -> KeyValue {
    KeyValue {
        key: name.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_trace::tests::span;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    #[test]
    fn span_is_encoded_with_all_its_parts() {
        let mut sent = span();
        sent.set("http.request.method", "GET");
        sent.set("http.response.status_code", 503_u16);
        sent.set("lowroad.flag", true);
        sent.fail("503", "no origin".into());
        sent.fail("other", "ignored".into());
        sent.end_unix_ns = 9;
        let expected = sent.clone();
        let resource = ExportResource::new(
            &[("service.name".into(), "shop".into())],
            "lowroad",
            "1.2.3",
        );
        let bytes = resource.encode(vec![Box::new(sent)]);
        let request = ExportTraceServiceRequest::decode(&bytes[..]).expect("a message");
        let spans = &request.resource_spans[0];
        let attributes = &spans.resource.as_ref().expect("a resource").attributes;
        assert_eq!(attributes[0].key, "service.name");
        let scope = spans.scope_spans[0].scope.as_ref().expect("a scope");
        assert_eq!((&*scope.name, &*scope.version), ("lowroad", "1.2.3"));
        let span = &spans.scope_spans[0].spans[0];
        assert_eq!(span.trace_id, expected.trace_id.bytes());
        assert_eq!(span.span_id, expected.span_id.bytes());
        assert!(span.parent_span_id.is_empty());
        assert_eq!(span.kind(), span::SpanKind::Server);
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (5, 9));
        assert_eq!(span.flags, 0x101);
        let names: Vec<&str> = span.attributes.iter().map(|it| &*it.key).collect();
        assert_eq!(
            names,
            [
                "http.request.method",
                "http.response.status_code",
                "lowroad.flag",
                "error.type"
            ]
        );
        let status = span.status.as_ref().expect("a status");
        assert_eq!(
            (status.code(), &*status.message),
            (StatusCode::Error, "no origin")
        );
    }

    #[test]
    fn responses_are_read() {
        assert_eq!(decode_response(b""), Some(PartialSuccess::default()));
        let response = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 3,
                error_message: "too\nold".into(),
            }),
        };
        let expected = PartialSuccess {
            refused: 3,
            message: "tooold".into(),
        };
        assert_eq!(decode_response(&response.encode_to_vec()), Some(expected));
        assert_eq!(decode_response(b"<html>"), None);
    }
}
