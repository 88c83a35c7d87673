//! The reference of the policies of a whole site.

use super::{KeyReference, TableReference};

pub(super) const CORS: TableReference = TableReference {
    header: "[[site.cors]]",
    title: "requests from pages of other origins (CORS)",
    intro: "Permits scripts of other origins to read responses. The first table with a matching pattern applies.",
    context: "[[site]]\nroot = \"r\"\n[[site.cors]]\norigins = \"https://a.example\"\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_described_default(
            "pattern",
            "list of patterns",
            "`\"/**\"`",
            "The paths.",
        ),
        KeyReference::required(
            "origins",
            "list of origins",
            "`\"https://app.example\"`, `\"https://*.example.com\"` for all hosts below it, or `\"*\"` for all origins.",
        ),
        KeyReference::with_described_default(
            "methods",
            "list of methods",
            "GET, HEAD, POST",
            "The methods of requests.",
        ),
        KeyReference::with_described_default(
            "headers",
            "list of names",
            "none",
            "The fields of requests beyond those that are always allowed (such as `Accept`); `\"*\"` for all.",
        ),
        KeyReference::with_described_default(
            "expose",
            "list of names",
            "none",
            "The fields of responses that scripts may read beyond the common ones.",
        ),
        KeyReference::with_default(
            "credentials",
            "boolean",
            "false",
            "Whether requests may have cookies and passwords. Not with `\"*\"` in `origins`.",
        ),
        KeyReference::with_described_default(
            "max_age",
            "duration, up to 24h",
            "that of the browser",
            "For how long browsers keep the answer to a preflight.",
        ),
    ],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[[site.cors]]
pattern = "/api/**"
origins = ["https://app.example", "https://*.app.example"]
methods = ["GET", "PUT", "DELETE"]
headers = ["Authorization", "Content-Type"]
credentials = true
max_age = "10m"
```

- Preflights (OPTIONS with `Origin` and `Access-Control-Request-Method`) are answered here: 204, or 403 for an origin that is not listed. They have no
  passwords, so they precede [rules](site-rule.md).
- Other requests are answered in any case; without a listed origin the response has no `Access-Control-Allow-Origin`, and browsers withhold it from the script. CORS protects
  readers, it is no access control.
- The fields of programs and origins for CORS are removed. Responses vary by `Origin` unless all origins are allowed. With a list, the [fast path](../softirq.md) never answers the
  site's paths.
- Origins are compared as browsers send them: lower case, no default port. `null`, the origin of files and sandboxes, can't be listed.
"#,
};

pub(super) const MAINTENANCE: TableReference = TableReference {
    header: "[site.maintenance]",
    title: "maintenance mode",
    intro: "While the mode is on, requests get 503 with Retry-After and the [error page](site-error_pages.md) of 503. `lowroad maintenance on` turns it on for all sites, `--site NAME` for one;
`lowroad maintenance off` ends it. The table is not needed for that.",
    context: "[[site]]\nroot = \"r\"\n[site.maintenance]\n",
    with_lines: &[],
    keys: &[
        KeyReference::optional(
            "file",
            "path",
            "The mode is also on while there is a file at this path. A change applies within a second.",
        ),
        KeyReference::with_default(
            "retry_after",
            "duration, 1s to 30d",
            "\"5m\"",
            "The value of Retry-After.",
        ),
        KeyReference::optional(
            "except",
            "table, or array of tables",
            "[Conditions](site-rule-not.md) of requests that are answered as always.",
        ),
    ],
    notes: r#"
```toml
[[site]]
root = "/srv/www"
error_pages = { 503 = "/maintenance.html" }

[site.maintenance]
retry_after = "30m"
except = [{ addresses = "192.0.2.0/24" }, { cookie = "preview=7f3a" }]
```

The command's switch survives reloads, not restarts; a file survives both. NAME is the first name of the site, as in logs and metrics. Challenges of ACME are answered as
always. With `file`, the [fast path](../softirq.md) never answers the site.
"#,
};
