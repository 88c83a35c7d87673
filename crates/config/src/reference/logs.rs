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

pub(super) const LOG: TableReference = TableReference {
    header: "[log]",
    title: "access log and error log",
    intro: "Where the logs are written, and their format. The lines are described in [operation](../operation.md).",
    context: "[log]\n",
    with_lines: &[(
        "format = \"binary\"",
        "access = \"access.lrlog\"\nformat = \"binary\"",
    )],
    keys: &[
        KeyReference::with_default(
            "access",
            "`\"off\"`, `\"stdout\"`, `\"stderr\"` or a path",
            "\"off\"",
            "The target of the access log. Targets like `syslog:…` are an error: use `\"stdout\"`, which systemd and containers pass on.",
        ),
        KeyReference::with_default(
            "format",
            "`\"combined\"`, `\"extended\"`, `\"json\"` or `\"binary\"`",
            "\"combined\"",
            "The format of the access log. `\"binary\"` needs a path; `lowroad log` reads it ([logs](../logs.md)).",
        ),
        KeyReference::with_default(
            "block_age",
            "duration, 100ms to 1m",
            "\"2s\"",
            "The maximum time that a record waits to be written with others. SIGKILL loses these records.",
        )
        .only_with(&["format = \"binary\""]),
        KeyReference::with_default(
            "rotate_len",
            "size, 64K to 1024G",
            "\"64M\"",
            "At this length the file is renamed to its name and the time, and another begins.",
        )
        .only_with(&["format = \"binary\""]),
        KeyReference::with_default(
            "rotate_age",
            "duration, 1m to 366d",
            "\"1d\"",
            "The same at this age.",
        )
        .only_with(&["format = \"binary\""]),
        KeyReference::with_default(
            "total_len_max",
            "size, four times `rotate_len` to 1024G",
            "\"1G\"",
            "All files together, the current one counted as full. The oldest are deleted.",
        )
        .only_with(&["format = \"binary\""]),
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
