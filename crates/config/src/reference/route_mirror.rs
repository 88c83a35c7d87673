//! The reference of `[site.route.mirror]`.

use super::{KeyReference, TableReference};

pub(super) const MIRROR: TableReference = TableReference {
    header: "[site.route.mirror]",
    title: "copies of requests",
    intro: r#"
Sends copies of requests also to another origin, such as a new version of the application, and discards its responses (nginx: `mirror`). `mirror = "NAME"` or
a URL has all defaults."#,
    context: "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n[site.route.mirror]\nto = \"http://b\"\n",
    with_lines: &[],
    keys: &[
        KeyReference::required(
            "to",
            "name or URL",
            "The [`[[origin]]`](origin.md), or the URL of a server without a path.",
        ),
        KeyReference::with_default(
            "share",
            "percentage, `\"0.01%\"` to `\"100%\"`",
            "\"100%\"",
            "The share of requests, drawn by lot.",
        ),
        KeyReference::with_described_default(
            "methods",
            "list of methods",
            "`GET`, `HEAD`, `OPTIONS`",
            "The methods. Methods that change data change that of the other origin as well.",
        ),
        KeyReference::with_default(
            "body_max",
            "size, 0 to 16M",
            "\"64K\"",
            "Memory for the request body of a copy. A request with a longer body is not copied.",
        ),
        KeyReference::with_default(
            "concurrency",
            "1 to 65536",
            "64",
            "Copies in progress. Further requests are not copied.",
        ),
    ],
    notes: r#"
```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "http://127.0.0.1:3000"
mirror = { to = "http://127.0.0.1:4000", share = "10%" }
```

- A copy has the path, fields and body that the route's origin gets, with cookies and credentials; redirects and cookies in its response have no effect. It is
  sent when the body of the request has been received, and never delays the request or its response; it ends with the route's `timeout`.
- Requests that the cache answers, and upgrades such as WebSocket, are not copied.
- A failed copy doesn't affect the request. `lowroad status` counts copies by `mirror.sent`, `failed`, `skipped` (`concurrency`) and `too_large` (`body_max`).
"#,
};
