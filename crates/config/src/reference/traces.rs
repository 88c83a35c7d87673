//! The reference of `[traces]`.

use super::{KeyReference, TableReference};

pub(super) const TRACES: TableReference = TableReference {
    header: "[traces]",
    title: "OpenTelemetry traces",
    intro: r"
With this table, spans of requests are sent to an OpenTelemetry collector, by OTLP as protobuf over HTTP. [Traces](../traces.md) describes the
spans and how to try it. Changes need `lowroad upgrade`.",
    context: "[traces]\n",
    with_lines: &[(
        "endpoint = \"https://…\"",
        "endpoint = \"https://collector.example.com\"",
    )],
    keys: &[
        KeyReference::with_default(
            "endpoint",
            "URL",
            "\"http://127.0.0.1:4318/v1/traces\"",
            "The collector's URL for spans. Without a path, `/v1/traces` is used.",
        ),
        KeyReference::optional(
            "ca",
            "path",
            "A PEM file with the certificate authorities that may have issued the collector's certificate, instead of the system's.",
        )
        .only_with(&["endpoint = \"https://…\""]),
        KeyReference::optional(
            "headers",
            "table",
            "Fields of each export request. See [`[traces.headers]`](traces-headers.md).",
        ),
        KeyReference::optional(
            "header_files",
            "table",
            "Fields whose values are in files. See [`[traces.header_files]`](traces-header_files.md).",
        ),
        KeyReference::with_default(
            "sample",
            "0 to 1",
            "1",
            "The share of traces that are recorded, of those that begin here. All servers with the same share choose the same traces.",
        ),
        KeyReference::with_default(
            "accept_parent",
            "`true` or `false`",
            "true",
            "Whether a request with a valid `traceparent` continues that trace; then its sender decides about recording. `false` where clients are not trusted to decide: their trace context is replaced.",
        ),
        KeyReference::with_default(
            "service_name",
            "text",
            "\"lowroad\"",
            "The attribute `service.name`, by which trace viewers list this server.",
        ),
        KeyReference::optional(
            "resource",
            "table",
            "Further attributes of this server. See [`[traces.resource]`](traces-resource.md).",
        ),
        KeyReference::with_default(
            "timeout",
            "duration, 100ms to 1m",
            "\"10s\"",
            "The timeout of an export request. At the end of the server, all pending spans together get this time, at most 5 s.",
        ),
        KeyReference::with_default(
            "queue_max",
            "16 to 1048576",
            "8192",
            "Spans that wait to be exported. Further ones are dropped and counted; a request never waits.",
        ),
    ],
    notes: r#"
```toml
[traces]
endpoint = "https://otlp.example.com/v1/traces"
sample = 0.01
service_name = "shop"

[traces.headers]
Authorization = { credential = "otlp" }

[traces.resource]
"deployment.environment.name" = "production"

[[site]]
root = "/srv/www"
```
"#,
};

pub(super) const HEADERS: TableReference = TableReference {
    header: "[traces.headers]",
    title: "fields of export requests",
    intro: "Each key is the name of a field, each value its value: a text, or a [secret](README.md#secrets) such as `Bearer TOKEN`.",
    context: "",
    with_lines: &[],
    keys: &[],
    notes: r#"
```toml
[traces.headers]
X-Scope-OrgID = "shop"
Authorization = { file = "/etc/lowroad/otlp.authorization" }

[[site]]
root = "/srv/www"
```
"#,
};

pub(super) const HEADER_FILES: TableReference = TableReference {
    header: "[traces.header_files]",
    title: "secret fields of export requests",
    intro: r"
Each key is the name of a field, each value the path of a file with its value on one line, such as `Bearer TOKEN`. The files are read at the
start, as root where the server starts as root.",
    context: "",
    with_lines: &[],
    keys: &[],
    notes: r#"
```toml
[traces.header_files]
Authorization = "/etc/lowroad/otlp.authorization"

[[site]]
root = "/srv/www"
```
"#,
};

pub(super) const RESOURCE: TableReference = TableReference {
    header: "[traces.resource]",
    title: "attributes of the server in traces",
    intro: r"
Each key is the name of an attribute, each value its text. `service.name` is set by `service_name`; `service.version` and `host.name` are
added unless set here.",
    context: "",
    with_lines: &[],
    keys: &[],
    notes: r#"
```toml
[traces.resource]
"deployment.environment.name" = "production"
"service.namespace" = "shop"

[[site]]
root = "/srv/www"
```
"#,
};
