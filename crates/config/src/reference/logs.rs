//! The reference of `[buffering]` and `[log]`.

use super::{KeyReference, TableReference};

pub(super) const BUFFERING: TableReference = TableReference {
    header: "[buffering]",
    title: "buffers between clients and programs",
    intro: r"
A [route](site-route.md) buffers by default: its program is called when the request body is complete, and is free when its response is
complete, however slowly the client reads. Data that doesn't fit in memory is written to a temporary file.",
    context: "[buffering]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_described_default(
            "temp_path",
            "path",
            "`\"/var/tmp\"`, or `\"/tmp\"`",
            "The folder of temporary files: on a disk, and writable for the server's user. The files have no names (`O_TMPFILE`), so no other process can open them.",
        ),
        KeyReference::with_default(
            "request_buffer",
            "size, 4K to 16M",
            "\"16K\"",
            "Memory for a request body. The rest goes to a file, up to `body_len_max`.",
        ),
        KeyReference::with_default(
            "response_buffer",
            "size, 4K to 16M",
            "\"64K\"",
            "Memory for a response to a slow client, in addition to 128 KiB in transit. The rest goes to a file.",
        ),
        KeyReference::with_default(
            "temp_file_max",
            "size, 64K to 1024G, or 0",
            "\"1G\"",
            "The largest file of one response; after that the program waits for the client. 0: no files for responses.",
        ),
        KeyReference::with_default(
            "temp_total_max",
            "size, 64K to 1024G, or 0",
            "\"4G\"",
            "All temporary files together. Beyond it programs wait for slow clients, and a request with a body that needs a file gets 503. 0: no files.",
        ),
    ],
    notes: r#"
These correspond to nginx' `client_body_temp_path`, `client_body_buffer_size`, `fastcgi_buffers` and `fastcgi_max_temp_file_size`.

At most a quarter of the file descriptors is used for temporary files; beyond that the same happens as beyond `temp_total_max`. If a request body
can't be written, the request gets 507 if the disk is full and 500 otherwise, and the error log has the reason. A response that can't be
written continues at the client's speed.

```toml
[buffering]
temp_path = "/var/cache/lowroad"
temp_total_max = "20G"

[[site]]
root = "/srv/www"
```
"#,
};

const FORMAT: KeyReference = KeyReference::with_default(
    "format",
    "`\"combined\"`, `\"extended\"`, `\"json\"`, `\"binary\"`, or a text with variables",
    "\"combined\"",
    "The format of the access log. A text has [variables](../logs.md#variables) named as in nginx. `\"binary\"` needs a path; `lowroad log` reads it.",
);

const FIELDS: KeyReference = KeyReference::optional(
    "fields",
    "list of variables",
    "The members of each JSON object: `\"status\"`, or with another name `\"code=status\"`. Without it, the members are [fixed](../logs.md#formats).",
)
.only_with(&["format = \"json\""]);

const ESCAPE: KeyReference = KeyReference::with_default(
    "escape",
    "`\"default\"` or `\"json\"`",
    "\"default\"",
    "The escapes of text from clients: `\\xHH`, with `-` for a missing value; or those of a JSON string.",
)
.only_with(&["format = \"$…\""]);

const BLOCK_AGE: KeyReference = KeyReference::with_default(
    "block_age",
    "duration, 100ms to 1m",
    "\"2s\"",
    "The maximum time that a record waits to be written with others. SIGKILL loses these records.",
)
.only_with(&["format = \"binary\""]);

const ROTATE_LEN: KeyReference = KeyReference::with_default(
    "rotate_len",
    "size, 64K to 1024G",
    "\"64M\"",
    "At this length the file is renamed to its name and the time, and another begins.",
)
.only_with(&["format = \"binary\""]);

const ROTATE_AGE: KeyReference = KeyReference::with_default(
    "rotate_age",
    "duration, 1m to 366d",
    "\"1d\"",
    "The same at this age.",
)
.only_with(&["format = \"binary\""]);

const TOTAL_LEN_MAX: KeyReference = KeyReference::with_default(
    "total_len_max",
    "size, four times `rotate_len` to 1024G",
    "\"1G\"",
    "All files together, the current one counted as full. The oldest are deleted.",
)
.only_with(&["format = \"binary\""]);

