//! The reference of maps.

use super::{KeyReference, TableReference};

pub(super) const MAP: TableReference = TableReference {
    header: "[map.NAME]",
    title: "maps, from a text to a text",
    intro: "A table of texts with a value for each. The value for a request is the [variable](README.md#variables) `$map_NAME`, which can be used
where variables are, and as a [condition](site-rule-not.md). NAME has letters, digits and `_`.",
    context: "[[site]]\nroot = \"r\"\n[map.m]\nfrom = \"$host\"\nentries = { a = \"b\" }\n",
    with_lines: &[],
    keys: &[
        KeyReference::required(
            "from",
            "text",
            "The text that is looked up, with variables but other maps, captures and `$site`.",
        ),
        KeyReference::with_default("default", "text", "\"\"", "The value without a matching entry."),
        KeyReference::with_described_default(
            "entries",
            "table",
            "required, or `file`",
            "Keys and their values. They precede those of `file`.",
        ),
        KeyReference::with_described_default(
            "file",
            "path",
            "required, or `entries`",
            "A file with `KEY VALUE` in each line, up to 64M. Lines that begin with `#` are comments.",
        ),
        KeyReference::with_described_default(
            "ignore_case",
            "boolean",
            "true if `from` has only hosts and schemes",
            "Whether ASCII letters of both cases are equal.",
        ),
    ],
    notes: r#"
```toml
[map.moved]
from = "$path"
file = "moved.map"                    # /old/page /new/page

[map.backend]
from = "$host"
default = "blue"
entries = { "*.shop.example" = "green", "~^(www[.])?api[.]" = "red" }

[map.robot]
from = "$header_user_agent"
entries = { "~(?i)badbot|scraper" = "1" }

[[site]]
root = "/srv/www"

# A path without an entry is not redirected.
[[site.redirect]]
from = "/**"
to = "$map_moved"

[[site.rule]]
variable = "$map_robot"
deny = 403

[[site.header]]
set = { X-Backend = "$map_backend" }
```

- A key is compared with the whole text; `""` is the key of the empty text. `*.NAME` matches all texts that end in `.NAME`, the longest first; `~REGEX` those in which the
  [expression](site-redirect.md#regular-expressions) is found. Texts are tried first, then `*.NAME`, then expressions in the order of their keys (in a file: of its lines).
- Up to 1,000,000 entries; a text and `*.NAME` cost a hash look-up however many there are. Up to 1000 are expressions, which are tried one after the other.
- Keys and values have up to 4096 bytes. A value is visible ASCII with spaces and tabs between; in a file it is the rest of the line after the key.
- A changed file is in force within a second. With a mistake in it, the entries before stay in force; the log names the line, and
  `lowroad_map_files_rejected_total` counts. `lowroad check`, a start and a reload refuse the mistake. Replace a file by renaming another, so that no half of it is read.
- As the whole `to` of a redirect or rewrite, a value is a URL or a path, percent-encoded, perhaps with a query; for any other value, such as none, the
  redirect or rewrite does not apply.
- A response depends on the variables of `from` as if they were used themselves. A response that depends on a `file` by a rewrite, by the condition of a rewrite or
  route, or by a field of a request to an origin is not stored, and such redirects are sent with `Cache-Control: no-store`.
"#,
};
