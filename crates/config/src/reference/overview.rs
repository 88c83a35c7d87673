//! The parts of the reference that belong to no table: the file, common tasks, values, patterns.

pub(super) const INTRO: &str = r#"
Lowroad reads one configuration file in [TOML](https://toml.io/), `/etc/lowroad/lowroad.toml` unless `-c FILE` names another:

```text
lowroad check -c lowroad.toml    # report all problems
lowroad run -c lowroad.toml      # run the server
lowroad reload                   # apply a changed file to the running server
```

The shortest configuration serves a folder at 127.0.0.1:8080:

```toml
[[site]]
root = "/srv/www"
```

A longer one to start from is [examples/lowroad.toml](../../examples/lowroad.toml). `lowroad config docs` prints these pages.
"#;

pub(super) const TASKS: &str = r#"
## Common tasks

Each example is a complete configuration.

### Static site

```toml
[[site]]
names = ["example.com", "www.example.com"]
listen = "*:80"
root = "/srv/example.com"

[site.error_pages]
404 = "/404.html"

# Files with a hash in their name may be cached for a year.
[[site.cache_control]]
pattern = "/assets/**"
value = "public, max-age=31536000, immutable"
```

Text is compressed by default. See [`[[site]]`](site.md), [`[site.compress]`](site-compress.md),
[`[[site.cache_control]]`](site-cache_control.md), [`[site.error_pages]`](site-error_pages.md).

### Reverse proxy with cache

```toml
[[site]]
names = "example.com"
listen = "*:80"

[[site.route]]
pattern = "/**"
origin = "app"

# The lifetime of responses that have none.
[site.route.cache]
ttl = "10s"
stale_while_revalidate = "1m"

[[origin]]
name = "app"
servers = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"]
check = { path = "/healthz" }
```

For a single server, `origin = "http://127.0.0.1:3000"` in the route is enough. See [`[[site.route]]`](site-route.md),
[`[site.route.cache]`](site-route-cache.md), [`[[origin]]`](origin.md), [accelerator](../accelerator.md).

### PHP

```toml
[limits]
body_len_max = "64M"

[[site]]
names = "example.com"
listen = "*:80"
root = "/srv/app/public"

# Scripts, then everything that is not a file.
[[site.route]]
pattern = "*.php"
fastcgi = "unix:/run/php/php-fpm.sock"

[[site.route]]
pattern = "/**"
missing = true
fastcgi = "unix:/run/php/php-fpm.sock"
script = "/index.php"
```

See [`[[site.route]]`](site-route.md#php), [programs](../programs.md).

### Redirects

```toml
# All paths of a host to another host.
[[site]]
names = "www.example.com"
listen = "*:80"

[[site.redirect]]
from = "/**"
to = "https://example.com/$1"

[[site]]
names = "example.com"
listen = "*:80"
root = "/srv/example.com"

[[site.redirect]]
from = "/blog/**"
to = "/news/$1"

[[site.redirect]]
regex = '^/item/([0-9]+)$'
to = "/shop?id=$1"
status = 302
```

See [`[[site.redirect]]`](site-redirect.md); to answer another path without a redirect, [`[[site.rewrite]]`](site-rewrite.md).

### Response fields

```toml
[[site]]
listen = "*:80"
root = "/srv/www"

[[site.header]]
set = { X-Content-Type-Options = "nosniff", Content-Security-Policy = "default-src 'self'" }

[[site.header]]
pattern = "/private/**"
set = { X-Robots-Tag = "noindex" }
remove = "Server"
```

See [`[[site.header]]`](site-header.md).

### TLS

With automatic certificates of Let's Encrypt:

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

With certificate files:

```toml
[[site]]
names = "example.com"
listen = "*:80"
root = "/srv/example.com"

[site.tls]
certificate = "/etc/ssl/example.com/fullchain.pem"
key = "/etc/ssl/example.com/privkey.pem"
redirect = true
```

See [`[site.tls]`](site-tls.md), [`[acme]`](acme.md), [TLS](../tls.md).

### Access control

```toml
[[site]]
listen = "*:80"
root = "/srv/www"

# Only from the internal network.
[[site.rule]]
pattern = "/internal/**"
except = ["10.0.0.0/8", "127.0.0.1"]
deny = 403

# With a password.
[[site.rule]]
pattern = "/staff/**"
auth = "/etc/lowroad/staff"

# Ten requests a second for each client.
[[site.rule]]
pattern = "/search"
rate = "10/s"
```

See [`[[site.rule]]`](site-rule.md).
"#;

pub(super) const FILE: &str = r#"
## The file

An unknown key is an error. Errors have the place, the key and the allowed values:

```text
lowroad.toml:12:1: site[0].lisen: unknown key; did you mean listen? (allowed: names, listen, root, …)
```

Line and column count from 1, the tables of an array from 0 (`site[0]` is the first `[[site]]`). All errors of a file are reported at once; an
error in the TOML syntax is reported alone. A server that was built without a feature knows its keys and reports them:
`lowroad.toml:9:11: site[0].route[0].fastcgi: this lowroad was built without programs`.

**Reload.** SIGHUP and `lowroad reload` read the files and secrets again; if it has errors, the server keeps the old configuration. The stored responses of a
site survive a reload if the settings that they depend on are unchanged: its folder, and all settings but `names`, `listen`, rules, redirects and error pages. A site with
routes keeps them only if `names` and `listen`, and the modules and databases that it names, are unchanged too; in its routes and their origins, only limits,
timeouts, buffering, balance, servers, weights and checks may change. So a reload can add servers to an `[[origin]]` and remove them. After a reload that puts another
application behind the same name, [purge](../operation.md#purges).

## Several files

```toml
include = ["sites/*.toml", "local/*.toml"]

[server]
cache = "1G"

[[site]]
root = "/srv/www"
```

`include`, at the top of a file, reads further files: paths relative to the file, with `*`, `?` and `[…]` in the file name only. Files that match a
pattern are read in the order of their names, without those that begin with a dot; a pattern without matches in a folder with files is a warning, a missing file an error.
Tables are united and arrays of tables are appended: those of the including file are first. A key that two files set is an error with both places.
Relative paths are relative to the file that they are in. A configuration has at most 4,096 files and 64 MiB; included files may include others, 8 deep.

## Templates

```toml
[template.php]
index = ["index.php"]

[[template.php.route]]
pattern = "*.php"
fastcgi = "unix:/run/php/php-fpm.sock"

[[site]]
use = "php"
names = "example.com"
listen = "*:80"
root = "/srv/example.com"
```

`[template.NAME]` has keys for any table: a site, a route, a rule. `use = "NAME"`, or `use = ["A", "B"]`, in a table takes them over; of several
templates, later ones win, and the table's own keys win over all. Subtables are united, arrays of tables appended, the template's first; an empty array drops
them. Templates may use others, but not themselves, and add 1,000,000 values at most. Errors have the line in the template and the place of use; an
unused template is a warning. In tables of free-form keys, such as `env`, `use` is one of these keys.

## Secrets

```toml
[admin]
listen = "127.0.0.1:9145"
token = { file = "/etc/lowroad/admin.token" }

[[database]]
name = "shop"
url = { credential = "shop-db" }

[[application]]
name = "shop"
command = ["/srv/shop/server"]

[application.env]
API_KEY = { env = "SHOP_API_KEY" }

[[site]]
root = "/srv/www"
```

A secret is in a regular file (`file`), in an environment variable of the server (`env`), or in a systemd credential (`credential`: a file in
`$CREDENTIALS_DIRECTORY`, from `LoadCredential=`). It is a text of 1 to 4,096 bytes; a line break at its end is dropped. Files are read at the start, as
root where the server starts as root, and at each reload; credentials at the start. The server warns of files that other users can read or change. No
command and no log shows a secret, nor a text that stands where a secret may be (except values of fields in `[site.route.request]`).

## Tools

| command | |
|---|---|
| `lowroad config show [FILE]` | all values in force, with defaults, each with its file and line; `--json` |
| `lowroad config diff [FILE]` | the values that a reload would change; `lowroad config diff A B` compares two files |
| `lowroad config format [FILE]` | the file with even spacing; `--write` changes it, `--check` reports whether it would |
| `lowroad config schema` | a JSON Schema for editors, such as Taplo: `#:schema lowroad.schema.json` in the first line |
"#;

pub(super) const VALUES: &str = r#"
## Values

| kind | notation |
|---|---|
| size | bytes as a number, or with `K`, `M`, `G` in powers of 1024: `4096`, `"64K"`, `"256M"`, `"1G"` |
| duration | seconds as a number, or with `ms`, `s`, `m`, `h`, `d`, `w`, `y` (365 days): `15`, `"500ms"`, `"2m"`, `"30d"` |
| path | absolute, or relative to the folder of the configuration file |
| address | `"ADDR:PORT"`, `"[ADDR6]:PORT"`; a `PORT` alone is at 127.0.0.1; `"*:PORT"` is all addresses, IPv4 and IPv6 (the same as `"[::]:PORT"`), on a machine without IPv6 those of IPv4; port 0 is any free port |
| prefix | an address without port, or `ADDR/BITS`: `"10.0.0.0/8"`, `"2001:db8::/32"` |
| pattern | a glob, see [Patterns](#patterns) |
| list | an array; a list of one element may be the element alone |
"#;

pub(super) const VARIABLES: &str = r#"
## Variables

[Redirects](site-redirect.md), [rewrites](site-rewrite.md), [response fields](site-header.md), [fields of requests](site-route-request.md) and `env` of [routes](site-route.md) may contain
`$name` or `${name}`; `$$` is a dollar sign. [Access logs](log.md) have variables of their own, as in nginx.

| variable | |
|---|---|
| `$host`, `$authority` | the requested host: without its port, and with it |
| `$scheme`, `$method` | `http` or `https`; the method |
| `$path`, `$query` | the path, decoded; the query as sent |
| `$request_uri` | path and query as sent |
| `$arg_NAME` | the first parameter of the query with this name, decoded |
| `$cookie_NAME`, `$header_NAME` | the first cookie or request field with this name; `_` in the name of a field is `-` |
| `$client`, `$client_port` | the client's address and port |
| `$request_id` | 32 hexadecimal digits, different for each request |
| `$map_NAME` | the value of a [map](map-NAME.md) |
| `$site` | the first name of the site |
| `$tls_version`, `$tls_cipher`, `$tls_server_name` | of the client's TLS connection |
| `$client_certificate_subject`, `…_issuer`, `…_serial`, `…_fingerprint` | of the client's verified certificate |
| `$1` to `$9` | captures of the pattern or regular expression |

A request without such a property has an empty value. A value can't leave its place: in a field, control characters are percent-encoded; in a path or a query,
all characters with a meaning there, except in `$request_uri`, `$query` and captures, which are encoded already.
"#;

pub(super) const PATTERNS: &str = r#"
## Patterns

A pattern is matched against the decoded path of a request. `*` matches any characters within a segment, `**` any characters including `/`; both also match
the empty text. `{a,b}` matches one of the texts, which have no wildcards. All other characters match themselves, case-sensitive unless the pattern begins
with `(?i)`. A pattern that begins with `/` is matched against the whole path; one
without contains no `/` and is matched against the file name, in any folder.

| pattern | matches | does not match |
|---|---|---|
| `/img/*` | `/img/a.png`, `/img/` | `/img/2026/a.png` |
| `/img/**` | `/img/a.png`, `/img/2026/a.png` | `/img` |
| `*.css` | `/main.css`, `/theme/dark.css` | `/main.css/x` |
| `(?i)*.{jpg,png}` | `/a.png`, `/b/C.JPG` | `/a.gif` |
| `/**/draft-*` | `/a/b/draft-7` | `/a/draft-7/b` |

A pattern has at most 1024 bytes, 16 wildcards, and 64 alternatives between two wildcards (several braces multiply: `{a,b}{c,d}` are 4). The syntax of other servers and shells is an error, because it would match nothing: `[ab]`,
`?`, `%63`, lists such as `*.sql,*.bak`, and of regular expressions `|`, `\`, `.+`, `(.*)`, `^` and `~` in front, and `$` at the end. Use `*` for such a character in
a name. Also errors: `//`, since paths are compared with slashes merged, the segments `.` and `..`, which no path has, and NUL.
"#;
