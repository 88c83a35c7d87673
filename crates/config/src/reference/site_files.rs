//! The reference of the tables of a site about its files: compression, types, pages, `Cache-Control`, aliases.

use super::{KeyReference, TableReference};

pub(super) const COMPRESS: TableReference = TableReference {
    header: "[site.compress]",
    title: "compression",
    intro: "Compression of files, and of responses of programs and origins.",
    context: "[[site]]\nroot = \"r\"\n[site.compress]\n",
    with_lines: &[],
    keys: &[
        KeyReference::with_default(
            "enabled",
            "boolean",
            "true",
            "Compress text files, once for each version of a file, if there is no precompressed file.",
        ),
        KeyReference::with_default(
            "len_min",
            "size, up to 1G",
            "256",
            "Shorter files and responses are sent uncompressed.",
        ),
        KeyReference::with_default(
            "encodings",
            "array of `\"br\"`, `\"zstd\"`, `\"gzip\"`",
            "[\"br\", \"zstd\", \"gzip\"]",
            "The allowed content codings.",
        ),
        KeyReference::with_default(
            "precompressed",
            "boolean",
            "true",
            "Send `FILE.br`, `FILE.zst` or `FILE.gz` instead of `FILE` to clients that accept the coding, unless it is older than `FILE`.",
        ),
        KeyReference::with_default(
            "programs",
            "boolean, or array of codings",
            "false",
            "[Compress responses](../programs.md#compression) of programs and origins on the fly, unless their route has `compress`; `true` means zstd and gzip. `len_min` applies.",
        ),
    ],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[site.compress]
encodings = ["zstd", "gzip"]
len_min = "1K"
```
"#,
};

pub(super) const TYPES: TableReference = TableReference {
    header: "[site.types]",
    title: "media types",
    intro: r"
Media types by file name extension; they override the built-in ones. Each key is an extension in lower case, without a dot; each value is the
`Content-Type`.",
    context: "",
    with_lines: &[],
    keys: &[],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[site.types]
webmanifest = "application/manifest+json"
log = "text/plain; charset=utf-8"
```
"#,
};

pub(super) const ERROR_PAGES: TableReference = TableReference {
    header: "[site.error_pages]",
    title: "error pages",
    intro: r"
Files for the statuses 400 to 599. Each key is a status, or `4xx` or `5xx` for all others of the hundred, each value the path of a file of the site, also below an [alias](site-alias.md). Without the file, or in a site without `root`, errors have the built-in pages
only.",
    context: "",
    with_lines: &[],
    keys: &[],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[site.error_pages]
404 = "/errors/404.html"
503 = "/errors/busy.html"
5xx = "/errors/error.html"
```
"#,
};

pub(super) const CACHE_CONTROL: TableReference = TableReference {
    header: "[[site.cache_control]]",
    title: "Cache-Control of files",
    intro: "The value of `Cache-Control` by path. The first table with a matching pattern applies.",
    context: "[[site]]\nroot = \"r\"\n[[site.cache_control]]\n",
    with_lines: &[],
    keys: &[
        KeyReference::required("pattern", "list of patterns", "The paths."),
        KeyReference::required("value", "text", "The value of the field."),
    ],
    notes: r#"
```toml
[[site]]
root = "/srv/www"

[[site.cache_control]]
pattern = "/assets/**"
value = "public, max-age=31536000, immutable"

[[site.cache_control]]
pattern = "*.html"
value = "no-cache"
```
"#,
};

pub(super) const ALIAS: TableReference = TableReference {
    header: "[[site.alias]]",
    title: "a folder outside the root",
    intro: r"
Maps a path to a folder outside the site's root. Everything below the path is looked up in that folder only. Of several aliases the one with the
longest path applies.",
    context: "[[site]]\nroot = \"r\"\n[[site.alias]]\npath = \"/a\"\nfolder = \"a\"\n",
    with_lines: &[],
    keys: &[
        KeyReference::required(
            "path",
            "path below the root",
            "The URL path of the folder, decoded: `/static`, or `/static/`, which is the same.",
        ),
        KeyReference::required(
            "folder",
            "path",
            "The folder. It must exist when the server starts.",
        ),
        KeyReference::with_default(
            "internal",
            "boolean",
            "false",
            "Clients get 404 for paths below it: only rewrites and [programs that name files in it](../programs.md#files-that-programs-name) lead there. Its content is served as files; no route takes it, and rewrites with `exists` or `missing` and fallbacks apply only where a rewrite has led there.",
        ),
    ],
    notes: r#"
The settings of the root apply to the folder: `symlinks` (`beneath` means beneath the folder), `hidden` for the names below the path, `index`,
`listing`, precompressed files, and the detection of changes, also of the folder itself. Rules, redirects, routes and patterns apply to the requested path. Scripts of
`fastcgi`, `cgi = true` and `pages` routes are found there too: SCRIPT_FILENAME is then in the folder (`script_root` is for the root only), DOCUMENT_ROOT
remains the root. All hosts of a root with `{host}` share an alias. `lowroad explain` shows the alias of a URL.

```toml
[[site]]
root = "/srv/www"

[[site.alias]]
path = "/phpmyadmin"
folder = "/usr/share/phpmyadmin"

[[site.route]]
pattern = "*.php"
fastcgi = "unix:/run/php/php-fpm.sock"
```
"#,
};