pub(super) const LOG: TableReference = TableReference {
    header: "[log]",
    title: "access log and error log",
    intro: "Where the logs are written, and their format. [Access logs](../logs.md) describes the formats. Changes need `lowroad upgrade`.",
    context: "[log]\n",
    with_lines: &[
        (
            "format = \"binary\"",
            "access = \"access.lrlog\"\nformat = \"binary\"",
        ),
        (
            "format = \"$…\"",
            "access = \"access.log\"\nformat = \"$status\"",
        ),
    ],
    keys: &[
        KeyReference::with_default(
            "access",
            "`\"off\"`, or a [target](log-access.md)",
            "\"off\"",
            "The target of the access log. [`[[log.access]]`](log-access.md) instead defines several logs.",
        ),
        FORMAT,
        FIELDS,
        ESCAPE,
        BLOCK_AGE,
        ROTATE_LEN,
        ROTATE_AGE,
        TOTAL_LEN_MAX,
        KeyReference::with_default(
            "error",
            "`\"stdout\"`, `\"stderr\"` or a path",
            "\"stderr\"",
            "The target of the error log.",
        ),
        KeyReference::with_default(
            "level",
            "`\"error\"`, `\"warn\"`, `\"info\"` or `\"debug\"`",
            "\"info\"",
            "The lowest severity that is written to the error log.",
        ),
    ],
    notes: r#"
```toml
[log]
access = "/var/log/lowroad/access.log"
format = "json"
level = "warn"

[[site]]
root = "/srv/www"
```
"#,
};

pub(super) const LOG_ACCESS: TableReference = TableReference {
    header: "[[log.access]]",
    title: "one of several access logs",
    intro: "An access log with its own format and conditions. A request is written to each log that it fulfils all conditions of.",
    context: "[[log.access]]\n",
    with_lines: &[
        ("", "to = \"access.log\""),
        ("to = \"syslog\"", "to = \"syslog\""),
        ("to = \"journald\"", "to = \"journald\""),
        (
            "format = \"binary\"",
            "to = \"access.lrlog\"\nformat = \"binary\"",
        ),
        (
            "format = \"$…\"",
            "to = \"access.log\"\nformat = \"$status\"",
        ),
    ],
    keys: &[
        KeyReference::required(
            "to",
            "`\"stdout\"`, `\"stderr\"`, `\"journald\"`, `\"syslog…\"` or a path",
            "The target of the log. `\"syslog\"` is `/dev/log`; others are `\"syslog:unix:/PATH\"`, `\"syslog:udp:HOST:PORT\"` and `\"syslog:tcp:HOST:PORT\"`, with port 514 by default.",
        ),
        KeyReference::with_default(
            "facility",
            "`\"user\"`, `\"daemon\"`, `\"local0\"` to `\"local7\"`, …",
            "\"local7\"",
            "The facility of messages.",
        )
        .only_with(&["to = \"syslog\"", "to = \"journald\""]),
        KeyReference::with_default(
            "tag",
            "1 to 48 printable characters",
            "\"lowroad\"",
            "The name of the application in messages.",
        )
        .only_with(&["to = \"syslog\"", "to = \"journald\""]),
        FORMAT,
        FIELDS,
        ESCAPE,
        KeyReference::optional(
            "site",
            "name or list of names",
            "Only requests of these sites. A site is named by the first of its `names`; the variable `$site` is this name.",
        ),
        KeyReference::optional(
            "status",
            "status, class or list: `404`, `\"5xx\"`, `\"!304\"`",
            "Only responses with one of these statuses. Those with `!` are not logged.",
        ),
        KeyReference::optional(
            "path",
            "[pattern](README.md#patterns) or list: `\"/shop/**\"`, `\"!/health\"`",
            "Only requests for these paths. Those with `!` are not logged.",
        ),
        KeyReference::with_default(
            "min_duration",
            "duration, 0 to 1h",
            "\"0\"",
            "Only responses that took at least this time.",
        ),
        KeyReference::with_default(
            "sample",
            "1 to 1000000000",
            "1",
            "Only one of this many entries that fulfil the other conditions. Each worker counts its own entries.",
        ),
        BLOCK_AGE,
        ROTATE_LEN,
        ROTATE_AGE,
        TOTAL_LEN_MAX,
    ],
    notes: r#"
```toml
[[log.access]]
to = "/var/log/lowroad/access.log"
format = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent $request_time'
path = "!/health"

[[log.access]]
to = "/var/log/lowroad/slow.json"
format = "json"
fields = ["time_iso8601", "client=remote_addr", "request", "status", "request_time", "http_x_forwarded_for"]
min_duration = "500ms"

[[site]]
names = ["example.com"]
root = "/srv/www"
```
"#,
};
