//! The reference of `[[origin]]`, the tables below it, and `[[class]]`.

use super::{KeyReference, TableReference};

pub(super) const ORIGIN: TableReference = TableReference {
    header: "[[origin]]",
    title: "a group of HTTP servers (upstream)",
    intro: r"
Interchangeable HTTP servers with load balancing, health checks and retries, for [routes](site-route.md) that name the group.
[Tasks and details](../accelerator.md).",
    context: "[[origin]]\nname = \"o\"\nservers = \"http://a\"\n",
    with_lines: &[("balance = \"hash\"", "balance = \"hash\"")],
    keys: &[
        KeyReference::required("name", "name", "The name for routes; unique."),
        KeyReference::required(
            "servers",
            "URL, or array of URLs and tables",
            "`\"http://HOST:PORT\"`, `\"https://HOST\"`, `\"unix:/PATH\"`, `\"h2c://HOST:PORT\"` (HTTP/2 in clear text), or `{ url = URL, weight = N, backup = true }`. A server with weight 3 (1 to 1000) receives three times as many requests as one with weight 1 (the default); a backup receives requests if no other server is healthy. All addresses of a host name are servers, and so are those of a service (SRV records), `\"http://_http._tcp.app.internal\"`. [More about names](#names-of-servers).",
        ),
        KeyReference::with_default(
            "balance",
            "`\"round-robin\"`, `\"least-connections\"`, `\"random\"`, `\"hash\"`",
            "\"round-robin\"",
            "Load balancing: in turn; the server with the fewest requests; the less loaded of two random servers; the same server for the same key, unless it is overloaded.",
        ),
        KeyReference::with_default(
            "hash",
            "`\"url\"`, `\"address\"`, `\"header:NAME\"`, `\"cookie:NAME\"`",
            "\"url\"",
            "The key: path and query, the client's address, the value of a field or of a cookie.",
        )
        .only_with(&["balance = \"hash\""]),
        KeyReference::with_described_default(
            "check",
            "table",
            "no active checks",
            "Active health checks: see [`[origin.check]`](origin-check.md). Without, only failed requests mark a server as unhealthy.",
        ),
        KeyReference::with_described_default(
            "resolver",
            "address, or array of addresses",
            "the system's resolver",
            "Up to 8 name servers for the [names of servers](#names-of-servers), asked in order: `\"10.0.0.2\"`, `\"[::1]:5353\"`.",
        ),
        KeyReference::with_described_default(
            "sticky",
            "`true`, name of a cookie, or table",
            "no sticky sessions",
            "Sticky sessions: a signed cookie names the server that answers a client: see [`[origin.sticky]`](origin-sticky.md).",
        ),
        KeyReference::with_default(
            "connections",
            "1 to 65536",
            "1024",
            "Connections to each server, of all workers together. Another origin with the same server has its own.",
        ),
        KeyReference::with_default(
            "connect_timeout",
            "duration, 1ms to 24h",
            "\"5s\"",
            "The time to establish a connection.",
        ),
        KeyReference::with_described_default(
            "timeout",
            "duration, 1ms to 24h",
            "the route's",
            "The time to the head of a response.",
        ),
        KeyReference::with_default(
            "tries",
            "1 to 16",
            "3",
            "Servers that are tried for one request. Another is tried only if a repetition is safe.",
        ),
        KeyReference::with_default(
            "retry_percent",
            "0 to 100",
            "20",
            "Retry budget: retries in percent of requests; 5 a second are always allowed.",
        ),
        KeyReference::with_default(
            "retry_body_max",
            "size, 0 to 16M",
            "\"64K\"",
            "Memory for a request body during the request, so that it can be [sent again](../accelerator.md#when-servers-fail). A request with a longer body is not retried after its body has begun. 0: no body is kept.",
        ),
        KeyReference::with_default(
            "host",
            "`\"client\"`, `\"origin\"`, or a host",
            "\"client\"",
            "The Host of requests to the server: the client's, that of the server's URL, or this one.",
        ),
        KeyReference::with_described_default(
            "protocol",
            "`\"http/1.1\"`, `\"h2\"`, `\"auto\"`",
            "`\"http/1.1\"`, with `h2c:` URLs `\"h2\"`",
            "The version of HTTP to the servers. [`\"h2\"`](#http2): HTTP/2, over TLS by ALPN, without TLS by prior knowledge. `\"auto\"`: HTTP/2 if an `https:` server offers it by ALPN, otherwise HTTP/1.1.",
        ),
        KeyReference::optional(
            "tls",
            "table",
            "TLS to servers with an `https:` URL: see [`[origin.tls]`](origin-tls.md).",
        ),
        KeyReference::optional(
            "proxy_protocol",
            "`\"v1\"`, `\"v2\"`",
            "Begin each connection with a PROXY header, which names the client. Such a connection is used for one request. Not with `https:` servers, and not with HTTP/2.",
        ),
    ],
    notes: r#"
Two servers behind a site, one of them larger, with a health check every two seconds:

```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "app"

[[origin]]
name = "app"
servers = ["http://10.0.0.1:3000", { url = "http://10.0.0.2:3000", weight = 2 }]
balance = "least-connections"
check = { path = "/healthz", interval = "2s" }
```

## Servers at run time

| command | effect on the server at an address, or with `--all` on all servers of the origin |
|---|---|
| `lowroad origin list` | lists servers with state, health, weight, requests and the last failure |
| `lowroad origin drain app 10.0.0.1:3000` | no new requests, except those of [sticky sessions](origin-sticky.md) that belong to it |
| `lowroad origin down app 10.0.0.1:3000 --wait` | no new requests, for maintenance; with `--wait`, also of `drain`, the command ends with the server's last request, and with the processes before an upgrade, at most after 60 s (`--wait 5m`; exit status 3 if it still has some) |
| `lowroad origin ready app 10.0.0.1:3000` | ends `drain`, `down` and `force`: requests while its checks and requests succeed |
| `lowroad origin force app 10.0.0.1:3000` | requests even if it fails its checks |
| `lowroad origin weight app 10.0.0.1:3000 10` | another weight; `configured`: that of the configuration |
| `lowroad origin add app 10.0.0.3:3000` | adds a server at an address, at most 256; `remove` removes it |
| with `--persist` | the change survives restarts ([`changes`](admin.md)) |

Equal addresses are one server: `[::ffff:10.0.0.1]` is `10.0.0.1`, `0.0.0.0` and `[::]` are `127.0.0.1` and `[::1]`, and names may resolve to the same
address. Its weight is that of the first address in the configuration, else of the first name, else of `add`. If a reload finds an added server in the
configuration, the server keeps its state, and is no longer an added one.

The origin of a route with a URL is named by this URL; the FastCGI servers of all routes are the origin `fastcgi:`, and have states only. Requests in progress go on. If no server is left, requests get 503.
A server that comes back begins with a slow start of 10 s, as after failed checks. The changes are kept by origin and address until a restart, also over
[upgrades](../operation.md#upgrade), except those made while the new process starts, and over reloads, as long as an origin has this name. An origin with a single server at an address without `check` has states only. The certificate of an
added `https:` server must contain its address, or the name in [`[origin.tls]`](origin-tls.md). [Other programs](../observe.md#the-admin-service) use `/v1/origins`.

## Names of servers

```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "app"

[[origin]]
name = "app"
servers = "http://_http._tcp.app.service.consul"
resolver = "127.0.0.1:8600"
```

The system's resolver (`/etc/hosts`, nsswitch.conf) is asked every 10 s. With `resolver`, and for services, the name servers are asked directly (without
`resolver` those of `/etc/resolv.conf`), again when the time to live of the records has passed, at least after 1 s and at most after 1 h. A service's servers of the
lowest priority share its requests by weight; the others are backups. The Host of `host = "origin"` and the name in certificates are those without the first two labels.

A name that can't be resolved is a server that is down: the server starts, asks again every second, and requests get 503 if no other server is left. Known
addresses stay when look-ups fail, and leave after two answers without them. At most 64 addresses of a name are used, 32 targets of a service, and 8 aliases
(CNAME) in a row. A name server has 1.5 s; truncated answers are requested again over TCP. A start or reload looks all names up at the
same time, and waits for them for at most 2 s. The system's resolver looks up 16 names at a time; further ones wait (`lookups.delayed`).

## HTTP/2

Servers of gRPC, in clear text:

```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "h2c://127.0.0.1:50051"
timeout = "10m"
```

Requests share connections: each worker has one to a server, and opens another, up to `connections`, if the requests in progress reach what the server
allows (SETTINGS_MAX_CONCURRENT_STREAMS), at most 100. With `connections` open, further requests wait for a stream until `timeout`, or, if the server
allows none, until `connect_timeout`, after which another server is tried. The first request on a new connection waits for the server's SETTINGS, for at most a second. Request and response
pass at the same time without being buffered, with trailers; `timeout` of the route ends a call in which neither side sends anything. Before
the response begins, `body_timeout` and `rate_min` of [`[limits]`](limits.md) apply to the request; `body_len_max` of the route (1 MiB) applies to all messages of a client together. A slow client stops the server: at most 256 KiB
wait for it in memory, besides `response_buffering`. 64 KiB of a request body wait for a slow server.

A request that the server refused (REFUSED_STREAM) or had not begun when it announced the end of its connection (GOAWAY) is repeated on another
connection, whatever its method. A malformed frame, more than 10,000 frames a second that carry nothing (PING, SETTINGS, empty DATA; a burst of 50,000), 1,000 reset streams a second (a burst of 10,000), a head of more
than 64 KiB or a block in more than 8 CONTINUATION frames end the connection: its requests get 502, and count as failures of the server (`malformed`). After a timeout the server gets a PING; the
connection is closed if nothing follows for 5 s, and also after 60 s without requests. Upgrades such as WebSocket are not passed over HTTP/2: use a route with HTTP/1.1 for them.

Errors of Lowroad itself (502, 504, refusals) have `grpc-status` and `grpc-message` for calls of gRPC (`application/grpc` over HTTP/2), with status 200 and without an error page; the
log has the status of HTTP: 502, 503, 504 and 429 are UNAVAILABLE (14), 413 RESOURCE_EXHAUSTED (8).
"#,
};

pub(super) const CHECK: TableReference = TableReference {
    header: "[origin.check]",
    title: "active health checks",
    intro: "GET requests that find out whether the servers of an origin are healthy.",
    context: "[[origin]]\nname = \"o\"\nservers = \"http://a\"\n[origin.check]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_default("path", "path", "\"/\"", "The target of the GET request."),
        KeyReference::with_default(
            "interval",
            "duration, 100ms to 1h",
            "\"5s\"",
            "From a response to the next check, with a jitter of a fifth.",
        ),
        KeyReference::with_default(
            "timeout",
            "duration, 1ms to 1h",
            "\"2s\"",
            "The time for a response.",
        ),
        KeyReference::with_default(
            "status",
            "statuses and ranges",
            "\"200-399\"",
            "The statuses of a healthy server: `\"200-299,404\"`.",
        ),
        KeyReference::with_default(
            "rise",
            "1 to 100",
            "2",
            "Consecutive successes that make a server healthy.",
        ),
        KeyReference::with_default(
            "fall",
            "1 to 100",
            "3",
            "Consecutive failures that make it unhealthy.",
        ),
    ],
    notes: r#"
