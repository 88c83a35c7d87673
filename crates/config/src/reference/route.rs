//! The reference of `[[site.route]]`, `[site.route.request]` and `[site.route.cache]`.

use super::conditions::{CONDITION_COUNT, with_conditions};
use super::{KeyReference, TableReference};

const ROUTE_KEYS: &[KeyReference] = &[
    KeyReference::required("pattern", "pattern or list of them", "The paths. Each pattern of a list is a route with separate limits."),
    KeyReference::optional("module", "name", "Handler: the [module](module.md) of this name."),
    KeyReference::with_described_default("mirror", "name, URL, or table", "no mirror", "[Send copies](site-route-mirror.md) of requests to another [origin](origin.md), and discard its responses: a name, a URL, or `{ to = \"NAME\", share = \"10%\" }`.").only_with(&["origin"]),
    KeyReference::optional("cgi", "path or `true`", "Handler: the CGI programs (RFC 3875) in this folder; or this program, for all paths of the route; with `true`, programs among the site's files."),
    KeyReference::optional("fastcgi", "`\"unix:PATH\"`, `\"HOST:PORT\"`, or array of them", "Handler: the FastCGI server at this address, for example php-fpm; one of [several](../programs.md#several-fastcgi-servers). All addresses of a host name are servers."),
    KeyReference::optional("origin", "URL or name", "Handler: an HTTP server, at `\"http://HOST:PORT\"`, `\"https://HOST\"`, `\"h2c://HOST:PORT\"` (HTTP/2) or `\"unix:/PATH\"`, perhaps with a [path](#paths-of-origins); or the [origin](origin.md) of this name. Responses are [stored](../accelerator.md) as they permit."),
    KeyReference::optional("pages", "name or `true`", "Handler: the site's files are [templates](../pages.md), with queries to the [database](database.md) of this name; with `true`, without a default database."),
    KeyReference::with_default("missing", "boolean", "false", "Apply only to paths without a file."),
    KeyReference::with_default("timeout", "duration, 1ms to 24h", "\"30s\"", "From the complete request (with `request_buffering = false`, its head) to the head of the response, and between two parts of a body. Longer: 504."),
    KeyReference::with_described_default("body_len_max", "size, up to 1024G", "that of the site", "The body of a request, if less is allowed than for other routes. Longer: 413."),
    KeyReference::with_described_default("rate", "bandwidth: `\"1MB/s\"`, 1KB/s to 1024GB/s", "that of the site", "The bandwidth of each response."),
    KeyReference::with_described_default("after", "size", "0", "The bytes at the start of a body that are sent without `rate`.").only_with(&["rate"]),
    KeyReference::with_default("concurrency", "1 to 65536", "256", "Concurrent requests. Others: 503. One client may have all of it, except with `origin` (`client_share`)."),
    KeyReference::with_default("client_share", "1 to 100", "75", "The share of `concurrency`, and of `tunnels`, that one client may use while no other client uses any, in percent. Its share shrinks as others use more: a client is admitted while it has at most this share of its own and the free places together. Beyond: 503. A client is an IPv4 address, or the first 64 bits of an IPv6 address. Behind a proxy that doesn't report clients, all requests are from one client: `100` switches the bound off.").only_with(&["origin"]),
    KeyReference::with_default("tunnels", "1 to 65536", "4096", "Concurrent connections with another protocol, such as WebSocket. Others: 503. They count neither for `concurrency` nor for `connections`.").only_with(&["origin"]),
    KeyReference::with_described_default("request_buffering", "boolean", "`true`; `false` with HTTP/2 to an origin", "Call the program when the request body is complete ([`[buffering]`](buffering.md)). With `false` the body is streamed, and occupies one of `concurrency` while the client sends it.").only_with(&["module", "cgi", "fastcgi", "origin"]),
    KeyReference::with_default("response_buffering", "boolean", "true", "Buffer what a slow client has not read, in memory or in a file, so that the program continues. With `false` the program waits for the client. In both cases bytes are sent as soon as the client accepts them.").only_with(&["module", "cgi", "fastcgi", "origin"]),
    KeyReference::with_default("keep", "`\"allowed\"`, `\"shared\"` or `\"never\"`", "\"allowed\"", "Which responses are stored: all that a cache may store (of programs, those with a lifetime such as `max-age`); only those that are marked for shared caches (`public`, `s-maxage`, of an origin CDN-Cache-Control); none."),
    KeyReference::with_described_default("compress", "boolean, or array of `\"br\"`, `\"zstd\"`, `\"gzip\"`", "`programs` of [`[site.compress]`](site-compress.md)", "[Compress responses](../programs.md#compression) on the fly with one of these codings; `true` means the fast ones, zstd and gzip."),
    KeyReference::with_default("head_len_max", "size, 1K to 1M", "\"64K\"", "The head of a program's response. Longer: 502, and a line in the error log.").only_with(&["cgi", "fastcgi"]),
    KeyReference::with_default("fields_max", "8 to 4096", "256", "Fields of such a head. More: 502, and a line in the error log.").only_with(&["cgi", "fastcgi"]),
    KeyReference::optional("env", "table", "`[site.route.env]`: environment variables in addition to those of the request; texts, numbers, booleans and [secrets](README.md#secrets). Values may contain [variables](README.md#variables) and `$1`, the text of the pattern's last wildcard.").only_with(&["cgi", "fastcgi"]),
    KeyReference::with_described_default("memory", "size, 1M to 1024G, or 0 with `cgi`", "`\"1G\"` with `cgi`, `\"32M\"` with `pages`", "With `cgi`: address space of the program and of each of its children; 0: no limit. With `pages`: memory of a page while it is made, for values, rows and text; beyond it 500. A request body may take an eighth of it.").only_with(&["cgi", "pages"]),
    KeyReference::with_described_default("user", "text", "`\"nobody\"` if the server stays root, else the server's", "The user of the programs, with that user's group and no other. Only a server that stays root (`user = \"root\"` in [`[server]`](server.md)) can run programs as another user; with `\"root\"` they run as root.").only_with(&["cgi"]),
    KeyReference::with_default("cpu", "duration, 1s to 24h", "\"30s\"", "Processor time of the program and of each of its children, in whole seconds.").only_with(&["cgi"]),
    KeyReference::with_default("processes", "0 to 65536", "4096", "Processes and threads of the programs' user, including all others of that user, beyond which a program can't start another; 0: no limit. Root has no limit.").only_with(&["cgi"]),
    KeyReference::optional("script", "path under the root, or `\"\"`", "The script that answers all requests; without it, the path of a request is its script. `\"\"`: the server [has no scripts](../programs.md#fastcgi-servers-without-scripts).").only_with(&["fastcgi"]),
    KeyReference::with_described_default("script_root", "path", "the site's root", "The site's root as the FastCGI server sees it. Scripts need not exist on this machine then.").only_with(&["fastcgi"]),
    KeyReference::with_default("balance", "`\"round-robin\"`, `\"least-connections\"`", "\"round-robin\"", "Load balancing between several servers: in turn, or the one with the fewest requests that wait for a response.").only_with(&["fastcgi"]),
    KeyReference::with_default("index", "file name", "\"index.php\"", "The script of a folder's path.").only_with(&["fastcgi"]),
    KeyReference::with_default("keep_connections", "boolean", "false", "[Keep connections](../programs.md#connections-to-fastcgi-servers) for further requests.").only_with(&["fastcgi"]),
    KeyReference::with_described_default("connections", "1 to 4096 with `fastcgi`, 1 to 65536 with the URL of an origin", "`32`, `1024`", "Connections to each server, of all workers together.").only_with(&["fastcgi", "origin"]),
    KeyReference::with_default("connect_timeout", "duration, 1ms to 24h", "\"5s\"", "The time to establish a connection. Longer: 504.").only_with(&["origin = \"http…\""]),
    KeyReference::with_default("retry_body_max", "size, 0 to 16M", "\"64K\"", "Memory for a request body during the request, so that it can be [sent again](../accelerator.md#when-servers-fail). A request with a longer body is not retried after its body has begun. 0: no body is kept.").only_with(&["origin = \"http…\""]),
    KeyReference::with_described_default("protocol", "`\"http/1.1\"`, `\"h2\"`, `\"auto\"`", "`\"http/1.1\"`, with an `h2c:` URL `\"h2\"`", "The version of HTTP to the origin: see [HTTP/2 to origins](origin.md#http2).").only_with(&["origin = \"http…\""]),
    KeyReference::with_default("internal_redirects", "boolean", "false", "A response may name what is sent instead, by X-Accel-Redirect or X-Sendfile ([files that programs name](../programs.md#files-that-programs-name)).").only_with(&["origin"]),
    KeyReference::with_default("internal", "boolean", "false", "Clients get 404: only [rewrites](site-rewrite.md), fallbacks and [programs that name its paths](../programs.md#files-that-programs-name) lead to the route."),
    KeyReference::with_default("intercept_errors", "boolean, or table of statuses", "false", "Replace error responses by the [error pages](site-error_pages.md) of the site, for the statuses that have one. Their status, `WWW-Authenticate`, `Retry-After` and `Allow` stay. A table gives these errors another status: `{ \"5xx\" = 503, 404 = 200 }`, with the page of the new status, or else of the old one; other errors stay."),
    KeyReference::with_default("own_redirects", "boolean", "true", "If `Location` or `Content-Location` of a response has the server's own address (`http://127.0.0.1:3000/x`), send only the path (`/x`), which is at the address that the client requested.").only_with(&["origin"]),
    KeyReference::optional("strip_prefix", "path", "Remove this front of the path from requests to the origin ([paths of origins](#paths-of-origins)). All paths of the pattern must begin with it and a slash.").only_with(&["origin"]),
    KeyReference::optional("add_prefix", "path, percent-encoded", "Put this in front of the rest of the path. Not with a path in the URL of the origin, which means the same.").only_with(&["origin"]),
    KeyReference::with_default("restore_prefix", "boolean", "true", "Translate paths in `Location`, `Content-Location`, `Refresh` and the `Path` of `Set-Cookie` of responses back. Also with `add_prefix` and with a path in the URL of the origin.").only_with(&["strip_prefix"]),
    KeyReference::optional("request", "table", "See [`[site.route.request]`](site-route-request.md).").only_with(&["origin"]),
    KeyReference::optional("cache", "table", "See [`[site.route.cache]`](site-route-cache.md).").only_with(&["origin", "cgi", "fastcgi"]),
];

