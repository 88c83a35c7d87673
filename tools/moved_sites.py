#!/usr/bin/env python3
"""Moves five running sites from nginx to Lowroad, and compares the answers of both.

    tools/moved_sites.py [--lowroad PROGRAM] [--downloads] [--keep] [NAME…]

Each site runs behind nginx; `lowroad import nginx` translates its configuration, and `lowroad compare` asks both servers. A
site whose packages are missing is skipped with the reason. Names: wordpress (Debian's package, with MariaDB), nextcloud
(a stand-in for the application, behind the configuration that its documentation describes), laravel (a front controller),
spa (an application in the browser with an API and WebSocket; with --downloads its files are a package of npm), many
(sites with redirects, HSTS, passwords and limits). All in a temporary folder and on the loopback. The exit status is 1 if an
answer differs.
"""

import argparse
import atexit
import base64
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "crates/config_import/tests/configs"
NGINX = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 64; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    {temp}
    {sites}
}}
"""
processes = []


class Skipped(Exception):
    """A package is missing."""


def stop_all():
    for process in reversed(processes):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    processes.clear()


def start(command, **options):
    log = open(options.pop("log"), "ab")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
    processes.append(process)
    return process


def wait_for(what, is_ready, process=None, seconds=60):
    end = time.monotonic() + seconds
    while not is_ready():
        if process and process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode}")
        if time.monotonic() > end:
            raise RuntimeError(f"{what} is not ready after {seconds} s")
        time.sleep(0.05)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def need(*programs):
    found = []
    for program in programs:
        path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if not path:
            raise Skipped(f"{program} is not installed")
        found.append(path)
    return found


def php_fpm(folder):
    """Starts php-fpm; returns the path of its socket."""
    programs = sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))
    if not programs:
        raise Skipped("php-fpm is not installed")
    path = folder / "fpm.sock"
    (folder / "fpm.conf").write_text(
        f"[global]\nerror_log = {folder}/fpm.log\ndaemonize = no\n[www]\nlisten = {path}\nlisten.mode = 0666\n"
        "pm = static\npm.max_children = 3\nclear_env = no\nuser = root\ngroup = root\n"
    )
    process = start([programs[-1], "-F", "-R", "-y", folder / "fpm.conf"], log=folder / "fpm.out")
    wait_for("php-fpm", path.exists, process)
    return path


def certificate(folder, *names):
    need("openssl")
    alternatives = ",".join(f"DNS:{name}" for name in names)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
         f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}", "-keyout", folder / "site.key", "-out",
         folder / "site.crt"], check=True, capture_output=True)


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def known_config(name, replacements):
    """A configuration of the tests of the import, on this machine."""
    text = (CONFIGS / f"{name}.conf").read_text()
    lines = [line for line in text.splitlines() if "listen [::]" not in line and "http2 on" not in line]
    text = "\n".join(lines).replace("include fastcgi_params", "include /etc/nginx/fastcgi_params")
    text = text.replace("include mime.types", "include /etc/nginx/mime.types")
    for old, new in replacements.items():
        assert old in text, f"{name}.conf has no {old!r}"
        text = text.replace(old, new)
    return text


def wordpress(folder, plain, encrypted):
    source = pathlib.Path("/usr/share/wordpress")
    if not source.is_dir():
        raise Skipped("the package wordpress is not installed")
    server, installer, php = need("mariadbd", "mariadb-install-db", "php")
    fpm = php_fpm(folder)
    shutil.copytree(source, folder / "www/blog", ignore=shutil.ignore_patterns("wp-config.php"), ignore_dangling_symlinks=True)
    data, db = folder / "data", folder / "db.sock"
    subprocess.run([installer, "--no-defaults", f"--datadir={data}", "--user=root", "--auth-root-authentication-method=normal"],
                   check=True, capture_output=True)
    process = start([server, "--no-defaults", f"--datadir={data}", f"--socket={db}", "--skip-networking", "--user=root",
                     f"--pid-file={folder}/db.pid"], log=folder / "db.log")
    wait_for("MariaDB", db.exists, process, 120)
    need("mariadb")
    subprocess.run(["mariadb", "--no-defaults", f"--socket={db}", "-uroot", "-e", "CREATE DATABASE blog"], check=True)
    keys = "".join(f"define('{name}', 'fixed');\n" for name in (
        "AUTH_KEY", "SECURE_AUTH_KEY", "LOGGED_IN_KEY", "NONCE_KEY", "AUTH_SALT", "SECURE_AUTH_SALT", "LOGGED_IN_SALT",
        "NONCE_SALT"))
    write(folder, {
        "www/index.html": "front\n",
        "www/blog/wp-config.php": f"""<?php
