//! The reference of the rules of a site: access control, redirects, rewrites, response fields.

use super::conditions::{CONDITION_COUNT, with_conditions};
use super::{KeyReference, TableReference};

const RULE_KEYS: &[KeyReference] = &[
    KeyReference::with_described_default(
        "pattern",
        "list of patterns",
        "`\"/**\"`",
        "The paths. With `rate` only one pattern.",
    ),
    KeyReference::with_described_default(
        "except",
        "list of addresses and prefixes",
        "none",
        "Clients to which the rule doesn't apply; short for `not = { addresses = … }`.",
    ),
    KeyReference::optional(
        "deny",
        "400 to 599",
        "Refuse the request with this status. With 404 the path looks missing.",
    ),
    KeyReference::optional("allow", "`true`", "No later rule refuses the request."),
    KeyReference::optional(
        "rate",
        "1 to 1000000 a second, or with `/s`, `/m`, `/h`; or a bandwidth",
        "Limit the requests of each client: an IPv4 address, or the first 64 bits of an IPv6 address. Requests beyond it get 429 with Retry-After. Or the bandwidth of each response, in place of that of its route and site: `\"1MB/s\"`.",
    ),
    KeyReference::with_described_default(
        "burst",
        "1 to 1000000",
        "the requests of a second",
        "Requests that a client may send at once.",
    )
    .only_with(&["rate"]),
    KeyReference::with_default(
        "after",
        "size",
        "0",
        "With a bandwidth as `rate`: the bytes at the start of a body that are sent without it.",
    )
    .only_with(&["a bandwidth as `rate`"]),
    KeyReference::optional(
        "auth",
        "path",
        "Require a user of this [password file](#passwords) and the right password (Basic, RFC 7617); otherwise 401.",
    ),
    KeyReference::optional(
        "jwt",
        "table",
        "Require a valid [JSON Web Token](site-rule-jwt.md); otherwise 401.",
    ),
    KeyReference::optional(
        "forward_auth",
        "URL, or table",
        "Require the permission of [another server](site-rule-forward_auth.md).",
    ),
    KeyReference::with_default(
        "satisfy",
        "`\"all\"` or `\"any\"`",
        "\"all\"",
        "Whether all methods of the rule must admit the request, or one suffices.",
    )
    .only_with(&["two of `auth`, `jwt` and `forward_auth`"]),
    KeyReference::with_default(
        "realm",
        "text",
        "\"restricted\"",
        "The name that browsers show when they ask for the password.",
    )
    .only_with(&["auth"]),
    KeyReference::optional(
        "fallback",
        "path under the root",
        "If there is no file, answer this path instead: a file, or the program of a route.",
    ),
    KeyReference::optional(
        "respond",
        "200 to 599, or table",
        "Answer with this status, or with a [fixed response](site-rule-respond.md).",
    ),
    KeyReference::optional(
        "close",
        "`true`",
        "Close the connection, or with HTTP/2 the stream, without an answer; 444 in the log.",
    ),
    KeyReference::optional(
        "log",
        "boolean",
        "Whether access logs contain the request. Of several rules the last one decides.",
    ),
];

