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
        ("certificate", "certificate = \"cert.pem\"\nkey = \"key.pem\"\n"),
        ("client_ca", "client_ca = \"ca.pem\"\n"),
    ],
    keys: &[
        KeyReference::optional(
            "listen",
            "address and port",
            "The address of the service, at which no site listens. Without `certificate` in clear text: use the loopback or a private network; the server warns of other addresses.",
        )
        .only_with(&["token", "read_token", "client_ca"]),
        KeyReference::optional(
            "token",
            "[secret](README.md#secrets)",
            "The token that permits everything: at least 16 characters on one line. Changes need `lowroad upgrade`.",
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
        KeyReference::optional(
            "certificate",
            "path",
            "The certificate of the address, in PEM, with its intermediate certificates: the address then speaks TLS only. Renewed files are used within a second, unless only root can read them, then within a minute.",
        )
        .only_with(&["listen"]),
        KeyReference::optional("key", "path", "The certificate's key, in PEM; may be the same file.").only_with(&["certificate"]),
        KeyReference::optional(
            "client_ca",
            "path",
            "The authorities of client certificates, in PEM. The handshake refuses a client without a certificate of theirs; any other client may look without a token. It is read at the start.",
        )
        .only_with(&["certificate"]),
        KeyReference::optional(
            "full_clients",
            "text, or array",
            "The subjects of client certificates that permit everything, as in RFC 4514, such as `\"CN=deploy,O=Example\"`; a refusal (403) shows the subject of the client. Other clients of `client_ca` also need the token of `token_file` for changes.",
        )
        .only_with(&["client_ca"]),
        KeyReference::optional(
            "changes",
            "path",
            "The file of operators' changes that survive a restart, such as `/var/lib/lowroad/changes.json`: those made with `--persist`, or with `\"persist\": true` in the request (`?persist=true` without a body). The server writes it, so its user must be able to write to the folder.",
        ),
    ],
    notes: r#"
Clients send `Authorization: Bearer TOKEN`, unless their certificate suffices. A missing or wrong token gets 401. An address that sends more than 10 wrong tokens in a minute
gets 429 for every token, even a right one, until the time in `Retry-After`: one more attempt each 6 seconds.

```toml
[admin]
listen = "127.0.0.1:9145"
read_token = { file = "/etc/lowroad/metrics.token" }

[[site]]
root = "/srv/www"
```

With mutual TLS, for Prometheus (`tls_config` with `ca_file`, `cert_file` and `key_file`) and `curl --cacert CA --cert CERT --key KEY`:

```toml
[admin]
listen = "10.0.0.5:9145"
certificate = "/etc/lowroad/admin.pem"
key = "/etc/lowroad/admin.key"
client_ca = "/etc/lowroad/operators.pem"
full_clients = "CN=deploy,O=Example"

[[site]]
root = "/srv/www"
```

**Changes at run time.** `lowroad deny add ADDRESS` (`--for 10m`) refuses an address or a prefix before TLS (the fast path drops its SYNs), and closes its open connections; `lowroad deny list` and
`remove` belong to it. It concerns addresses of connections: of a client behind a proxy only with the PROXY protocol; a [rule](site-rule.md) knows `X-Forwarded-For`.
Neither the admin service nor the [fast path](../softirq.md) use the list. It has at most 10,000 entries; `lowroad_connections_denied_total` counts refusals.

Changes of [origins](origin.md#servers-at-run-time), of the deny list and of the log's level (`PATCH /v1/log`) survive reloads, those of origins and the deny list also
upgrades. With `--persist` they survive restarts: the file names origins and servers, and applies to the configuration of that start. A change without
`--persist` leaves the file as it is. The log names entries that are damaged or have no origin; they are skipped.
One server at a time uses the file: others refuse `--persist`.
"#,
};