define('DB_NAME', 'blog'); define('DB_USER', 'root'); define('DB_PASSWORD', ''); define('DB_HOST', 'localhost:{db}');
define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', ''); define('DISABLE_WP_CRON', true);
define('WP_HOME', 'http://site.test/blog'); define('WP_SITEURL', 'http://site.test/blog');
define('AUTOMATIC_UPDATER_DISABLED', true); define('WP_HTTP_BLOCK_EXTERNAL', true); define('WP_DEBUG', false);
{keys}$table_prefix = 'wp_'; if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
""",
        "install.php": """<?php
$_SERVER += ['HTTP_HOST' => 'site.test', 'REQUEST_URI' => '/blog/', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET'];
define('WP_INSTALLING', true);
require $argv[1] . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('A blog', 'admin', 'admin@site.test', true, '', 'secret');
update_option('permalink_structure', '/%postname%/');
flush_rewrite_rules(false);
""",
    })
    subprocess.run([php, folder / "install.php", folder / "www/blog"], check=True, capture_output=True)
    # The first request writes options, which would be a difference of the second.
    config = f"""
server {{
    listen 127.0.0.1:{plain};
    server_name site.test;
    root {folder}/www;
    index index.php index.html;
    client_max_body_size 64m;
    location / {{ try_files $uri $uri/ =404; }}
    location /blog/ {{ try_files $uri $uri/ /blog/index.php?$args; }}
    location = /blog/xmlrpc.php {{ deny all; }}
    location ~* /(?:uploads|files)/.*\\.php$ {{ deny all; }}
    location ~ /\\.ht {{ deny all; }}
    location ~ \\.php$ {{
        try_files $uri =404;
        include /etc/nginx/fastcgi_params;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_read_timeout 120s;
        fastcgi_pass unix:{fpm};
    }}
    location ~* \\.(?:css|js|png|jpg|gif|ico|svg|woff2)$ {{
        expires 30d;
        add_header Cache-Control "public";
    }}
}}
"""
    theme = sorted(path.parent.name for path in (folder / "www/blog/wp-content/themes").glob("*/style.css"))
    requests = ["/", "/blog", "/blog/", "/blog/?p=1", "/blog/hello-world/", "/blog/hello-world", "/blog/sample-page/",
                "/blog/no-such-page/", "/blog/feed/", "/blog/wp-json/wp/v2/posts", "/blog/wp-login.php", "/blog/wp-admin",
                "/blog/wp-admin/", "/blog/index.php", "/blog/xmlrpc.php", "/blog/.htaccess", "/blog/readme.html",
                "/blog/wp-includes/js/wp-embed.min.js", "/blog/wp-includes/no-such.css",
                "/blog/wp-content/uploads/x.php", "/blog/?s=hello", "/blog/category/uncategorized/"]
    requests += [f"/blog/wp-content/themes/{name}/style.css" for name in theme[:2]]
    return {"config": config, "plain": ("site.test", requests), "warm": requests}


def nextcloud(folder, plain, encrypted):
    fpm = php_fpm(folder)
    certificate(folder, "cloud.example")
    script = """<?php header('Content-Type: application/json'); echo json_encode(array_map(
        fn ($name) => $_SERVER[$name] ?? null, ['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'HTTPS', 'front_controller_active',
        'modHeadersAvailable', 'REQUEST_METHOD', 'SERVER_NAME']));\n"""
    scripts = ["index.php", "remote.php", "public.php", "status.php", "cron.php", "ocs/v1.php", "ocs/v2.php"]
    write(folder / "www", {name: script for name in scripts} | {
        "core/css/server.css": "body {}\n", "core/img/logo.svg": "<svg/>\n", "core/js/main.mjs": "export {};\n",
        "core/fonts/a.woff2": "font", "config/config.php": "secret", "data/admin.txt": "secret", "robots.txt": "none\n",
        ".well-known/acme-challenge/token": "token", "occ": "secret", "3rdparty/a.php": "secret"})
    config = known_config("nextcloud", {
        "/run/php/php-fpm.sock": str(fpm), "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{encrypted} ssl http2;", "/var/www/nextcloud": f"{folder}/www",
        "/etc/ssl/cloud.crt": f"{folder}/site.crt", "/etc/ssl/cloud.key": f"{folder}/site.key"})
    requests = ["/", "/index.php", "/index.php/apps/files", "/apps/files/?dir=/a", "/login", "/status.php", "/cron.php",
                "/remote.php/dav/files/a", "/remote.php/webdav/a%20b.txt", "/public.php/dav", "/ocs/v2.php/apps/x?format=json",
                "/remote", "/.well-known/carddav", "/.well-known/caldav", "/.well-known/webfinger?resource=a",
                "/.well-known/acme-challenge/token", "/.well-known/acme-challenge/none", "/config/config.php",
                "/data/admin.txt", "/occ", "/3rdparty/a.php", "/lib/x", "/.htaccess", "/core/css/server.css",
                "/core/css/server.css?v=1", "/core/img/logo.svg", "/core/js/main.mjs", "/core/fonts/a.woff2",
                "/core/none.css", "/robots.txt", "/s/token", "/other.php"]
    empty = ["body"], "an empty PATH_INFO is not set (RFC 3875 4.1.5)"
    known = {
        "GET /": empty,
        "GET /index.php": empty,
        "GET /status.php": empty,
        "GET /cron.php": empty,
    }
    return {"config": config, "plain": ("cloud.example", ["/", "/a?b=c"]), "encrypted": ("cloud.example", requests),
            "known": known}


def laravel(folder, plain, encrypted):
    fpm = php_fpm(folder)
    write(folder / "public", {
        "index.php": "<?php if (str_starts_with($_SERVER['REQUEST_URI'], '/none')) http_response_code(404);\n"
                     "echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'], ' ',\n"
                     "     http_build_query($_GET);\n",
        "robots.txt": "none\n", "build/app.css": "a {}\n", ".env": "secret", ".well-known/security.txt": "contact\n",
        "storage/a.txt": "a\n", "tool.php": "<?php echo 'not executed';"})
    config = known_config("laravel", {
        "listen 80;": f"listen 127.0.0.1:{plain};", "/srv/app/public": f"{folder}/public",
        "/var/run/php/php8.2-fpm.sock": str(fpm)})
    requests = ["/", "/users/7?tab=a&b=c", "/index.php", "/index.php/users", "/index.php?x=1", "/robots.txt", "/favicon.ico",
                "/build/app.css", "/build/none.css", "/build/", "/.env", "/.well-known/security.txt", "/none/x",
                "/storage/a.txt", "/a%20b/c", "/users/"]
    names = ["x-content-type-options", "x-frame-options"]
    fields = names, "fields of add_header are sent with every status"
    known = {
        "GET /index.php/users": (["body"], "SCRIPT_NAME is the script, and PATH_INFO the rest (RFC 3875)"),
        "GET /favicon.ico": (["status", *names], "the status of an error page with a handler is the handler's"),
        "GET /build/": (["status", *names], "a folder without an index file goes to the fallback"),
        "GET /.env": fields,
        "GET /none/x": fields,
    }
    return {"config": config, "plain": ("app.example", requests), "known": known}


NODE = """
const http = require('http'), crypto = require('crypto');
for (const port of process.argv.slice(2)) {
  const server = http.createServer((request, response) => {
    response.setHeader('Content-Type', 'application/json');
    response.statusCode = request.url.includes('missing') ? 404 : 200;
    response.end(JSON.stringify({ method: request.method, url: request.url, host: request.headers.host,
      proto: request.headers['x-forwarded-proto'], client: request.headers['x-real-ip'] }));
  });
  server.on('upgrade', (request, socket) => {
    const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    const accept = crypto.createHash('sha1').update(key).digest('base64');
    socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n' +
      'Sec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n');
    socket.on('data', data => socket.write(Buffer.from([0x81, 2, 0x6f, 0x6b])));
    socket.on('error', () => {});
  });
  server.listen(Number(port), '127.0.0.1');
}
"""


def spa(folder, plain, encrypted):
    node, = need("node")
    certificate(folder, "app.example.org")
    ports = free_ports(3)
    write(folder, {"api.js": NODE, "dist/index.html": "<script src=/assets/app.js></script>\n", "dist/assets/app.js": "1\n",
                   "dist/about/index.html": "about\n"})
    names = ["/assets/app.js"]
    if options.downloads:
        npm, = need("npm")
        subprocess.run([npm, "install", "--silent", "--prefix", folder, "swagger-ui-dist@5"], check=True, capture_output=True)
        package = folder / "node_modules/swagger-ui-dist"
        shutil.copytree(package, folder / "dist", dirs_exist_ok=True)
        names += ["/swagger-ui.css", "/swagger-ui-bundle.js", "/favicon-32x32.png", "/oauth2-redirect.html"]
    process = start([node, folder / "api.js", *map(str, ports)], log=folder / "api.log")
    wait_for("the API", lambda: all(map(is_open, ports)), process)
    config = known_config("spa_api", {
        "10.0.0.11:3000": f"127.0.0.1:{ports[0]}", "10.0.0.12:3000": f"127.0.0.1:{ports[1]}",
        "10.0.0.13:3000": f"127.0.0.1:{ports[2]}", "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl;": f"listen 127.0.0.1:{encrypted} ssl;", "/srv/spa/dist": f"{folder}/dist",
        "/etc/letsencrypt/live/app.example.org/fullchain.pem": f"{folder}/site.crt",
        "/etc/letsencrypt/live/app.example.org/privkey.pem": f"{folder}/site.key"})
    requests = ["/", "/index.html", "/some/route?x=1", "/about", "/about/", "/assets/none.js", "/api/users?a=b", "/api/missing",
                "POST /api/users", "DELETE /api/users/1", "/socket.io/?EIO=4", *names]
    hsts = ["strict-transport-security"], "hsts of [site.tls] is sent with all responses of the site"
    known = {f"GET {path}": hsts for path in ("/", "/index.html", "/some/route?x=1", "/assets/none.js", *names)}
    known["GET /socket.io/?EIO=4"] = ["body"], "origins always get X-Forwarded-Proto and X-Real-IP"
    return {"config": config, "known": known, "plain": ("app.example.org", ["/", "/a/b?c"]), "encrypted": ("app.example.org", requests),
            "websocket": ("app.example.org", "/socket.io/?transport=websocket")}


def many(folder, plain, encrypted):
    openssl, node = need("openssl", "node")
    certificate(folder, "one.test", "two.test")
    origin, = free_ports(1)
    write(folder, {"api.js": NODE, "one/index.html": "one\n", "one/404.html": "no such page\n", "one/private/a.txt": "private\n",
                   "one/shop/index.html": "shop\n", "two/index.html": "two\n", "two/docs/a.html": "a\n", "files/f.txt": "f\n",
                   "two/.git/config": "secret"})
    process = start([node, folder / "api.js", str(origin)], log=folder / "api.log")
    wait_for("the origin", lambda: is_open(origin), process)
    hashed = subprocess.run([openssl, "passwd", "-apr1", "secret"], check=True, capture_output=True, text=True).stdout
    write(folder, {"passwords": f"ann:{hashed}"})
    config = f"""