pub(super) const ROUTE: TableReference = TableReference {
    header: "[[site.route]]",
    title: "a route to a program or an origin",
    intro: r"
Paths that a handler answers: requests of all methods go to it, and files that the pattern matches are never sent as files. Routes are tried in the
order of the file, after redirects and before files; the first that matches applies. A route has exactly one handler: `module`, `cgi`,
`fastcgi`, `origin` or `pages`.",
    context: "[[module]]\nname = \"m\"\nlinked = \"l\"\n[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/x/**\"\n",
    with_lines: &[
        ("", "origin = \"http://a\""),
        ("module", "module = \"m\""),
        ("cgi", "cgi = \"c\""),
        ("fastcgi", "fastcgi = \"unix:/f\""),
        ("origin", "origin = \"http://a\""),
        ("pages", "pages = true"),
        ("rate", "origin = \"http://a\"\nrate = \"1MB/s\""),
        ("origin = \"http…\"", "origin = \"http://a\""),
        (
            "strip_prefix",
            "origin = \"http://a\"\nstrip_prefix = \"/x\"",
        ),
    ],
    keys: &with_conditions::<{ ROUTE_KEYS.len() + CONDITION_COUNT }>(ROUTE_KEYS),
    notes: r#"
With the name of an [`[[origin]]`](origin.md), `connections`, `connect_timeout`, `retry_body_max` and `protocol` are keys of that table.

A path that a pattern matches is never a file, whatever other conditions its routes have: a request that meets none of them gets 404.

`methods` may have any name but `CONNECT` and `TRACE`, which no handler receives. `PURGE` is handled by the server if the site has `purge_from`;
origins never receive it.

If a site has routes with `header` or `cookie`, the responses of all its routes name those fields in Vary, so that neither this server nor a cache in front of it
mixes them up. If one of them is a field that [proxies report](site.md#clients-behind-proxies) (`header = "X-Forwarded-Proto: https"`), responses of
the site's routes are not stored, because any client can send it. [More about conditions](site-rule-not.md).

## Paths of origins

A request keeps its path, unless the route has `strip_prefix`, `add_prefix` or a path in the URL of the origin. A path in the URL replaces the text of
the pattern before its first wildcard, up to its last slash; whether the URL ends in a slash makes no difference. With a pattern without wildcards, it
replaces the whole path. `strip_prefix` takes the place of that text. A URL that ends in a single `/` has no path.

| pattern | `origin` and keys | request | origin gets |
|---|---|---|---|
| `/api/**` | `http://app` or `http://app/` | `/api/x?q` | `/api/x?q` |
| `/api/**` | `http://app`, `strip_prefix = "/api"` | `/api/x?q` | `/x?q` |
| `/api/**` | `http://app`, `strip_prefix = "/api"` | `/api/` | `/` |
| `/api/**` | `http://app/v2` or `http://app/v2/` | `/api/x` | `/v2/x` |
| `/api/**` | `http://app`, `add_prefix = "/v2"` | `/api/x` | `/v2/api/x` |
| `/api/v1/**` | `http://app/v2`, `strip_prefix = "/api"` | `/api/v1/x` | `/v2/v1/x` |
| `/**` | `http://app/v2` | `/x` | `/v2/x` |
| `/api` | `http://app/v2/` | `/api` | `/v2/` |

The rest of the path keeps the bytes that the client sent (`%2F`, `;`, `//`). The origin gets the removed prefix in `X-Forwarded-Prefix`, after that of a
[trusted proxy](site.md#clients-behind-proxies), and a translated `Destination` (WebDAV). Stored responses, purges and rules have the client's path.

In responses, a path below the added prefix gets the removed one again; other paths and other hosts are not changed. A path that begins
with the removed prefix already is not changed either, because the application knows it from `X-Forwarded-Prefix`. A cookie for `/` becomes one for the
removed prefix. `restore_prefix = false` leaves the fields as they are. Paths in bodies are never changed.

## CGI

The text of the pattern up to its first wildcard must end in `/`; it stands for the folder: with `pattern = "/cgi-bin/**"` and
`cgi = "/usr/lib/cgi-bin"`, the path `/cgi-bin/search/a/b` executes `/usr/lib/cgi-bin/search` with `/a/b` as `PATH_INFO`. With the path of a
program, `PATH_INFO` is what follows that text.

The variables of RFC 3875 section 4.1 and `HTTP_…` describe the request and can't be set in `env`. `DOCUMENT_ROOT` and `SCRIPT_FILENAME` can, for a
FastCGI server that sees the files at another path.

CGI programs next to a site of files:

```toml
[[site]]
root = "/srv/www"

[[site.route]]
pattern = "/cgi-bin/**"
cgi = "/usr/lib/cgi-bin"
timeout = "10s"
concurrency = 32
memory = "256M"
cpu = "5s"

[site.route.env]
LANG = "C.UTF-8"
```

## PHP

A PHP application with a front controller: scripts are executed, also those of folders (`/wp-admin/`), other files are sent, and all other paths go to
`/index.php`.

```toml
[limits]
body_len_max = "64M"            # uploads

[[site]]
root = "/srv/app/public"

[[site.route]]
pattern = "*.php"
fastcgi = "unix:/run/php/php-fpm.sock"

[[site.route]]
pattern = "/**"
missing = true
fastcgi = "unix:/run/php/php-fpm.sock"
script = "/index.php"
```
"#,
};

pub(super) const REQUEST: TableReference = TableReference {
    header: "[site.route.request]",
    title: "fields of requests to an origin",
    intro: "Changes the fields that an origin gets in place of the client's. Values may contain [variables](README.md#variables), and `$1`: the text of the last wildcard, if the pattern of the route ends in one.",
    context: "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n[site.route.request]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_described_default(
            "host",
            "host",
            "as `host` of the [origin](origin.md)",
            "The value of Host: a host, `$host`, `$authority`, or a combination of them (`$host:8080`). If the result is not a host, the default applies.",
        ),
        KeyReference::optional(
            "set",
            "table",
            "Fields with their values; each replaces all fields of its name, also those that the server adds (`X-Forwarded-For`). A field with an empty value is not sent. A value may be a [secret](README.md#secrets) in another place, such as an API key.",
        ),
        KeyReference::optional(
            "append",
            "table",
            "Fields with their values, or secrets; each is added to the fields of its name.",
        ),
        KeyReference::optional("remove", "list of names", "Fields to remove."),
    ],
    notes: r#"
```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "http://127.0.0.1:3000"

[site.route.request]
set = { X-Request-ID = "$request_id", X-Tenant = "$cookie_tenant", X-Key = { env = "API_KEY" } }
remove = "Accept-Language"
```

- The server manages these fields itself: `Connection`, `Content-Length`, `Expect`, `If-…`, `Keep-Alive`, `Max-Forwards`, `Proxy-Connection`, `Range`, `TE`,
  `Trailer`, `Transfer-Encoding`, `Upgrade`, `Via`, `traceparent`, `tracestate`.
- A value is sent in one line: control characters of variables are percent-encoded.
- `lowroad explain` shows the request for a URL.

## Stored responses

A stored response is sent only to clients for which the origin would get the same request:

- Host, path, query and scheme are a part of the key under which a response is stored, and so is all that is made of them (`$host`, `$arg_NAME`, …).
- Of `$header_NAME` and `$cookie_NAME`, the responses of the route name the field (`NAME`, `Cookie`) in `Vary`, for this server and for caches in front of it.
- With a variable of the client or its TLS connection (`$client`, `$tls_…`, …), no response of the route is stored. Fields in which proxies
  report the client (`X-Real-IP`, `X-Forwarded-For`) are an exception: the server sends these without any setting, too. Nor does `$request_id` count, which is
  different for each request.
"#,
};

