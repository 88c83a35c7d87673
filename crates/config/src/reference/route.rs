//! The reference of `[[site.route]]` and `[site.route.cache]`.

use super::conditions::{CONDITION_COUNT, with_conditions};
use super::{KeyReference, TableReference};

const ROUTE_KEYS: &[KeyReference] = &[
    KeyReference::required("pattern", "pattern", "The paths."),
    KeyReference::optional("module", "name", "Handler: the [module](module.md) of this name."),
    KeyReference::optional("cgi", "path or `true`", "Handler: the CGI programs (RFC 3875) in this folder; or this program, for all paths of the route; with `true`, programs among the site's files."),
    KeyReference::optional("fastcgi", "`\"unix:PATH\"`, `\"HOST:PORT\"`, or array of them", "Handler: the FastCGI server at this address, for example php-fpm; one of [several](../programs.md#several-fastcgi-servers). All addresses of a host name are servers."),
    KeyReference::optional("origin", "URL or name", "Handler: an HTTP server, at `\"http://HOST:PORT\"`, `\"https://HOST\"` or `\"unix:/PATH\"`; or the [origin](origin.md) of this name. Responses are [stored](../accelerator.md) as they permit."),
    KeyReference::optional("pages", "name or `true`", "Handler: the site's files are [templates](../pages.md), with queries to the [database](database.md) of this name; with `true`, without a default database."),
    KeyReference::with_default("missing", "boolean", "false", "Apply only to paths without a file."),
    KeyReference::with_default("timeout", "duration, 1ms to 24h", "\"30s\"", "From the complete request (with `request_buffering = false`, its head) to the head of the response, and between two parts of a body. Longer: 504."),
    KeyReference::with_described_default("body_len_max", "size, up to 1024G", "that of the site", "The body of a request, if less is allowed than for other routes. Longer: 413."),
    KeyReference::with_default("concurrency", "1 to 65536", "256", "Concurrent requests. Others: 503. One client may have all of it, except with `origin` (`client_share`)."),
    KeyReference::with_default("client_share", "1 to 100", "75", "The share of `concurrency`, and of `tunnels`, that one client may use while no other client uses any, in percent. Its share shrinks as others use more: a client is admitted while it has at most this share of its own and the free places together. Beyond: 503. A client is an IPv4 address, or the first 64 bits of an IPv6 address. Behind a proxy that doesn't report clients, all requests are from one client: `100` switches the bound off.").only_with(&["origin"]),
    KeyReference::with_default("tunnels", "1 to 65536", "4096", "Concurrent connections with another protocol, such as WebSocket. Others: 503. They count neither for `concurrency` nor for `connections`.").only_with(&["origin"]),
    KeyReference::with_default("request_buffering", "boolean", "true", "Call the program when the request body is complete ([`[buffering]`](buffering.md)). With `false` the body is streamed, and occupies one of `concurrency` while the client sends it.").only_with(&["module", "cgi", "fastcgi", "origin"]),
    KeyReference::with_default("response_buffering", "boolean", "true", "Buffer what a slow client has not read, in memory or in a file, so that the program continues. With `false` the program waits for the client. In both cases bytes are sent as soon as the client accepts them.").only_with(&["module", "cgi", "fastcgi", "origin"]),
    KeyReference::with_default("keep", "`\"allowed\"`, `\"shared\"` or `\"never\"`", "\"allowed\"", "Which responses are stored: all that a cache may store (of programs, those with a lifetime such as `max-age`); only those that are marked for shared caches (`public`, `s-maxage`, of an origin CDN-Cache-Control); none."),
    KeyReference::with_described_default("compress", "boolean, or array of `\"br\"`, `\"zstd\"`, `\"gzip\"`", "`programs` of [`[site.compress]`](site-compress.md)", "[Compress responses](../programs.md#compression) on the fly with one of these codings; `true` means the fast ones, zstd and gzip."),
    KeyReference::with_default("head_len_max", "size, 1K to 1M", "\"64K\"", "The head of a program's response. Longer: 502, and a line in the error log.").only_with(&["cgi", "fastcgi"]),
    KeyReference::with_default("fields_max", "8 to 4096", "256", "Fields of such a head. More: 502, and a line in the error log.").only_with(&["cgi", "fastcgi"]),
    KeyReference::optional("env", "table", "`[site.route.env]`: environment variables in addition to those of the request; texts, numbers, booleans and [secrets](README.md#secrets).").only_with(&["cgi", "fastcgi"]),
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
    KeyReference::with_default("internal_redirects", "boolean", "false", "A response may name what is sent instead, by X-Accel-Redirect or X-Sendfile ([files that programs name](../programs.md#files-that-programs-name)).").only_with(&["origin"]),
    KeyReference::with_default("internal", "boolean", "false", "Clients get 404: only [rewrites](site-rewrite.md), fallbacks and [programs that name its paths](../programs.md#files-that-programs-name) lead to the route."),
    KeyReference::with_default("own_redirects", "boolean", "true", "If `Location` or `Content-Location` of a response has the server's own address (`http://127.0.0.1:3000/x`), send only the path (`/x`), which is at the address that the client requested.").only_with(&["origin"]),
    KeyReference::optional("cache", "table", "See [`[site.route.cache]`](site-route-cache.md).").only_with(&["origin"]),
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
        ("origin = \"http…\"", "origin = \"http://a\""),
    ],
    keys: &with_conditions::<{ ROUTE_KEYS.len() + CONDITION_COUNT }>(ROUTE_KEYS),
    notes: r#"
With the name of an [`[[origin]]`](origin.md), `connections`, `connect_timeout` and `retry_body_max` are keys of that table.

A path that a pattern matches is never a file, whatever other conditions its routes have: a request that meets none of them gets 404.

`methods` may have any name but `CONNECT` and `TRACE`, which no handler receives. `PURGE` is handled by the server if the site has `purge_from`;
origins never receive it.

If a site has routes with `header` or `cookie`, the responses of all its routes name those fields in Vary, so that neither this server nor a cache in front of it
mixes them up. If one of them is a field that [proxies report](site.md#clients-behind-proxies) (`header = "X-Forwarded-Proto: https"`), responses of
the site's routes are not stored, because any client can send it. [More about conditions](site-rule-not.md).

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

pub(super) const CACHE: TableReference = TableReference {
    header: "[site.route.cache]",
    title: "caching of an origin's responses",
    intro: "Responses are stored and reused by RFC 9111. These keys change that for a route with `origin`.",
    context: "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n[site.route.cache]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_described_default(
            "ttl",
            "duration, up to 10y",
            "a tenth of the time since `Last-Modified`, at most a day",
            "The freshness lifetime of responses without freshness information.",
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
Responses with `must-revalidate`, `proxy-revalidate` or `no-cache` are never used stale.

```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "http://127.0.0.1:3000"

[site.route.cache]
ttl = "10s"
stale_while_revalidate = "1m"
```
"#,
};