```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "app"

[[origin]]
name = "app"
servers = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"]

[origin.check]
path = "/healthz"
interval = "2s"
status = "200"
```
"#,
};

pub(super) const TLS: TableReference = TableReference {
    header: "[origin.tls]",
    title: "TLS to an origin",
    intro: "Settings for servers with an `https:` URL. [More](../accelerator.md#tls-to-origins).",
    context: "[[origin]]\nname = \"o\"\nservers = \"https://a\"\n[origin.tls]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_default(
            "verify",
            "boolean",
            "true",
            "Require a valid certificate with the right name.",
        ),
        KeyReference::with_described_default(
            "ca",
            "path",
            "the system's",
            "The trusted authorities, in PEM.",
        ),
        KeyReference::with_described_default(
            "name",
            "host name or address",
            "the host of the URL",
            "The name in the certificate and in the handshake (SNI).",
        ),
        KeyReference::optional(
            "certificate",
            "path",
            "A client certificate for servers that request one, in PEM. Needs `key`.",
        ),
        KeyReference::optional("key", "path", "Its key, in PEM. Needs `certificate`."),
    ],
    notes: r#"
```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "app"

[[origin]]
name = "app"
servers = ["https://10.0.0.1", "https://10.0.0.2"]

[origin.tls]
ca = "/etc/lowroad/internal-ca.pem"
name = "app.internal"
```
"#,
};

