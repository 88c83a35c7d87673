//! The reference of `[acme]` and the tables below it.

use super::{KeyReference, TableReference};

pub(super) const ACME: TableReference = TableReference {
    header: "[acme]",
    title: "automatic certificates",
    intro: "Certificates by ACME (RFC 8555) for sites with `automatic` in [`[site.tls]`](site-tls.md). [Tasks and details](../acme.md).",
    context: "[acme]\nterms_agreed = true\n",
    with_lines: &[(
        "challenge = \"dns-01\"",
        "challenge = \"dns-01\"\nhook = [\"true\"]",
    )],
    keys: &[
        KeyReference::required(
            "terms_agreed",
            "`true`",
            "You agree to the terms of service of the authorities.",
        ),
        KeyReference::with_default(
            "folder",
            "path",
            "\"/var/lib/lowroad/acme\"",
            "The folder of accounts, keys and certificates. The server's `user` must be able to write there.",
        ),
        KeyReference::optional(
            "contact",
            "URL, or list of URLs",
            "Contacts for the authorities: `\"mailto:admin@example.com\"`.",
        ),
        KeyReference::with_default(
            "challenge",
            "`\"http-01\"`, `\"tls-alpn-01\"` or `\"dns-01\"`",
            "\"http-01\"",
            "How control of a name is proved: on port 80, on port 443, or in the DNS.",
        ),
        KeyReference::required(
            "hook",
            "list of texts",
            "The command that changes the DNS ([dns-01](../acme.md#dns-01-by-a-command)).",
        )
        .only_with(&["challenge = \"dns-01\""]),
        KeyReference::with_default(
            "hook_timeout",
            "duration, 1s to 1h",
            "\"2m\"",
            "The hook is killed after this time.",
        )
        .only_with(&["challenge = \"dns-01\""]),
        KeyReference::with_default(
            "orders_per_hour",
            "1 to 100000",
            "100",
            "Orders in an hour, for all names together.",
        ),
        KeyReference::with_described_default(
            "authority",
            "tables",
            "Let's Encrypt",
            "See [`[[acme.authority]]`](acme-authority.md).",
        ),
        KeyReference::optional(
            "on_demand",
            "table",
            "See [`[acme.on_demand]`](acme-on_demand.md).",
        ),
    ],
    notes: r#"
```toml
[acme]
terms_agreed = true
contact = "mailto:admin@example.com"

[[site]]
names = ["example.com", "www.example.com"]
listen = "*:80"
root = "/srv/example.com"

[site.tls]
automatic = true
redirect = true
```
"#,
};

pub(super) const AUTHORITY: TableReference = TableReference {
    header: "[[acme.authority]]",
    title: "a certificate authority",
    intro: "An authority that issues certificates. Several are tried in the order of the file; without any, Let's Encrypt is used.",
    context: "[acme]\nterms_agreed = true\n[[acme.authority]]\ndirectory = \"https://a/d\"\n",
    with_lines: &[("key_id", "key_id = \"k\"\nkey_file = \"f\"")],
    keys: &[
        KeyReference::required(
            "directory",
            "URL",
            "The URL of its directory: `https:`, or `http:` on this machine.",
        ),
        KeyReference::optional(
            "key_id",
            "text",
            "External account binding: the identifier of the account's key.",
        ),
        KeyReference::optional("key", "[secret](README.md#secrets)", "That key, in base64.")
            .only_with(&["key_id"]),
        KeyReference::optional(
            "key_file",
            "path",
            "The file with that key, instead of `key`.",
        )
        .only_with(&["key_id"]),
        KeyReference::with_described_default(
            "profile",
            "text",
            "the authority's",
            "The certificate profile, for example `\"shortlived\"`.",
        ),
        KeyReference::with_described_default(
            "roots",
            "path",
            "the system's",
            "The certificates that verify the authority's server, in PEM.",
        ),
    ],
    notes: r#"
```toml
[acme]
terms_agreed = true

[[acme.authority]]
directory = "https://acme-v02.api.letsencrypt.org/directory"

# The second one is used if the first one fails.
[[acme.authority]]
directory = "https://acme.example.net/directory"
key_id = "kid-1"
key = { credential = "eab" }

[[site]]
names = "example.com"
listen = "*:80"
root = "/srv/example.com"

[site.tls]
automatic = true
```
"#,
};

pub(super) const ON_DEMAND: TableReference = TableReference {
    header: "[acme.on_demand]",
    title: "certificates on demand",
    intro: "Certificates for names that no site lists, ordered when a client asks for them.",
    context: "[acme]\nterms_agreed = true\n[acme.on_demand]\nask = \"http://127.0.0.1/\"\n",
    with_lines: &[],
    keys: &[
        KeyReference::required(
            "ask",
            "URL",
            "A server that gets `GET URL?domain=NAME`; status 200 permits a certificate for the name.",
        ),
        KeyReference::with_default(
            "per_minute",
            "1 to 10000",
            "10",
            "Requests to that server in a minute.",
        ),
        KeyReference::with_default(
            "names_max",
            "1 to 1000000",
            "10000",
            "Names with such a certificate. Each takes about 8 KB of memory.",
        ),
    ],
    notes: r#"
```toml
[acme]
terms_agreed = true

[acme.on_demand]
ask = "http://127.0.0.1:3000/may-have-certificate"

[[site]]
listen = "*:80"
root = "/srv/{host}"

[site.tls]
automatic = true
```
"#,
};
