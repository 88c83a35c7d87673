//! The reference of `[server]` and `[limits]`.

use super::{KeyReference, TableReference};

pub(super) const SERVER: TableReference = TableReference {
    header: "[server]",
    title: "the process",
    intro: "Workers, the user, memory and disk for stored responses, graceful shutdown.",
    context: "[server]\n",
    with_lines: &[("user", "user = \"www-data\"")],
    keys: &[
        KeyReference::with_default(
            "workers",
            "`\"auto\"`, or 0 to 1024",
            "\"auto\"",
            "Worker threads, each with an event loop. `\"auto\"` (or 0): one for each CPU.",
        ),
        KeyReference::with_default("affinity", "boolean", "false", "Pin each worker to a CPU."),
        KeyReference::with_default(
            "hardening",
            "boolean",
            "true",
            "Refuse system calls to threads that serve requests, by seccomp: starting programs, `ptrace`, raw sockets, \
             namespaces, mounts, `bpf`, `io_uring`, kernel modules, changes of the user ([security](../security.md#rights)). \
             They fail with `EPERM`. Turn it off for native modules that need one of these. A kernel without seccomp \
             gets a line in the log.",
        ),
        KeyReference::with_default(
            "accept",
            "`\"one\"`, `\"all\"`, or 1 to 65536",
            "32",
            "Connections that a worker accepts at one wake-up: one, all that are pending, or at most this number.",
        ),
        KeyReference::with_described_default(
            "user",
            "text",
            "`\"lowroad\"`, or `\"nobody\"` if that user doesn't exist; `\"root\"` if other users can't read the roots",
            "The user to change to when started as root, after everything that needs root is open.",
        ),
        KeyReference::with_described_default(
            "group",
            "text",
            "the user's group",
            "The group to change to.",
        )
        .only_with(&["user"]),
        KeyReference::with_default(
            "cache",
            "size, 64K to 1024G, or 0",
            "\"256M\"",
            "Memory for stored responses, at most; allocated as responses are stored. The default is a quarter of the machine's memory if that is less. 0: no response is stored.",
        ),
        KeyReference::with_default(
            "cache_object",
            "size, up to a quarter of `cache`",
            "\"1M\"",
            "The largest stored response; a quarter of `cache` if that is less. Larger files are sent from the disk.",
        ),
        KeyReference::with_default(
            "cache_variants",
            "1 to 1024",
            "64",
            "Variants of one response by `Vary` in memory. Beyond that, variants that were not used since the last such eviction are evicted (counter `cache_variants_evicted`).",
        ),
        KeyReference::optional(
            "disk_cache",
            "path",
            "A folder on disk for stored responses of origins: those that don't fit in memory, and copies of those in memory ([disk cache](../accelerator.md#disk)). They survive a restart. Each server needs its own folder. Not with `cache = 0`.",
        ),
        KeyReference::with_default(
            "disk_cache_max",
            "size, 64M to 1048576G",
            "\"10G\"",
            "The size limit of `disk_cache`. A reload applies a larger limit at once, a smaller one gradually.",
        ),
        KeyReference::optional(
            "ticket_keys",
            "path",
            "A file for the keys of TLS session tickets. With it, clients resume sessions after a restart, and at other servers with the same file. The server creates it if it is missing; no other user may read it (mode 0600). With `http3`, QUIC's secret is kept in a file of the same name with `.quic` at its end, so that clients notice a restart at once.",
        ),
        KeyReference::with_default(
            "kernel_tls",
            "boolean",
            "false",
            "Let the kernel encrypt long files where it can: TLS 1.3 with HTTP/1.1 ([TLS](../tls.md)).",
        ),
        KeyReference::with_default(
            "http3",
            "boolean",
            "true",
            "Accept HTTP/3 at each TLS address without `proxy_protocol`, on the UDP port of the same number, which firewalls must let through. Responses of sites with one TLS port have `Alt-Svc`, by which browsers find it; behind a port mapping, set the field by a [header](site-header.md). Limits of requests, streams, connections and rates are those of HTTP/2. If the UDP port can't be used, the log has the reason, and clients use HTTP/2.",
        ),
        KeyReference::with_default(
            "early_data",
            "boolean",
            "false",
            "Accept early data (0-RTT) over HTTP/3: clients that return from the same address send their first request with the handshake, and so save a round trip. Each of the 16,384 latest sessions of an address is accepted once, so that a copy of early data has no effect; a reload or restart removes them, and clients then wait for the handshake. Methods other than GET, HEAD, OPTIONS and TRACE get 425 (RFC 8470), after which clients repeat the request. Handlers and origins get `Early-Data: 1`, and may answer 425, too. Not at addresses with `client_ca`.",
        ),
        KeyReference::with_default(
            "helpers",
            "1 to 256",
            "4",
            "Threads that open, read and compress files, so that workers never wait for a disk.",
        ),
        KeyReference::with_default(
            "drain_timeout",
            "duration, up to 1h",
            "\"30s\"",
            "Graceful shutdown: how long requests in progress may take after SIGTERM.",
        ),
        KeyReference::with_default(
            "upgrade_timeout",
            "duration, 1s to 1h",
            "\"60s\"",
            "`lowroad upgrade`: how long the new process may take until it is ready, with its applications. After that it is killed, and the running one goes on.",
        ),
        KeyReference::with_described_default(
            "admin",
            "path",
            "chosen by the server",
            "The admin socket, for `lowroad explain`, `lowroad status` and other commands to the running server.",
        ),
        KeyReference::with_default(
            "softirq",
            "`\"off\"`, `\"auto\"`, or an interface",
            "\"off\"",
            "Answer hot small responses in the kernel's soft interrupt ([fast path](../softirq.md)): `\"auto\"` on all Ethernet interfaces if the machine supports it; with an interface on that one, and the server doesn't start if it can't. The server must be started as root.",
        ),
        KeyReference::with_default(
            "fd_limit",
            "64 to 1048576, or 0",
            "0",
            "File descriptors to request. 0: as many as the hard limit allows, at most 1048576.",
        ),
    ],
    notes: r#"
```toml
[server]
workers = 2
user = "www-data"
cache = "1G"
cache_object = "4M"

[[site]]
root = "/srv/www"
```
"#,
};