pub(super) const CLASS: TableReference = TableReference {
    header: "[[class]]",
    title: "traffic classes",
    intro: r"
Classes of requests share the calls of programs and origins ([routes](site-route.md)) under overload. Without classes, each route has its own
limits only.",
    context: "[[class]]\nname = \"c\"\n",
    with_lines: &[("rate", "rate = 5")],
    keys: &[
        KeyReference::required(
            "name",
            "name",
            "The name in `lowroad status` and `lowroad explain`; unique.",
        ),
        KeyReference::with_default(
            "weight",
            "1 to 1000",
            "10",
            "The class's share of new calls, relative to other classes with waiting calls. The class with the least weight is the lowest, of equal ones the later.",
        ),
        KeyReference::with_described_default(
            "concurrency",
            "1 to 65536",
            "`calls_max`",
            "Concurrent calls.",
        ),
        KeyReference::with_described_default(
            "rate",
            "1 to 1000000 a second, or with `/s`, `/m`, `/h`",
            "no limit",
            "Requests, whatever answers them. Further ones get 503 at once.",
        ),
        KeyReference::with_described_default(
            "burst",
            "1 to 1000000",
            "the requests of a second",
            "Requests that may arrive at once.",
        )
        .only_with(&["rate"]),
        KeyReference::with_default("queue", "0 to 65536", "128", "Waiting calls."),
        KeyReference::with_default(
            "deadline",
            "duration, 1ms to 1h",
            "\"10s\"",
            "How long a call may wait.",
        ),
        KeyReference::with_described_default(
            "hosts",
            "list of names",
            "any",
            "Members by the requested host: `\"example.com\"`, `\"*.example.com\"`.",
        ),
        KeyReference::with_described_default(
            "routes",
            "list of patterns",
            "any",
            "Members by the path.",
        ),
        KeyReference::with_described_default(
            "addresses",
            "list of prefixes",
            "any",
            "Members by the client's address: `\"10.0.0.0/8\"`, `\"2001:db8::/32\"`, `\"192.0.2.1\"`.",
        ),
        KeyReference::with_described_default(
            "headers",
            "list of fields",
            "any",
            "Members by a field of the request: `\"X-Tier: gold\"`, compared exactly, or `\"Authorization\"` with any value.",
        ),
    ],
    notes: r#"
```toml
[limits]
calls_max = 32

[[class]]
name = "staff"
weight = 60
addresses = ["10.0.0.0/8", "2001:db8::/32"]

[[class]]
name = "crawlers"
weight = 1
concurrency = 2
rate = "5/s"
headers = ["X-Crawler"]

[[class]]
name = "api"
weight = 20
routes = ["/api/**"]
queue = 64
deadline = "2s"

[[class]]
name = "visitors"
weight = 20

[[site]]
root = "/srv/www"

[[site.route]]
pattern = "/api/**"
origin = "http://127.0.0.1:3000"
```

**Members.** A request belongs to the first class of which it meets all of `hosts`, `routes`, `addresses` and `headers` that are present; one entry
of each list is enough. A class without these keys takes all remaining requests, so it is the last. Without such a class, the remaining requests
belong to the class `others`, which has the defaults.

**Calls.** A call is a request to a program or an origin, from its beginning to the head of the response. At most `calls_max` of
[`[limits]`](limits.md) are in progress, and at most `concurrency` of each class. Others wait, and start in the proportion of the classes' weights. A
class that didn't use its share, or was at its own limit, saves nothing up. Files and stored responses need no call; neither does a request that
joins a fetch in progress.

**Overload.** A call gets 503 with `Retry-After` if its class has `queue` waiting calls, or after it has waited for `deadline`. If
`calls_waiting_max` calls wait in all, each class may have the part of these places that is due to its weight (`others` is one of the classes). Waiting calls beyond that
are dropped: those of the lowest class first, the youngest first. A stored response that may be used on errors (stale-if-error) is used for a
dropped call, too.

Weights count calls, not their duration: a class of slow calls is bounded by its `concurrency`. Responses of the [fast path](../softirq.md) don't count
for a `rate`. A request through a proxy has the proxy's address, unless the proxy [reports the client](site.md#clients-behind-proxies). Clients choose their fields: any
client can join a class that is selected by a field alone. Changed classes apply to new requests; calls in progress don't count for them.
"#,
};