pub(super) const RULE: TableReference = TableReference {
    header: "[[site.rule]]",
    title: "access control and rate limits",
    intro: r"
Allows, refuses, limits or answers requests. A request goes through the rules in the order of the file, before redirects,
[rewrites](site-rewrite.md), routes, files and stored responses. `pattern` and [conditions](site-rule-not.md) select the requests. Each rule has
exactly one action: `deny`, `allow`, `rate`, authentication (`auth`, `jwt`, `forward_auth` or several of them), `fallback`, `respond`, `close` or `log`.",
    context: "[[site]]\nroot = \"r\"\n[[site.rule]]\n",
    with_lines: &[
        ("rate", "rate = \"10/m\""),
        ("a bandwidth as `rate`", "rate = \"1MB/s\""),
        ("auth", "auth = \"users\""),
        (
            "two of `auth`, `jwt` and `forward_auth`",
            "auth = \"users\"\nforward_auth = \"http://127.0.0.1:1\"",
        ),
        ("", "deny = 403"),
    ],
    keys: &with_conditions::<{ RULE_KEYS.len() + CONDITION_COUNT }>(RULE_KEYS),
    notes: r#"
```toml
[[site]]
root = "/srv/www"

# For no client.
[[site.rule]]
pattern = "/backup/**"
deny = 404

# The login page for all clients, but not too often; the rest only from the office.
[[site.rule]]
pattern = "/admin/login"
rate = "10/m"
burst = 5

[[site.rule]]
pattern = "/admin/login"
allow = true

[[site.rule]]
pattern = "/admin/**"
except = ["10.0.0.0/8", "2001:db8::/32"]
deny = 403

[[site.rule]]
pattern = "/admin/**"
auth = "/etc/lowroad/staff"
realm = "Staff"

# A single-page application, which has its own paths.
[[site.rule]]
pattern = "/app/**"
fallback = "/app/index.html"
```

## Paths

A rule that refuses (`deny`, `rate`, `auth`, `jwt`, `forward_auth`, `close`) also applies to everything below a path that it matches, to a folder if it matches the content (`/admin` with
`/admin/**`) or the index file, and to the precompressed versions of a file (`/a.txt.br`). Paths are compared
as files are found: decoded, case-sensitive, with slashes merged.

`allow` and `respond` apply to exactly what their pattern matches. A script receives what follows its name in the path, so in front of programs allow folders rather
than names (`/img/**` rather than `*.png`). Programs and origins may read a path more loosely than rules compare it: some take `/Admin` or
`/admin;x=1` for `/admin`. In front of those, deny `/**` after the paths that you allow.

## Encoded slashes

Rules are matched against each form of a path with encoded slashes or backslashes: with all of them decoded (and slashes merged), with `%2F` kept
as a part of its segment, and with backslashes as slashes. For each form the first rule that allows or refuses it decides, and the
request is refused if one of its forms is. So an allowed path needs an `allow` for each form; `lowroad explain` names a form that no rule allows:

```toml
[[site]]
root = "/srv/www"

# RabbitMQ: /api/queues/%2F/public, which is /api/queues/public with its slash decoded.
[[site.rule]]
pattern = "/api/queues/*/public"
allow = true

[[site.rule]]
pattern = "/api/queues/public"
allow = true

# npm: the first two are for @scope%2Fname as one segment (its metadata, and -rev/… to unpublish), the third for
# decoded forms and tarballs (/@scope/name/-/name-1.0.0.tgz), the last for logins, searches and tags.
[[site.rule]]
pattern = "/@scope*"
allow = true

[[site.rule]]
pattern = "/@scope*/-rev/*"
allow = true

[[site.rule]]
pattern = "/@scope/**"
allow = true

[[site.rule]]
pattern = "/-/**"
allow = true

[[site.rule]]
deny = 403
```

`/@scope*` also allows `/@scope2` and `/@scoped%2Fx` in that form; the decoded form of the latter is refused, since `/@scope/**` does not match it.

## Passwords

The file has a line `NAME:HASH` for each user, as made by `htpasswd -B` (bcrypt, cost 4 to 16) or a tool for argon2 (up to 256 MiB, 16 passes). Hashes
of old files work as well: SHA-crypt (`$5$`, `$6$`, up to 500,000 rounds), and with a warning apr1, MD5 (`$1$`) and `{SHA}`, which are fast to try. The file is at
most 1 MB, and the server's user must be able to read it. A change applies after a second; an unusable file leaves the old one in use, and
`lowroad status` reports it.

- Two threads verify passwords, and at most 256 wait; further requests get 503. Requests of a client with the same password wait together and count once.
- Correct passwords are remembered for 10 minutes: 1024 users and passwords at most, as keyed hashes.
- A client has 10 wrong attempts, then 10 a minute; further ones get 429.
- CGI and FastCGI programs receive the user (`REMOTE_USER`, `AUTH_TYPE`).

Basic passwords are readable in transit: a site with `auth` should have [TLS](site-tls.md) with `redirect = true`.

An address, a password or a token: `except` exempts the office, and one of the two methods suffices for all others.

```toml
[[site]]
root = "/srv/www"

[[site.rule]]
pattern = "/admin/**"
except = "10.0.0.0/8"
auth = "/etc/lowroad/staff"
jwt = { key = "/etc/lowroad/issuer.pem", issuer = "https://id.example.com/" }
satisfy = "any"
```

## Fallbacks

A fallback applies last, if there is no file, no rewrite and no route for a path. The first that matches applies, once. Rules for the path of the
fallback are not checked. The status is 200; `Cache-Control` and fields are those of the fallback's path. A program receives the requested path and
query.

## Cost and limits

Rules, routes, redirects, rewrites and fields cost a request nothing while their patterns don't match its path, however many there are: all
patterns of a site are matched in one pass over the path. A regular expression is tried for each path if no text is known that its matches
must contain (`(?i)old`, `^/[0-9]+$`), and so is a pattern of wildcards and slashes only.

Each `rate` knows 65,536 clients at a time (1 MB of memory); beyond that, the client nearest to a full bucket is forgotten. `lowroad status` counts
what each rule refused and forgot; `lowroad explain` shows the rules for a URL. A path with a rule, for any client, is never answered by the
[fast path](../softirq.md).
"#,
};