pub(super) const CACHE: TableReference = TableReference {
    header: "[site.route.cache]",
    title: "caching of responses",
    intro: "Responses are stored and reused by RFC 9111. These keys change that for a route with `origin`; those without a note also for `cgi` and `fastcgi`.",
    context: "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n[site.route.cache]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_described_default(
            "ttl",
            "duration, up to 10y",
            "a tenth of the time since `Last-Modified`, at most a day",
            "The freshness lifetime of responses without freshness information. Without it, those of programs are not stored.",
        ),
        KeyReference::optional(
            "ignore_arguments",
            "list of names",
            "Arguments of the query that do not distinguish responses, decoded; a `*` at the end is any text: `[\"utm_*\", \"gclid\"]`. The origin still gets them, of the request that comes first.",
        ),
        KeyReference::with_default(
            "sort_arguments",
            "boolean",
            "false",
            "The order of arguments with different names does not matter.",
        ),
        KeyReference::optional(
            "bypass",
            "table, or array of tables",
            "Requests that the handler always answers: if all [conditions](site-rule-not.md) of one table hold, no stored response is used, and none is stored.",
        ),
        KeyReference::optional(
            "rule",
            "table, or array of tables",
            "See [`[[site.route.cache.rule]]`](site-route-cache-rule.md).",
        ),
        KeyReference::with_default(
            "stale_while_revalidate",
            "duration, up to 10y",
            "0",
            "How long after its lifetime a response is used while a request for a new one is at the origin, if the response has no such directive.",
        ),
        KeyReference::with_default(
            "stale_if_error",
            "duration, up to 10y",
            "\"1h\"",
            "How long after its lifetime a response is used if the origin doesn't answer, or with 500, 502, 503 or 504, if the response has no such directive.",
        ),
        KeyReference::with_default(
            "cookies",
            "`\"shared\"`, `\"never\"` or `\"always\"`",
            "\"shared\"",
            "Which responses with `Set-Cookie` are stored: those that are marked for shared caches (`public`, `s-maxage`, `CDN-Cache-Control`), none, or all that the RFC permits.",
        ),
        KeyReference::with_default(
            "request_directives",
            "boolean",
            "false",
            "Obey `Cache-Control` of requests (`no-cache`, `max-age`, …). Any client can then cause requests to the origin. `no-store` is always obeyed.",
        ),
        KeyReference::with_default(
            "status_field",
            "boolean",
            "true",
            "Send `Cache-Status` (RFC 9211).",
        ),
    ],
    notes: r#"
