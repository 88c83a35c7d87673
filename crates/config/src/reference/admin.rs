//! The reference of `[admin]`.

use super::{KeyReference, TableReference};

pub(super) const ADMIN: TableReference = TableReference {
    header: "[admin]",
    title: "metrics and commands over TCP",
    intro: r"
The admin service always listens on a Unix socket (`admin` in [`[server]`](server.md)), for its owner and root. This table opens it on TCP, for
Prometheus and for other machines. [Observing a server](../observe.md) describes what it offers.",
    context: "[admin]\n",
    with_lines: &[
        ("listen", "listen = \"127.0.0.1:9145\"\n"),
        ("token", "token = { file = \"token\" }\n"),
        ("read_token", "read_token = { file = \"token\" }\n"),
    ],
    keys: &[
        KeyReference::optional(
            "listen",
            "address and port",
            "The address of the service, at which no site listens. Clear text: use the loopback or a private network; the server warns of other addresses.",
        )
        .only_with(&["token", "read_token"]),
        KeyReference::optional(
            "token",
            "[secret](README.md#secrets)",
            "The token that permits everything: at least 16 characters on one line. Changes need a restart.",
        )
        .only_with(&["listen"]),
        KeyReference::optional(
            "read_token",
            "[secret](README.md#secrets)",
            "Another token, which permits looking only: metrics, status, explanations, the configuration.",
        )
        .only_with(&["listen"]),
        KeyReference::optional(
            "token_file",
            "path",
            "The same as `token = { file = \"PATH\" }`, read at the start only.",
        )
        .only_with(&["listen"]),
        KeyReference::optional(
            "read_token_file",
            "path",
            "The same for `read_token`.",
        )
        .only_with(&["listen"]),
    ],
    notes: r#"
Clients send `Authorization: Bearer TOKEN`. A missing or wrong token gets 401. An address that sends more than 10 wrong tokens in a minute
gets 429 for every request until the minute is over.

```toml
[admin]
listen = "127.0.0.1:9145"
read_token = { file = "/etc/lowroad/metrics.token" }

[[site]]
root = "/srv/www"
```
"#,
};