const REDIRECT_KEYS: &[KeyReference] = &[
    KeyReference::with_described_default(
        "from",
        "list of patterns",
        "required, or `regex`",
        "The paths.",
    ),
    KeyReference::with_described_default(
        "regex",
        "regular expression",
        "required, or `from`",
        "The paths in which the expression is found.",
    ),
    KeyReference::required(
        "to",
        "text",
        "The destination: `/PATH`, `http://HOST/PATH` or `https://HOST/PATH`, percent-encoded where needed. May contain [variables](README.md#variables) and [captures](#captures); in HOST only `$host`, `$authority` and [maps](map-NAME.md). A map alone may be the whole destination.",
    ),
    KeyReference::with_default(
        "status",
        "301, 302, 303, 307 or 308",
        "301",
        "The status of the response.",
    ),
];

pub(super) const REDIRECT: TableReference = TableReference {
    header: "[[site.redirect]]",
    title: "redirects",
    intro: "Redirects a path to another one or to another host. Redirects are tried in the order of the file, before any file is looked up.",
    context: "[[site]]\nroot = \"r\"\n[[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\n",
    with_lines: &[],
    keys: &with_conditions::<{ REDIRECT_KEYS.len() + CONDITION_COUNT }>(REDIRECT_KEYS),
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[[site.redirect]]
from = "/blog/**"
to = "https://blog.example.com/$1"

[[site.redirect]]
from = "/about"
to = "/about.html"
status = 302
```

## Captures

All variables of the URL are allowed: `$host`, `$authority`, `$scheme`, `$method`, `$path`, `$query`, `$request_uri`, `$arg_NAME`, `$site`, and maps of these. Others are not, because
caches know a redirect by its URL. `https://$host$request_uri` is the same URL with https; a request without Host is not redirected there. In the path,
query or fragment of `to`:

- `$1` is the text that the wildcard at the end of `from` matched.
- `$1` to `$9` are the texts that the groups of `regex` matched; empty for a group without a match.
- `$query` is the query of the request; if it has none, the `?` or `&` before `$query` is removed too.

In a path, a capture contains the bytes that the client sent (`%2F`, `;`, `//`), with the adjacent slashes that it can match: of `/red//a`, `/red/**`
captures `/a`, and `/red/*` captures `a`. In a query or fragment it is percent-encoded, so that it stays one value. The query of the request is kept,
unless `to` has one; a `?` at the end of `to` (also of `$map_NAME?`) only removes it.

## Regular expressions

The syntax is that of [Rust's crate regex](https://docs.rs/regex/latest/regex/#syntax), over the bytes of the decoded path: at most 1024 bytes with 9
groups, without look-around and backreferences. A match may be anywhere in the path unless `^` and `$` are used; `.` is any byte, also a line end; `\d`, `\w` and `(?i)`
are ASCII. Matching takes time linear in the length of the path for every expression.
"#,
};

const REWRITE_KEYS: &[KeyReference] = &[
    KeyReference::with_described_default(
        "from",
        "list of patterns",
        "required, or `regex`",
        "The paths.",
    ),
    KeyReference::with_described_default(
        "regex",
        "regular expression",
        "required, or `from`",
        "The paths in which the expression is found, as for [redirects](site-redirect.md#regular-expressions).",
    ),
    KeyReference::required(
        "to",
        "text",
        "The new target: `/PATH` or `/PATH?QUERY`, percent-encoded where needed, with [variables and captures](site-redirect.md#captures) as in redirects.",
    ),
    KeyReference::with_default(
        "missing",
        "boolean",
        "false",
        "Apply only if there is no such file, and no route without `missing` that takes the path.",
    ),
    KeyReference::with_default(
        "exists",
        "boolean",
        "false",
        "Apply to GET and HEAD if there is a file at the new path, but none at the requested one, and no route without `missing` that takes it. With `missing`, a folder at the requested path has precedence.",
    ),
];

pub(super) const REWRITE: TableReference = TableReference {
    header: "[[site.rewrite]]",
    title: "rewrites (internal redirects)",
    intro: "Answers a path with another one of the site; the client doesn't see it. The first rewrite that matches applies.",
    context: "[[site]]\nroot = \"r\"\n[[site.rewrite]]\nfrom = \"/a\"\nto = \"/b\"\n",
    with_lines: &[],
    keys: &with_conditions::<{ REWRITE_KEYS.len() + CONDITION_COUNT }>(REWRITE_KEYS),
    notes: r#"
```toml
[[site]]
root = "/srv/app/public"

# Pages without the end of their file names.
[[site.rewrite]]
regex = '^/docs/(.+)$'
to = "/docs/$1.html"
exists = true

# Files are served, everything else goes to the application.
[[site.rewrite]]
regex = '^/(.*)$'
to = "/index.php?q=$1&$query"
missing = true

[[site.route]]
pattern = "*.php"
fastcgi = "unix:/run/php/php-fpm.sock"

# Names that change with each version.
[[site.rewrite]]
regex = '^/assets/(.+)\.[0-9a-f]{8}\.(css|js)$'
to = "/assets/$1.$2"
```

The order is: rules, redirects, rewrites, routes, files; and if there is no file: rewrites with `exists`, rewrites with `missing`, routes with `missing`, fallbacks. A request is
rewritten at most twice: once before anything is looked up, and once if nothing is found. So there are no loops.

**Rules apply twice.** `[[site.rule]]` and `client_paths` apply to the requested path and then to the rewritten one: the request is refused if one of them is.
[Files that programs name](../programs.md#files-that-programs-name) are checked in the same way. An `allow` applies to the path that it matches only. A rate limit that
both paths have counts a request once. Both times the decoded path is compared, so no spelling of a path gets around a rule. Fields and
`Cache-Control` are those of the new path.

Programs receive the new path and query (SCRIPT_NAME, PATH_INFO, QUERY_STRING), and the client's target in REQUEST_URI; origins and modules receive the
new target. A program's response is stored, and purged, under the requested URL. `lowroad explain` shows the rewrites of a URL. Rewritten
requests are never answered by the [fast path](../softirq.md).
"#,
};

const HEADER_KEYS: &[KeyReference] = &[
    KeyReference::with_described_default("pattern", "list of patterns", "`\"/**\"`", "The paths."),
    KeyReference::optional(
        "set",
        "table",
        "Fields with their values; each replaces all fields of its name. With [variables](README.md#variables).",
    ),
    KeyReference::optional(
        "append",
        "table",
        "Fields with their values; each is added to the fields of its name. With [variables](README.md#variables).",
    ),
    KeyReference::optional(
        "default",
        "table",
        "Fields with their values, for responses without a field of the name. Not with conditions.",
    ),
    KeyReference::optional("remove", "list of names", "Fields to remove."),
];

pub(super) const HEADER: TableReference = TableReference {
    header: "[[site.header]]",
    title: "response fields",
    intro: r"
Sets and removes fields of responses: of files, programs and origins (also stored ones and 101), redirects, refusals and OPTIONS. All tables with
a matching pattern apply, in the order of the file, each to the result of those before it.",
    context: "[[site]]\nroot = \"r\"\n[[site.header]]\n",
    with_lines: &[],
    keys: &with_conditions::<{ HEADER_KEYS.len() + CONDITION_COUNT }>(HEADER_KEYS),
    notes: r#"
A table needs at least one of `set`, `append`, `default` and `remove`. Values are visible ASCII characters with spaces and tabs between them.

```toml
[[site]]
root = "/srv/www"

[[site.header]]
set = { X-Content-Type-Options = "nosniff" }

[[site.header]]
pattern = "/private/**"
set = { X-Robots-Tag = "noindex" }
remove = "Server"
```

- The server manages these fields itself: `Accept-Ranges`, `Age`, `Connection`, `Content-Encoding`, `Content-Length`, `Content-Range`, `Date`, `ETag`,
  `Keep-Alive`, `Last-Modified`, `Location`, `Proxy-Connection`, `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`, `Vary`; and `Content-Type`, for
  which there is [`[site.types]`](site-types.md).
- Interim responses (103) get no fields of other names. Refusals get no `Cache-Control` or `Expires`.
- `set` and `remove` also remove trailers of the name; `append` and `default` keep them.
- The freshness lifetime of a stored response depends on the origin's own fields only.
- A value with variables is not stored with a response, but made for each request; if it is empty, no field is sent. `Vary` names the fields of
  `$header_NAME` and `$cookie_NAME`; caches in front of the server can't distinguish more. `$1` is the text of the last wildcard of `pattern`. `Cache-Control` and `Expires`
  have no variables. The [fast path](../softirq.md) never answers such a path.
- The same holds for a table with [conditions](site-rule-not.md), which applies when a response is sent, after all tables without conditions but before later ones for
  the same field; it does not change interim responses and trailers. `Vary` names the fields and cookies in its conditions.
- The rules for `/a/**` apply to `/a%5Cb`, too, which some programs take for `/a/b`.
"#,
};