Responses with `must-revalidate`, `proxy-revalidate` or `no-cache` are never used stale. `stale_while_revalidate`, `stale_if_error`, `cookies`,
`request_directives` and `status_field` are only for `origin`.

Programs often answer a client with a cookie in another way without saying so. So with `ttl` requests with a cookie always go to the program, unless there
is a `bypass`, which decides then. Responses with `Set-Cookie` or `private` are never stored. The softirq level gets no responses of routes with
`ignore_arguments`, `sort_arguments`, `bypass`, `rule`, or with `ttl` for programs. `lowroad purge URL` finds responses under the changed key.

```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "*.php"
fastcgi = "unix:/run/php/php-fpm.sock"
cache = { ttl = "1s" }

[[site.route]]
pattern = "/**"
origin = "http://127.0.0.1:3000"

[site.route.cache]
ttl = "10s"
stale_while_revalidate = "1m"
ignore_arguments = ["utm_*", "gclid"]
bypass = { cookie = "wordpress_logged_in_*" }
```
"#,
};

const CACHE_RULE_KEYS: &[KeyReference] = &[
    KeyReference::optional("pattern", "pattern or list of them", "The paths; without it, all."),
    KeyReference::optional(
        "status",
        "`\"2xx\"`, `\"3xx\"`, `\"4xx\"`, `\"5xx\"` or 200 to 599, or list of them",
        "The statuses of responses; without it, all with `no_store`, with `ttl` those that are stored without a lifetime of their own (200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501).",
    ),
    KeyReference::optional(
        "ttl",
        "duration, up to 10y",
        "The freshness lifetime of responses without one; also of those with statuses that are otherwise not stored without one, if `status` names them.",
    ),
    KeyReference::with_default(
        "override",
        "boolean",
        "false",
        "`ttl` replaces the lifetime of the response, from its arrival, as well as `no-cache` and `must-revalidate`.",
    )
    .only_with(&["ttl"]),
    KeyReference::with_default(
        "no_store",
        "boolean",
        "false",
        "The response is not stored. A stored one is still used, unlike with `bypass`.",
    ),
];

pub(super) const CACHE_RULE: TableReference = TableReference {
    header: "[[site.route.cache.rule]]",
    title: "lifetimes by status, path and request",
    intro: "Of these tables, at most 64, the first that matches a response applies. Each has `ttl` or `no_store = true`.",
    context: "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n[[site.route.cache.rule]]\n",
    with_lines: &[("", "ttl = 1"), ("ttl", "ttl = 1")],
    keys: &with_conditions::<{ CACHE_RULE_KEYS.len() + CONDITION_COUNT }>(CACHE_RULE_KEYS),
    notes: r#"
The [conditions](site-rule-not.md) are on the request that gets the response. A lifetime is for this cache only: clients get the fields as the origin sent
them. Responses with `no-store`, `private` or `Set-Cookie` are not stored in any case. `lowroad explain` shows the rules for a URL.

```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "http://127.0.0.1:3000"

[site.route.cache]
rule = [
  { status = "5xx", no_store = true },
  { status = [404, 410], ttl = "10s" },
  { pattern = "/img/**", ttl = "1d", override = true },
]
```
"#,
};
