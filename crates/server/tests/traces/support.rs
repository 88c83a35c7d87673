//! A collector, servers that send it spans, and their spans in a form for comparisons.

use std::collections::BTreeMap;
use std::io::Write;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, wait_until};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
pub const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
/// The example of the specification: sampled.
pub const TRACEPARENT: &str =
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";

/// The response of a collector that accepts all spans.
pub const ACCEPTED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A collector that accepts all spans.
pub fn collector() -> TestOrigin {
    TestOrigin::start(|_, stream| stream.write_all(ACCEPTED.as_bytes()).is_ok())
}

/// A server with traces and this configuration of its sites.
pub fn traced(
    folder: &TempFolder,
    collector: &str,
    traces_keys: &str,
    site_keys: &str,
) -> TestServer {
    folder.file("root/small", "hello");
    let root = folder.path().display();
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"{root}/admin.sock\"\n[traces]\nendpoint = \"{collector}\"\n{traces_keys}\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}/root\"\n{site_keys}\n"
    );
    TestServer::run(PROGRAM, folder, &config)
}

/// A received span.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    pub span: Span,
    pub attributes: BTreeMap<String, String>,
    pub resource: BTreeMap<String, String>,
}

impl ReceivedSpan {
    /// The text of an attribute; empty if it is missing.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    pub fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    pub fn span_id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub fn parent_id(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    pub fn is_error(&self) -> bool {
        self.span.status.as_ref().is_some_and(|it| it.code == 2)
    }
}

/// All spans that a collector has received.
pub fn received(collector: &TestOrigin) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for request in collector.requests() {
        assert_eq!(
            request.field("content-type"),
            Some("application/x-protobuf")
        );
        let message = ExportTraceServiceRequest::decode(&request.body[..]).expect("a message");
        for resource_spans in message.resource_spans {
            let resource = resource_spans.resource.expect("a resource");
            let resource = texts(&resource.attributes);
            let scopes = resource_spans.scope_spans.into_iter();
            spans.extend(
                scopes
                    .flat_map(|scope| scope.spans)
                    .map(|span| ReceivedSpan {
                        attributes: texts(&span.attributes),
                        resource: resource.clone(),
                        span,
                    }),
            );
        }
    }
    spans
}

/// Waits for at least this many spans.
pub fn wait_for_spans(collector: &TestOrigin, count: usize) -> Vec<ReceivedSpan> {
    wait_until("spans", || {
        let spans = received(collector);
        (spans.len() >= count).then_some(spans)
    })
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    let value = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|it| it.value.as_ref());
        text(value.expect("a value"))
    };
    let all = attributes.iter().map(|it| (it.key.clone(), value(it)));
    let map: BTreeMap<String, String> = all.collect();
    assert_eq!(map.len(), attributes.len(), "an attribute occurs once");
    map
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of a counter of `lowroad status`.
pub fn counter(folder: &TempFolder, name: &str) -> u64 {
    let socket = folder.path().join("admin.sock");
    let mut command = std::process::Command::new(PROGRAM);
    let output = command.arg("status").arg("--admin").arg(socket).output();
    let output = output.expect("the program");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("{name} in {text}"));
    let value = line.split_whitespace().last().expect("a value");
    value.parse().expect("a number")
}