limit_req_zone $binary_remote_addr zone=calls:1m rate=100r/s;
map $uri $moved {{ /gone-to-docs /docs/a.html; /gone-to-one https://one.test/; }}
map $http_user_agent $bot {{ default 0; ~*badbot 1; }}
ssl_certificate {folder}/site.crt;
ssl_certificate_key {folder}/site.key;
server {{ listen 127.0.0.1:{plain}; server_name www.one.test; return 301 https://one.test$request_uri; }}
server {{ listen 127.0.0.1:{plain}; server_name one.test; return 301 https://$host$request_uri; }}
server {{
    listen 127.0.0.1:{encrypted} ssl;
    server_name one.test;
    root {folder}/one;
    add_header Strict-Transport-Security "max-age=31536000" always;
    add_header X-Frame-Options DENY always;
    error_page 404 /404.html;
    location = /404.html {{ internal; }}
    location / {{ try_files $uri $uri/ =404; }}
    location /private/ {{ auth_basic "Private"; auth_basic_user_file {folder}/passwords; }}
    location /api/ {{
        limit_req zone=calls burst=100 nodelay;
        proxy_pass http://127.0.0.1:{origin}/v2/;
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header X-Real-IP $remote_addr;
    }}
    location /form {{ limit_except GET POST {{ deny all; }} proxy_pass http://127.0.0.1:{origin}; proxy_set_header Host $host;
        proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Real-IP $remote_addr; }}
    rewrite ^/item/([0-9]+)$ /shop/?id=$1 permanent;
}}
server {{
    listen 127.0.0.1:{plain};
    server_name two.test *.two.test;
    root {folder}/two;
    if ($moved) {{ return 301 $moved; }}
    if ($bot = 1) {{ return 403; }}
    location / {{ try_files $uri $uri/ =404; }}
    location /old/ {{ return 302 $scheme://one.test$request_uri; }}
    location /away {{ return 301 https://www.$host/x; }}
    location /files/ {{ alias {folder}/files/; }}
    location ~ /\\.git {{ deny all; }}
    location /inside/ {{ allow 127.0.0.1; deny all; proxy_pass http://127.0.0.1:{origin}; proxy_set_header Host $host;
        proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Real-IP $remote_addr; }}
}}
server {{ listen 127.0.0.1:{encrypted} ssl default_server; ssl_reject_handshake on; }}
"""
    plain_list = ["/", "/a?b=c", "http://www.one.test/x?y=1", "http://two.test/", "http://two.test/docs/a.html",
                  "http://a.two.test/docs/a.html", "http://two.test/gone-to-docs", "http://two.test/gone-to-one",
                  "http://two.test/old/x?y", "http://two.test/away", "http://two.test/files/f.txt", "http://two.test/files/none",
                  "http://two.test/.git/config", "http://two.test/inside/x", "http://two.test/none"]
    secure_list = ["/", "/none", "/404.html", "/private/a.txt", "/api/a?b=c", "POST /api/a", "/item/12", "/shop/?id=12", "/shop",
                   "/form", "POST /form", "DELETE /form"]
    login = "Authorization: Basic " + base64.b64encode(b"ann:secret").decode()
    known = {"GET /404.html": (["status"], "pages of error_page can be requested")}
    return {"config": config, "known": known, "plain": ("one.test", plain_list), "encrypted": ("one.test", secure_list),
            "fields": [("encrypted", login, ["/private/a.txt"]), ("plain", "User-Agent: a BadBot", ["http://two.test/"])]}


def websocket_answer(port, host, target):
    """The status line and the first message of a WebSocket."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 30) as plain, context.wrap_socket(plain, server_hostname=host) as stream:
        stream.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += stream.recv(4096) or b"\r\n\r\n"
        stream.sendall(bytes([0x81, 0x82, 0, 0, 0, 0]) + b"hi")
        return head.split(b"\r\n")[0].split()[1], stream.recv(4)


def run_nginx(folder, sites):
    nginx, = need("nginx")
    kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    temp = "\n    ".join(f"{kind}_temp_path {folder}/temp;" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(user=user, folder=folder, temp=temp, sites=sites))
    check = subprocess.run([nginx, "-t", "-p", folder, "-c", config], capture_output=True, text=True)
    if check.returncode:
        raise RuntimeError(check.stderr)
    return config, start([nginx, "-p", folder, "-c", config], log=folder / "nginx.out")


def compare(port, other, kind, host, targets, known, field=None):
    scheme = {"plain": "http", "encrypted": "https"}[kind]
    lines = "".join(it + "\n" if " " in it else f"GET {it}\n" for it in targets)
    command = [options.lowroad, "compare", "-", "--from", f"{scheme}://127.0.0.1:{port}", "--to", f"{scheme}://127.0.0.1:{other}",
               "--host", host, "--rate", "1000"]
    command += ["-H", field] if field else []
    compared = subprocess.run(command, input=lines, capture_output=True, text=True)
    return explain(compared.stdout + compared.stderr, known)


def explain(printed, known):
    """Prints differences; returns whether all are known. `known` has parts and a reason by the request without its host."""
    *blocks, summary = re.split(r"\n(?=\S)", printed.strip())
    is_known = summary.split()[1:2] == ["requests:"] and ", 0 failed" in summary
    for block in blocks:
        head, *lines = block.split("\n  ")
        method, url = head.split(" ", 1)
        request = method + " /" + url.partition("/")[2]
        # This script's sites have no port 443, which redirects to https would omit.
        if len(lines) == 1 and re.fullmatch(r"location: (https://[^/]+)(/.*) \| \1:\d+\2", lines[0]):
            reason = "the port is not 443 here"
        else:
            names, reason = known.get(request, ((), None))
            # Another difference of the same request is not known.
            if not {line.split(":")[0] for line in lines} <= set(names):
                reason = None
        is_known &= reason is not None
        print(f"  {'known' if reason else 'DIFFERENT'}: {head}", *([reason] if reason else []), *lines, sep="\n    ")
    print("  " + summary)
    return is_known


def move(name, site, folder):
    """Runs a site behind both servers; returns whether they answer alike."""
    ports = free_ports(4)
    plan = site(folder, *ports[:2])
    config, process = run_nginx(folder, plan["config"])
    used = [port for kind, port in zip(("plain", "encrypted"), ports) if kind in plan]
    wait_for("nginx", lambda: all(map(is_open, used)), process)
    output = folder / "lowroad.toml"
    imported = subprocess.run([options.lowroad, "import", "nginx", config, "-o", output], capture_output=True, text=True)
    if imported.returncode not in (0, 3):
        raise RuntimeError(imported.stderr)
    by_hand = [line for line in imported.stderr.splitlines() if ": by hand" in line]
    print(f"{name}: {imported.stderr.splitlines()[-1]}", *by_hand, sep="\n  ")
    text = output.read_text()
    for old, new in zip(ports[:2], ports[2:]):
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    admin = f'[server]\nadmin = "{folder}/admin.sock"\n'
    text = text.replace("[server]\n", admin, 1) if "[server]\n" in text else admin + text
    output.write_text(text)
    process = start([options.lowroad, "run", "-c", output], log=folder / "lowroad.log")
    wait_for("lowroad", lambda: all(is_open(port) for port in [ports[2:][ports.index(it)] for it in used]), process)
    is_equal, known = True, plan.get("known", {})
    for kind, port, other in (("plain", ports[0], ports[2]), ("encrypted", ports[1], ports[3])):
        if kind in plan:
            host, targets = plan[kind]
            if plan.get("warm"):
                compare_quietly(port, host, targets)
            is_equal &= compare(port, other, kind, host, targets, known)
        for of, field, targets in plan.get("fields", []):
            if of == kind:
                is_equal &= compare(port, other, kind, plan[kind][0], targets, known, field)
    if "websocket" in plan:
        answers = [websocket_answer(port, *plan["websocket"]) for port in (ports[1], ports[3])]
        print(f"  WebSocket: {answers[0]} | {answers[1]}")
        is_equal &= answers[0] == answers[1] and answers[0][0] == b"101"
    return is_equal


def compare_quietly(port, host, targets):
    """Asks nginx twice: the first request of an application writes caches and options."""
    lines = "".join(f"GET {it}\n" for it in targets)
    url = f"http://127.0.0.1:{port}"
    subprocess.run([options.lowroad, "compare", "-", "--from", url, "--to", url, "--host", host, "--rate", "1000"], input=lines,
                   capture_output=True, text=True)


SITES = {"wordpress": wordpress, "nextcloud": nextcloud, "laravel": laravel, "spa": spa, "many": many}


def main():
    is_equal = True
    for name in options.names or SITES:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"lowroad-moved-{name}-"))
        folder.chmod(0o755)
        try:
            is_equal &= move(name, SITES[name], folder)
        except Skipped as reason:
            print(f"{name}: skipped: {reason}")
        finally:
            stop_all()
            if options.keep:
                print(f"  kept: {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if is_equal else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lowroad", default=str(ROOT / "target/debug/lowroad"))
    parser.add_argument("--downloads", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SITES))
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SITES]
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)}; known: {', '.join(SITES)}")
    atexit.register(stop_all)
    main()
