//! The reference of `[origin.sticky]`.

use super::{KeyReference, TableReference};

pub(super) const STICKY: TableReference = TableReference {
    header: "[origin.sticky]",
    title: "sticky sessions",
    intro: r#"
A signed cookie names the server that answers a client, for applications that keep sessions in memory. `sticky = true` has all defaults,
`sticky = "NAME"` names the cookie."#,
    context: "[[origin]]\nname = \"o\"\nservers = \"http://a\"\n[origin.sticky]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_described_default(
            "cookie",
            "name of a cookie",
            "`sticky_` and the origin's name",
            "The name of the cookie.",
        ),
        KeyReference::with_described_default(
            "lifetime",
            "duration, 1s to 400d",
            "until the browser is closed",
            "The lifetime of the cookie (Max-Age), which the signature includes. The cookie is renewed after half of it.",
        ),
        KeyReference::with_described_default(
            "secure",
            "boolean",
            "`true` if the request came over https",
            "The cookie is for https only (Secure).",
        ),
        KeyReference::with_default(
            "http_only",
            "boolean",
            "true",
            "Scripts can't read the cookie (HttpOnly).",
        ),
        KeyReference::with_default(
            "same_site",
            "`\"lax\"`, `\"strict\"`, `\"none\"`",
            "\"lax\"",
            "Which requests from other sites have the cookie: links, none, all (SameSite).",
        ),
        KeyReference::with_described_default(
            "secret",
            "text, or [secret](README.md#secrets)",
            "random",
            "The secret that signs cookies, at least 16 bytes. A random one is kept by `reload` and `upgrade`, but not by a restart; several machines need a common one.",
        ),
    ],
    notes: r#"
```toml
[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "app"

[[origin]]
name = "app"
servers = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"]
sticky = { lifetime = "8h", secret = { file = "/etc/lowroad/sticky.key" } }
```

- A request without the cookie gets a server by `balance`, and its response sets the cookie (`Path=/`). The value shows no address.
- If the named server is unhealthy, at its limit of connections, or gone, another one answers, and the cookie is replaced. A backup
  loses its sessions when a primary server is healthy again.
- A forged or expired cookie is ignored and replaced. `lowroad status` counts requests by `sticky.kept`, `begun`, `moved`, `stale` (expired, or for a
  server that is gone) and `forged`.
- Of several cookies with the name, the last 8 are verified, and the last valid one counts (`sticky.crowded` counts requests with more). Browsers send
  cookies with longer paths first, so those of a neighbouring host, which can set cookies for the whole domain, precede this one. Over https,
  `cookie = "__Host-NAME"` keeps them out: no other host can set such a cookie.
- A cache stores a response without the cookie (`Cache-Control: private="set-cookie"` is added). If the application sets a cookie as well, or
  has a lifetime in CDN-Cache-Control, the response becomes private. A stored response, 206 and 304 set no cookie.
- An origin with one server that is an address needs no cookie, and sets none.
"#,
};
