//! The reference of `[[site]]` and `[site.tls]`.

use super::{KeyReference, TableReference};

pub(super) const SITE: TableReference = TableReference {
    header: "[[site]]",
    title: "a site (virtual host)",
    intro: "Names, listeners and files of a site. A configuration needs at least one.",
    context: "[[site]]\nroot = \"r\"\n",
    with_lines: &[
        ("trusted_proxies", "trusted_proxies = \"10.0.0.1\""),
        ("rate", "rate = \"1MB/s\""),
    ],
    keys: &[
        KeyReference::with_described_default(
            "names",
            "list of names",
            "the default site",
            "The [host names](#names) of the site.",
        ),
        KeyReference::with_described_default(
            "listen",
            "list of addresses",
            "`\"127.0.0.1:8080\"`; none with `[site.tls]`",
            "Listeners without TLS: `ADDR:PORT`, `*:PORT` (all addresses, IPv4 and IPv6), or `PORT` (only 127.0.0.1, with a warning). Sites may share an address.",
        ),
        KeyReference::with_described_default(
            "root",
            "path",
            "required, with two exceptions",
            "The folder of the site's files; with `{host}` in it [a folder for each host](#a-folder-for-each-host). It may be omitted if a route takes every path, or if the site has redirects and no routes (other paths are then 404).",
        ),
        KeyReference::with_described_default(
            "index",
            "list of file names",
            "`\"index.html\"`, and `\"index.php\"` if a route executes it",
            "Index files: the first that exists answers for a folder. One that matches a route is executed. The default is `\"index.html\"`, then the `index` of each FastCGI route without `missing` and `script` whose pattern matches it.",
        ),
        KeyReference::with_default(
            "listing",
            "boolean",
            "false",
            "List the files of a folder without an index file.",
        ),
        KeyReference::with_default(
            "hidden",
            "boolean",
            "false",
            "Serve names that begin with a dot. Otherwise they are 404, except `.well-known`.",
        ),
        KeyReference::with_default(
            "symlinks",
            "`\"beneath\"`, `\"none\"` or `\"follow\"`",
            "\"beneath\"",
            "Symbolic links that are followed: those that stay beneath the root, none, or all.",
        ),
        KeyReference::with_default(
            "etag",
            "`\"file\"` or `\"content\"`",
            "\"file\"",
            "The source of entity tags: inode, times and length of the file, or a hash of its content. Use `\"content\"` if several servers have the same files, so that their tags are equal; long files are then read once more after each change.",
        ),
        KeyReference::with_described_default(
            "proxy_protocol",
            "list of addresses and prefixes",
            "none",
            "Proxies that begin connections with a PROXY header, version 1 or 2 ([behind another proxy](../accelerator.md#behind-another-proxy)). The same for all sites of an address; not with `softirq` in `[server]`.",
        ),
        KeyReference::with_described_default(
            "trusted_proxies",
            "list of addresses and prefixes",
            "none",
            "Proxies that report the client in header fields: see [clients behind proxies](#clients-behind-proxies).",
        ),
        KeyReference::with_default(
            "client_field",
            "`\"X-Forwarded-For\"` or `\"Forwarded\"`",
            "\"X-Forwarded-For\"",
            "The field with the client's address.",
        )
        .only_with(&["trusted_proxies"]),
        KeyReference::with_described_default(
            "purge_from",
            "list of addresses and prefixes",
            "none",
            "Clients that may [purge](../operation.md#purges) by the method PURGE: `[\"127.0.0.1\", \"10.0.0.0/8\"]`.",
        ),
        KeyReference::with_described_default(
            "body_len_max",
            "size, up to 1024G",
            "`body_len_max` of [`[limits]`](limits.md)",
            "The body of a request, if less is allowed than for other sites. Longer: 413.",
        ),
        KeyReference::optional(
            "rate",
            "bandwidth: `\"1MB/s\"`, 1KB/s to 1024GB/s",
            "The bandwidth of each response, for its body. Bodies of a few KiB that are sent with their head are not slowed down. The softirq level leaves the site to the server.",
        ),
        KeyReference::with_default(
            "after",
            "size",
            "0",
            "The bytes at the start of a body that are sent without `rate`.",
        )
        .only_with(&["rate"]),
        KeyReference::optional("tls", "table", "See [`[site.tls]`](site-tls.md)."),
        KeyReference::optional(
            "compress",
            "table",
            "See [`[site.compress]`](site-compress.md).",
        ),
        KeyReference::optional("types", "table", "See [`[site.types]`](site-types.md)."),
        KeyReference::optional(
            "error_pages",
            "table",
            "See [`[site.error_pages]`](site-error_pages.md).",
        ),
        KeyReference::optional(
            "cache_control",
            "tables",
            "See [`[[site.cache_control]]`](site-cache_control.md).",
        ),
        KeyReference::optional("alias", "tables", "See [`[[site.alias]]`](site-alias.md)."),
        KeyReference::optional("rule", "tables", "See [`[[site.rule]]`](site-rule.md)."),
        KeyReference::optional(
            "redirect",
            "tables",
            "See [`[[site.redirect]]`](site-redirect.md).",
        ),
        KeyReference::optional(
            "rewrite",
            "tables",
            "See [`[[site.rewrite]]`](site-rewrite.md).",
        ),
        KeyReference::optional(
            "header",
            "tables",
            "See [`[[site.header]]`](site-header.md).",
        ),
        KeyReference::optional("cors", "tables", "See [`[[site.cors]]`](site-cors.md)."),
        KeyReference::optional(
            "maintenance",
            "table",
            "See [`[site.maintenance]`](site-maintenance.md).",
        ),
        KeyReference::optional(
            "security_headers",
            "boolean, or table",
            "Add [security fields](#security-fields) to responses without them.",
        ),
        KeyReference::optional(
            "canonical_host",
            "`true`, or a host name",
            "Redirect requests for the other names of the site to this one, or with `true` to the first. With `tls.redirect` this is one redirect.",
        ),
        KeyReference::with_default(
            "trailing_slash",
            "`\"keep\"`, `\"add\"` or `\"remove\"`",
            "\"keep\"",
            "Redirect paths of routes to the form with or without a slash at the end. `add` is for paths without a dot in the last segment.",
        ),
        KeyReference::optional("route", "tables", "See [`[[site.route]]`](site-route.md)."),
    ],
    notes: r#"
## Security fields

`security_headers = true` adds these fields to responses without them: `X-Content-Type-Options: nosniff`, `X-Frame-Options: SAMEORIGIN`, `Referrer-Policy:
strict-origin-when-cross-origin`, `Cross-Origin-Opener-Policy: same-origin` and `Content-Security-Policy: base-uri 'self'; frame-ancestors 'self'; object-src 'none'`. A
table has other values or fields, or `false` for none: `{ X-Frame-Options = "DENY", Content-Security-Policy = false }`. [`[[site.header]]`](site-header.md) takes
precedence. For `Strict-Transport-Security` there is [`hsts`](site-tls.md).

## Order

A request goes through the site in this order: [rules](site-rule.md), [redirects](site-redirect.md), [rewrites](site-rewrite.md),
[routes](site-route.md), files. If there is no file: rewrites with `exists`, then with `missing`, routes with `missing`, fallbacks of rules.
`lowroad explain URL` shows each step for a URL.

## Names

- `"example.com"` is this host.
- `"*.example.com"` is every host with one or more labels before `example.com`, but not `example.com`.
- `"_"`, or no name, makes the default site of its addresses: it answers for all other hosts.

Exact names have precedence over wildcards, longer wildcards over shorter ones. Case and a trailing dot don't matter. Names are
written without a port; names beyond ASCII as A-labels (`xn--…`). A name may occur once at each address. A request for
a host without a site gets 421.

## A folder for each host

In `root = "/srv/{host}/htdocs"` the host name of the request, in lower case and without port, replaces `{host}`, which must be a
whole component of the path. Hosts without a folder are 404.

```toml
[[site]]
names = ["example.com", "www.example.com"]
listen = ["*:80", "192.0.2.1:8000"]
root = "/srv/example.com"
index = ["index.html", "index.htm"]

[[site]]
listen = "*:80"
root = "/srv/{host}/htdocs"
listing = true
```

## Clients behind proxies

List the proxies in front of a site in `trusted_proxies`. The server then believes their fields, if the connection comes from one of them or, with
`proxy_protocol`, if its PROXY header names one of them:

| `client_field` | address | scheme | host | port |
|---|---|---|---|---|
| `"X-Forwarded-For"` | `X-Forwarded-For` | `X-Forwarded-Proto` | `X-Forwarded-Host` | `X-Forwarded-Port` |
| `"Forwarded"` | `for` | `proto` | `host` | in `host` |

```toml
[[site]]
listen = "*:80"
root = "/srv/www"
trusted_proxies = ["10.0.0.0/24", "2001:db8::/64"]
```

- The client's address is the last address in the field that is not a trusted proxy; if all are, the first. With `proxy_protocol` it is the
  address of the PROXY header, unless that is a trusted proxy.
- Scheme, host and port are those of the entry of the proxy next to the client; if a proxy replaces a list instead of appending to it, those of
  the first entry. Invalid values (a scheme other than http, https, ws and wss, a malformed host) are ignored.
- If the last entry is not an address (`unknown`), the client is the proxy. A `Forwarded` with ambiguous quotes gets 400.

The address applies to rules, traffic classes, `purge_from`, the access log, programs and origins (`REMOTE_ADDR`, `X-Forwarded-For`). Scheme,
host and port apply to origins (`X-Forwarded-Proto`, `-Host`, `-Port`), CGI and FastCGI (`HTTPS`, `REQUEST_SCHEME`, `HTTP_HOST`, `SERVER_NAME`,
`SERVER_PORT`), the redirect to https and the cache key; the access log has the host (`json` and `extended`). The site and its folder are still
selected by the `Host` of the proxy's request. Limits of connections count the addresses of connections. Other `X-Forwarded-…` fields of a
trusted proxy (`-User`, `-Prefix`) are passed on.

From all other clients, every `X-Forwarded-…` field, `Forwarded`, `X-Real-IP`, `X-Original-URL`, `CF-Visitor` and the like are removed before
programs and origins receive the request. Other fields with a client's address, such as `True-Client-IP`, are passed on. A response whose `Vary` names a
field of a trusted proxy, the client's address or `X-Forwarded-Port` is not stored. A response that depends on such a field without naming it
in `Vary` is sent to other clients.

Let the proxy set each of these fields itself: a field that it passes on unchanged is the client's. So don't list a balancer that passes on
TCP (HAProxy's `mode tcp`): it reads no fields.

Write a prefix with its first address: `lowroad check` warns about `"10.0.0.1/8"`, which means all of 10.0.0.0/8, in every list of addresses.
"#,
};

pub(super) const TLS: TableReference = TableReference {
    header: "[site.tls]",
    title: "TLS of a site",
    intro: "TLS 1.3 and 1.2 with HTTP/2 and HTTP/1.1. [Tasks and details](../tls.md).",
    context: "[[site]]\nlisten = \"*:80\"\nroot = \"r\"\n[site.tls]\nlocal = true\n",
    with_lines: &[("client", "client = \"require\"\nclient_ca = \"ca\"")],
    keys: &[
        KeyReference::with_default("listen", "list of addresses", "\"*:443\"", "Listeners with TLS. Sites may share an address, but not with a `listen` without TLS."),
        KeyReference::with_described_default("certificate", "path, or list of paths", "required, unless `local` or `automatic`", "The certificate with its intermediate certificates, in PEM. Several for several kinds of keys, or for different names."),
        KeyReference::with_described_default("key", "path, or list of paths", "required with `certificate`", "The keys, as many as certificates and in the same order."),
        KeyReference::optional("staple", "path, or list of paths", "OCSP responses to staple, in DER, in the same order."),
        KeyReference::with_default("automatic", "boolean", "false", "Order and renew certificates for the site's names: see [`[acme]`](acme.md)."),
        KeyReference::with_default("local", "boolean", "false", "For development: at each start, this machine's own authority signs a certificate for the site's names. See `lowroad trust`."),
        KeyReference::with_described_default("client", "`\"request\"` or `\"require\"`", "not requested", "Client certificates are optional, or mandatory. The same for all sites of an address."),
        KeyReference::required("client_ca", "path", "The authorities of client certificates, in PEM. The same for all sites of an address.").only_with(&["client"]),
        KeyReference::with_described_default("client_paths", "list of patterns", "none", "Paths that require a client certificate, as `[\"/admin\", \"/admin/**\"]`: other clients get 403 there, also without TLS. As with [rules](site-rule.md) that refuse, no other path leads to the same content.").only_with(&["client"]),
        KeyReference::with_default("min_version", "`\"1.2\"` or `\"1.3\"`", "\"1.2\"", "The oldest version. The same for all sites of an address."),
        KeyReference::with_default("strict_sni", "boolean", "false", "Refuse handshakes with no name (SNI), or with one that no certificate of the address has; otherwise they get the certificate of the default site, or of the first. Applies to the whole address if one of its sites has it."),
        KeyReference::with_default("redirect", "boolean", "false", "Redirect requests at the site's `listen` in `[[site]]` to https: GET and HEAD with 301, others with 308."),
        KeyReference::with_default("hsts", "boolean or text", "false", "Send Strict-Transport-Security: `true` for a year, or the field's value. Needs `redirect`, or a site without plain listeners. It is never sent over plain http (RFC 6797)."),
    ],
    notes: r#"
Certificates are selected by the name in the handshake (SNI), sites by Host. A client without SNI receives the certificate of the address's
default site, or else of the first site. A request for a host with other certificates than those of its connection gets 421; browsers then open another
connection.

`lowroad check` reports a key that doesn't fit, a certificate that is expired or incomplete, a name without a certificate, and files that other users can read or
change. Only an unusable certificate prevents the start; everything else is logged.

Changed certificates and keys are loaded within a second, without a reload; an unusable file leaves the old one in use. They are first read
before the server gives up root, later as the server's `user` or by [a helper with root's
rights](../security.md#files-that-only-root-may-open). `client_ca` is read at the start and at SIGHUP. A reload keeps files that it can't read
again, with a warning.

```toml
[[site]]
names = ["example.com", "www.example.com"]
listen = "*:80"
root = "/srv/example.com"

[site.tls]
listen = "*:443"
certificate = "/etc/letsencrypt/live/example.com/fullchain.pem"
key = "/etc/letsencrypt/live/example.com/privkey.pem"
redirect = true
hsts = "max-age=63072000; includeSubDomains"
```
"#,
};
