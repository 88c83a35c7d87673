//! The reference of authentication by tokens and by other servers.

use super::{KeyReference, TableReference};

pub(super) const FORWARD_AUTH: TableReference = TableReference {
    header: "[site.rule.forward_auth]",
    title: "authentication by another server",
    intro: r"
Asks a server about each request of a [rule](site-rule.md) (nginx: `auth_request`; Traefik: ForwardAuth). A status of 2xx admits the request. 401, 403 and
redirects go to the client. Any other status is 500, and 503 if the server can't be reached. `forward_auth = URL` is short for a table with `url`.",
    context: "[[site]]\nroot = \"r\"\n[[site.rule]]\n[site.rule.forward_auth]\nurl = \"http://127.0.0.1:1\"\n",
    with_lines: &[],
    keys: &[
        KeyReference::required(
            "url",
            "URL, or `\"NAME/PATH\"`",
            "The server and the path of the requests: `http://HOST/PATH`, `https://…`, `unix:/PATH`, or a path of an [`[[origin]]`](origin.md) with several servers, health checks or TLS settings.",
        ),
        KeyReference::with_described_default(
            "copy",
            "table, or list of names",
            "none",
            "Fields of the permission that the request gets: names, or a table of request fields with the names of the response fields. Clients can't set them.",
        ),
        KeyReference::with_described_default(
            "answer",
            "list of names",
            "`Content-Language`, `Content-Type`, `Location`, `Set-Cookie`, `WWW-Authenticate`",
            "Fields of a refusal that the client gets.",
        ),
        KeyReference::with_default(
            "timeout",
            "duration, 1ms to 24h",
            "5",
            "Time until the head of the server's response; an `[[origin]]` may have its own.",
        ),
    ],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[[site.rule]]
pattern = "/app/**"

[site.rule.forward_auth]
url = "http://127.0.0.1:9091/api/verify"
copy = ["Remote-User", "Remote-Groups"]

[[site.route]]
pattern = "/app/**"
origin = "http://127.0.0.1:3000"
```

- The server gets a GET with the fields of the request (with cookies and `Authorization`, without the body, preconditions and `Range`), and `X-Forwarded-Method`, `-Uri`, `-Host`,
  `-Proto`, `-For`, `X-Original-URL`, `X-Original-URI` and `X-Original-Method`.
- Fields of `copy` are removed from all requests of the site, also from those that the rule doesn't concern. Origins, programs, and `$header_NAME` in
  response fields have the copied values. The user in logs and `REMOTE_USER` is the first copied field with a name that ends in `User`.
- A permission is for one request. A rewrite of the request doesn't ask again.
- Responses behind the rule are private: they get `Cache-Control: private`, and those of origins and programs aren't stored.
- `lowroad status` shows the connections to the server, and counts refusals.
"#,
};

pub(super) const JWT: TableReference = TableReference {
    header: "[site.rule.jwt]",
    title: "JSON Web Tokens",
    intro: r"
Requires a valid token (RFC 7519) for the requests of a [rule](site-rule.md): with a signature of one of the keys, `exp` in the future, and `nbf`, if present, in the
past. A request without one gets 401, or 503 while no key is known.",
    context: "[[site]]\nroot = \"r\"\n[[site.rule]]\n[site.rule.jwt]\n",
    with_lines: &[("", "key = \"k.pem\"")],
    keys: &[
        KeyReference::optional(
            "secret",
            "text, or [secret](README.md#secrets)",
            "The secret that the issuer and this server share, at least 32 bytes (HS256, HS384, HS512).",
        ),
        KeyReference::optional(
            "key",
            "path",
            "A file with the public key of the issuer in PEM: RSA, EC (P-256, P-384) or Ed25519.",
        ),
        KeyReference::optional(
            "jwks",
            "path or URL",
            "A JSON Web Key Set, at most 256 KiB and 64 keys: a file, or a URL.",
        ),
        KeyReference::with_described_default(
            "algorithms",
            "list of algorithms",
            "those of the keys",
            "The permitted algorithms: HS256, HS384, HS512 with `secret`; RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA with `key` and `jwks`.",
        ),
        KeyReference::with_described_default(
            "issuer",
            "list of texts",
            "any",
            "The permitted values of `iss`, which is then required.",
        ),
        KeyReference::with_described_default(
            "audience",
            "list of texts",
            "any",
            "The values of `aud`, one of which is required.",
        ),
        KeyReference::with_default(
            "leeway",
            "duration, 0 to 10m",
            "30",
            "The permitted difference of clocks.",
        ),
        KeyReference::with_described_default(
            "cookie",
            "name",
            "`Authorization: Bearer`",
            "The cookie with the token.",
        ),
        KeyReference::optional(
            "require",
            "table",
            "Claims with the values that they must have, or contain as a list; for `scope` one of its words.",
        ),
        KeyReference::optional(
            "fields",
            "table",
            "Request fields with the names of the claims whose values they get. Clients can't set them.",
        ),
    ],
    notes: r#"
One of `secret`, `key` and `jwks` is required.

```toml
[[site]]
root = "/srv/www"

[[site.rule]]
pattern = "/api/**"

[site.rule.jwt]
jwks = "https://id.example.com/.well-known/jwks.json"
issuer = "https://id.example.com/"
audience = "api"
require = { scope = "orders" }
fields = { X-User = "sub", X-Groups = "groups" }

[[site.route]]
pattern = "/api/**"
origin = "http://127.0.0.1:3000"
```

- A token can't choose the kind of key: `alg` must be permitted and fit the key, so `none`, and a public key used as a secret, are refused. So are tokens of
  more than 8 KiB, with a claim that occurs twice, and two tokens in a request.
- A changed file applies after a second. A URL is fetched every 5 minutes; after a failure again in 1 s to 1 min. Tokens with an unknown `kid` lead to a
  fetch, at most one in 10 s. An unusable set leaves the old keys in force, and `lowroad status` reports it.
- The user in logs and `REMOTE_USER` is the claim `sub`. Lists are joined by commas. Fields and responses are those of
  [forward authentication](site-rule-forward_auth.md).
"#,
};
