//! The reference of `[[module]]`, `[[application]]` and `[[database]]`.

use super::{KeyReference, TableReference};

pub(super) const MODULE: TableReference = TableReference {
    header: "[[module]]",
    title: "a module",
    intro: r"
Code that answers requests of [routes](site-route.md) with `module` ([modules](../modules.md)). A module has exactly one of `linked`, `library` and
`wasm`. A crash of a library can end the server; a WebAssembly module can't.",
    context: "[[module]]\nname = \"m\"\n",
    with_lines: &[("", "linked = \"l\""), ("library", "library = \"l\""), ("wasm", "wasm = \"w\"")],
    keys: &[
        KeyReference::required("name", "name", "The name for routes: up to 64 letters, digits, `-`, `_` and `.`; unique."),
        KeyReference::optional("linked", "name", "A module that is built into the server."),
        KeyReference::optional("library", "path", "A shared library."),
        KeyReference::optional("wasm", "path", "A WebAssembly module."),
        KeyReference::optional("settings", "table", "`[module.settings]`: settings that the module receives at its start, as text; texts, numbers, booleans and [secrets](README.md#secrets)."),
        KeyReference::with_default("fetch", "list of `HOST:PORT`", "[]", "Servers that the module may fetch from by `http://` URLs: exact (`api.example.com:80`, `192.0.2.1:8080`, `[2001:db8::1]:80`), or with labels in front (`*.example.com:80`, without `example.com` itself). The port is always written. Other requests fail, and the error log reports them. Paths of the module's own site need no entry."),
        KeyReference::with_default("separate", "boolean", "false", "Run the library in a separate process, so that a crash ends only that.").only_with(&["library"]),
        KeyReference::with_default("memory", "size, 64K to 4G", "\"16M\"", "Memory of an instance. Beyond it `memory.grow` returns -1.").only_with(&["wasm"]),
        KeyReference::with_default("compute", "duration, 1ms to 24h", "\"1s\"", "Time that an instance may compute without a pause. Longer: 500.").only_with(&["wasm"]),
        KeyReference::with_default("keep", "boolean", "false", "Use an instance for one request after the other, with its state; otherwise each request has a new one.").only_with(&["wasm"]),
    ],
    notes: r#"
```toml
[[module]]
name = "hello"
wasm = "modules/hello.wasm"
memory = "4M"
compute = "100ms"

[module.settings]
greeting = "Good morning"
stars = 5

[[module]]
name = "search"
library = "modules/search.so"
separate = true
fetch = ["index.example.com:8080"]

[[site]]
root = "/srv/www"

[[site.route]]
pattern = "/hello"
module = "hello"

[[site.route]]
pattern = "/search/**"
module = "search"
timeout = "2s"
```
"#,
};

pub(super) const APPLICATION: TableReference = TableReference {
    header: "[[application]]",
    title: "a supervised application",
    intro: "A program that the server starts, and restarts when it ends, usually the origin of a site. It runs as the server's user and ends with the server.",
    context: "[[application]]\nname = \"a\"\ncommand = [\"a\"]\n",
    with_lines: &[],
    keys: &[
        KeyReference::required(
            "name",
            "name",
            "The prefix of its lines in the error log; unique.",
        ),
        KeyReference::required("command", "list of texts", "The program and its arguments."),
        KeyReference::with_described_default(
            "folder",
            "path",
            "the server's",
            "Its working directory.",
        ),
        KeyReference::optional(
            "env",
            "table",
            "`[application.env]`: environment variables in addition to those of the server; texts, numbers, booleans and [secrets](README.md#secrets).",
        ),
        KeyReference::optional(
            "ready",
            "URL",
            "The address where it listens: the server accepts clients when it accepts connections there, or after `start_timeout`.",
        ),
        KeyReference::with_default(
            "start_timeout",
            "duration, 1ms to 1h",
            "\"30s\"",
            "How long the start of the server, and a reload, wait for `ready`.",
        ),
        KeyReference::with_default(
            "stop_timeout",
            "duration, 1ms to 1h",
            "\"10s\"",
            "From SIGTERM until the application and its process group are killed.",
        ),
    ],
    notes: r#"
```toml
[[application]]
name = "shop"
command = ["node", "server.js"]
folder = "/srv/shop"
ready = "http://127.0.0.1:3000"

[application.env]
PORT = 3000

[[site]]
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "http://127.0.0.1:3000"
```

**Restart.** An application that ends is started again after 100 ms; the pause doubles up to 10 s until an instance runs for 10 s.

**Children.** When an application ends, the processes that it started end too: its process group, and processes that left the group, as daemons
do, if they have its `LOWROAD_APPLICATION_ID` in their environment. Processes of another user, or without that variable, are not found; systemd ends
them with the service.

**Reload.** A reload starts new applications, waits until they are ready, applies the new configuration, and then ends the old ones when their
requests are answered, or after `stop_timeout`. If old and new have the same `ready`, or the same name and one has no `ready`, the old one ends
first, and stored responses are used in the meantime.
"#,
};

pub(super) const DATABASE: TableReference = TableReference {
    header: "[[database]]",
    title: "a database of templates",
    intro: "A database for routes with `pages` ([SQL templates](../pages.md)). Connections are opened when needed and kept.",
    context: "[[database]]\nname = \"d\"\nurl = \"sqlite:d\"\n",
    with_lines: &[],
    keys: &[
        KeyReference::required("name", "name", "The name for routes and templates; unique."),
        KeyReference::required(
            "url",
            "text, or [secret](README.md#secrets)",
            "`sqlite:FILE`, `mysql://USER:PASSWORD@HOST/NAME` (or `mariadb://…`) or `postgres://USER:PASSWORD@HOST/NAME` (or `postgresql://…`). `${NAME}` stands for an environment variable.",
        ),
        KeyReference::with_default("connections", "1 to 1024", "8", "Concurrent connections."),
        KeyReference::with_default(
            "timeout",
            "duration, 1ms to 1h",
            "\"5s\"",
            "The time to get a connection, and the time of a query.",
        ),
        KeyReference::with_default("rows", "1 to 1000000", "10000", "Rows of a query's result."),
    ],
    notes: r#"
A relative `FILE` is relative to the folder of the configuration file, unless it begins with a variable. Keep passwords in the environment rather than in
the file: no message shows a URL, and the server removes the variables from its environment at its start, so that no program that it starts receives them.

```toml
[[database]]
name = "shop"
url = "mysql://shop:${SHOP_PASSWORD}@127.0.0.1/shop"
connections = 16
timeout = "2s"

[[database]]
name = "guests"
url = "sqlite:guests.db"

[[site]]
root = "/srv/shop"

[[site.route]]
pattern = "*.lrp"
pages = "shop"

[[site]]
names = "guests.example.com"
root = "/srv/guests"

[[site.route]]
pattern = "*.lrp"
pages = "guests"
```
"#,
};