pub(super) const LIMITS: TableReference = TableReference {
    header: "[limits]",
    title: "limits of clients",
    intro: "Timeouts and sizes for connections and requests. Every wait and every buffer has a limit: timeouts are 1ms to 24h and can't be switched off.",
    context: "[limits]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_default(
            "header_timeout",
            "duration",
            "\"15s\"",
            "From the first byte of a request to the end of its head.",
        ),
        KeyReference::with_default(
            "body_timeout",
            "duration",
            "\"30s\"",
            "Between two parts of a request body.",
        ),
        KeyReference::with_default(
            "idle_timeout",
            "duration",
            "\"60s\"",
            "A connection without a request in progress.",
        ),
        KeyReference::with_default(
            "send_timeout",
            "duration",
            "\"30s\"",
            "A response of which the client accepts no byte.",
        ),
        KeyReference::with_default(
            "rate_min",
            "size, up to 1G",
            "128",
            "The minimum speed of a request body or a response, in bytes a second; if the response has a `rate`, at most a quarter of that. 0: no minimum.",
        ),
        KeyReference::with_default(
            "rate_grace",
            "duration, up to 1h",
            "\"10s\"",
            "How long a client may be slower than `rate_min`.",
        ),
        KeyReference::with_default(
            "connections_max",
            "1 to 1048576",
            "65536",
            "Concurrent connections.",
        ),
        KeyReference::with_default(
            "connections_per_address_max",
            "1 to 1048576",
            "16384",
            "Concurrent connections from one address.",
        ),
        KeyReference::with_default(
            "requests_per_connection_max",
            "0 to 4294967295",
            "0",
            "Requests before a connection is closed. 0: no limit.",
        ),
        KeyReference::with_default(
            "streams_per_connection_max",
            "1 to 32767",
            "128",
            "Concurrent requests of a connection with HTTP/2 or HTTP/3. Further ones are refused; clients may repeat them.",
        ),
        KeyReference::with_default(
            "head_len_max",
            "size, 512 to 1M",
            "\"16K\"",
            "The head of a request: its request line and all fields. Longer: 431.",
        ),
        KeyReference::with_default(
            "target_len_max",
            "size, 64 to `head_len_max`",
            "\"8K\"",
            "The request target (path and query); `head_len_max` if that is less. Longer: 414.",
        ),
        KeyReference::with_default(
            "fields_max",
            "8 to 4096",
            "100",
            "Field lines of a request. More: 431.",
        ),
        KeyReference::with_default(
            "body_len_max",
            "size, up to 1024G",
            "\"1M\"",
            "The body of a request, and so the largest upload. Longer: 413.",
        ),
        KeyReference::with_default(
            "calls_max",
            "1 to 65536",
            "256",
            "Concurrent calls of programs and origins, if there are [traffic classes](class.md).",
        ),
        KeyReference::with_default(
            "calls_waiting_max",
            "0 to 1048576",
            "1024",
            "Calls that wait for one of `calls_max`, of all classes.",
        ),
        KeyReference::with_default(
            "compressors_max",
            "1 to 65536",
            "128",
            "Responses of programs and origins that are [compressed](../programs.md#compression) at the same time. Others are sent uncompressed. Each takes 0.4 to 1.2 MiB.",
        ),
    ],
    notes: r#"
Memory for connections at worst: `head_len_max` for a client in the middle of a largest head; up to 80 KiB for a client that pipelines
requests without reading the responses (32 KiB of requests, 48 KiB of responses), until `send_timeout` or `rate_min` ends the connection;
about 100 bytes for an idle one. Against hostile clients lower `connections_per_address_max`: 1,000 is enough for an honest address.

Bodies of requests for files are read and dropped: they take time, but no memory. Bodies for [routes](site-route.md) are
[buffered](buffering.md). A program that accepts large uploads needs a larger `body_len_max`.

```toml
[limits]
idle_timeout = "20s"
rate_min = "1K"
connections_per_address_max = 256

[[site]]
root = "/srv/www"
```
"#,
};
