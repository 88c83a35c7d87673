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
        ("token_file", "token_file = \"token\"\n"),
        ("read_token_file", "read_token_file = \"token\"\n"),
    ],
    keys: &[
        KeyReference::optional(
            "listen",
            "address and port",
            "The address of the service, at which no site listens. Clear text: use the loopback or a private network; the server warns of other addresses.",
        )
        .only_with(&["token_file", "read_token_file"]),
        KeyReference::optional(
            "token_file",
            "path",
            "A regular file of at most 4 KiB with the token that permits everything: at least 16 characters on one line. The server warns if other users can read it. It is read at the start, as root where the server starts as root.",
        )
        .only_with(&["listen"]),
        KeyReference::optional(
            "read_token_file",
            "path",
            "A file with another token, which permits looking only: metrics, status, explanations.",
        )
        .only_with(&["listen"]),
    ],
    notes: r#"
Clients send `Authorization: Bearer TOKEN`. A missing or wrong token gets 401. An address that sends more than 10 wrong tokens in a minute
gets 429 for every request until the minute is over.

```toml
[admin]
listen = "127.0.0.1:9145"
read_token_file = "/etc/lowroad/metrics.token"

[[site]]
root = "/srv/www"
```
"#,
};
