//! The reference of the conditions on requests, which several tables have.

use super::{KeyReference, TableReference};

/// The condition keys of a table, but `not`.
const TESTS: [KeyReference; 12] = [
    KeyReference::with_described_default(
        "methods",
        "list of methods",
        "all",
        "The methods. `\"GET\"` includes HEAD.",
    ),
    KeyReference::with_described_default(
        "addresses",
        "list of addresses and prefixes",
        "all",
        "The [clients](site.md#clients-behind-proxies).",
    ),
    KeyReference::optional(
        "header",
        "`\"NAME\"`, `\"NAME: VALUE\"`, `\"NAME: ~REGEX\"`, or array of them",
        "The request has this field, with this value or a value in which the [expression](site-redirect.md#regular-expressions) is found; of several, all.",
    ),
    KeyReference::optional(
        "cookie",
        "`\"NAME\"`, `\"NAME=VALUE\"`, `\"NAME=~REGEX\"`, or array of them",
        "The same for cookies. One `*` at the end of a name is any text: `\"wordpress_logged_in_*\"`.",
    ),
    KeyReference::optional(
        "argument",
        "`\"NAME\"`, `\"NAME=VALUE\"`, `\"NAME=~REGEX\"`, or array of them",
        "The same for arguments of the query, decoded.",
    ),
    KeyReference::optional(
        "variable",
        "`\"$NAME\"`, `\"$NAME=VALUE\"`, `\"$NAME=~REGEX\"`, or array of them",
        "The [variable](README.md#variables) is not empty, has this value, or one in which the expression is found. Also several with text between: `\"$scheme $map_x=https a\"`. Not for `$request_id`, `$client_port` and those of TLS.",
    ),
    KeyReference::with_described_default(
        "host",
        "list of host names",
        "all",
        "The host of the request: `\"www.example.com\"`, or `\"*.example.com\"` with one or more labels in front.",
    ),
    KeyReference::optional(
        "scheme",
        "`\"http\"` or `\"https\"`",
        "The scheme that the client used, as far as a [trusted proxy](site.md#clients-behind-proxies) reports it.",
    ),
    KeyReference::optional(
        "client_certificate",
        "boolean",
        "Whether the client has sent a valid [certificate](site-tls.md).",
    ),
    KeyReference::with_described_default(
        "time",
        "list of times of the week",
        "always",
        "`\"Mon-Fri 08:00-18:00\"`, `\"Sat,Sun\"` or `\"22:00-06:00\"`, in UTC.",
    ),
    KeyReference::optional(
        "file_exists",
        "path",
        "There is a file or folder at this path. A change applies within a second.",
    ),
    KeyReference::optional(
        "share",
        "percentage",
        "The client is one of this share: `\"10%\"` by address, `\"10% cookie:NAME\"` or `\"10% header:NAME\"`. Always the same clients; a smaller share is a part of a larger one.",
    ),
];

const NOT: KeyReference = KeyReference::optional(
    "not",
    "table, or array of tables",
    "[Conditions](site-rule-not.md) that must not hold.",
);

/// The number of condition keys.
pub(super) const CONDITION_COUNT: usize = TESTS.len() + 1;

/// The keys of a table, followed by the condition keys. `N` is the number of all keys.
pub(super) const fn with_conditions<const N: usize>(own: &[KeyReference]) -> [KeyReference; N] {
    let mut keys = [NOT; N];
    let mut index = 0;
    while index < own.len() {
        keys[index] = own[index];
        index += 1;
    }
    let mut test = 0;
    while test < TESTS.len() {
        keys[index + test] = TESTS[test];
        test += 1;
    }
    keys
}

pub(super) const RULE_RESPOND: TableReference = TableReference {
    header: "[site.rule.respond]",
    title: "a fixed response",
    intro: "The response of a [rule](site-rule.md) with `respond`. `respond = 410` is short for `respond = { status = 410 }`.",
    context: "[[site]]\nroot = \"r\"\n[[site.rule]]\n[site.rule.respond]\nstatus = 200\n",
    with_lines: &[("text", "text = \"t\"")],
    keys: &[
        KeyReference::required(
            "status",
            "200 to 599",
            "The status, but none that needs other content or fields: 205, 206, 3xx, 401, 407, 416, 421, 426, 499.",
        ),
        KeyReference::optional(
            "text",
            "text, up to 64K",
            "The content. Without it, an error has its [error page](site-error_pages.md).",
        ),
        KeyReference::with_default(
            "type",
            "media type",
            "\"text/plain; charset=utf-8\"",
            "The media type of `text`.",
        )
        .only_with(&["text"]),
        KeyReference::optional(
            "header",
            "table",
            "Further fields with their values, as in [`[[site.header]]`](site-header.md).",
        ),
    ],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[[site.rule]]
pattern = "/health"

[site.rule.respond]
status = 200
text = "ok\n"
header = { Cache-Control = "no-store" }
```
"#,
};

pub(super) const RULE_NOT: TableReference = TableReference {
    header: "[site.rule.not]",
    title: "conditions on requests",
    intro: r"
[Rules](site-rule.md), [redirects](site-redirect.md), [rewrites](site-rewrite.md), [response fields](site-header.md) and [routes](site-route.md) have the same conditions. Those that are
present must all hold; of a list of methods, addresses, hosts or times, one. `not` has conditions that must not all hold together; of several tables,
each.",
    context: "[[site]]\nroot = \"r\"\n[[site.rule]]\ndeny = 403\n[site.rule.not]\n",
    with_lines: &[],
    keys: &TESTS,
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[site.error_pages]
503 = "/maintenance.html"

# Maintenance: while the file exists, only the office gets in.
[[site.rule]]
file_exists = "/run/lowroad-maintenance"
not = [{ addresses = "192.0.2.0/24" }, { header = "X-Probe: health" }]
deny = 503

# No page for some robots, without an answer.
[[site.rule]]
header = "User-Agent: ~(?i)(badbot|scraper)"
close = true

# Old links with an argument.
[[site.redirect]]
from = "/index.php"
argument = "page=about"
to = "/about?"

# A form that works during office hours only.
[[site.rule]]
pattern = "/call-me"
methods = "POST"
not = { time = "Mon-Fri 08:00-18:00" }
respond = { status = 403, text = "We are back on weekdays, 8 to 18 UTC.\n" }
```

- Conditions see the request as the client sent it, also after a rewrite. Values are compared as bytes, with upper and lower case distinguished; names
  of fields are not.
- `share` splits clients between routes, for example for a new version of an application: a route with `share = "5% cookie:session"` in front of one
  without. Of two routes with `"10%"` and `"30%"`, the second gets 20 %. A request without the cookie or field counts by its address.
- A redirect with a condition on anything but method, host, scheme and arguments is sent with `Cache-Control: no-store`. Responses to requests
  that such a rewrite may lead elsewhere are not stored.
- Routes with a condition on fields or cookies send `Vary`. With one on addresses, certificates, times, files or shares, responses of the site's routes are not
  stored.
- A path for which a rule, or a redirect or rewrite with conditions, exists is never answered by the [fast path](../softirq.md).
"#,
};
