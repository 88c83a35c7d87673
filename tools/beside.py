#!/usr/bin/env python3
"""Processor time a request of programs behind Lowroad, beside nginx or Apache with the same programs.

    tools/beside.py php|sql|cgi|wordpress [ROUNDS] [LOWROAD]

The servers are asked in turn (wrk), so that the machine's moods hit all alike. Counted is what the processes of each
used, by their control group: programs and those that have ended, too, but not the database. As root.
"""

import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

TOOLS = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(TOOLS)
PACKAGES = {
    "php": "wrk nginx-light php-fpm",
    "sql": "wrk nginx-light php-fpm php-mysql mariadb-server",
    "cgi": "wrk apache2-bin gcc libc6-dev",
    "wordpress": "wrk nginx-light php-fpm php-mysql mariadb-server wordpress wordpress-theme-twentytwentyone",
}
PHP_PROCESSES = 8
ROWS_PHP = r"""<?php
$size = (int) ($_GET['size'] ?? 211);
$base = new mysqli('p:localhost', 'root', '', 'beside', 0, '%s');
$rows = $base->query("SELECT text FROM bare WHERE size = $size ORDER BY line");
$page = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Bare</title></head>\n"
    . "<body><h1>From the database</h1><table>\n";
while ($row = $rows->fetch_row()) {
    $page .= '<tr><td>' . htmlspecialchars($row[0]) . "</td></tr>\n";
}
$page .= '</table><p>A page of a bare machine.</p></body></html>';
header('Content-Type: text/html; charset=utf-8');
header('Content-Length: ' . strlen($page));
echo $page;
"""
NGINX = """worker_processes 2; daemon off; user root; pid {at}/nginx.pid; error_log {at}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 1000000; gzip {gzip};
    client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;
    uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;
    server {{
        listen 127.0.0.1:{port}; root {root}; index index.php;
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
            fastcgi_pass unix:{at}/nginx.sock; include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_buffers 16 64k; fastcgi_buffer_size 64k;
        }}
    }}
}}
"""
APACHE = """ServerRoot {at}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {at}/apache.pid
ErrorLog {at}/apache.log
User www-data
Group www-data
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule cgid_module {modules}/mod_cgid.so
ScriptSock {at}/cgid.sock
MaxKeepAliveRequests 0
ScriptAlias /cgi-bin/ {at}/cgi-bin/
"""
LOWROAD = """[server]
workers = 2
user = "{user}"
{database}
[[site]]
listen = "127.0.0.1:{port}"
root = "{root}"
index = ["index.php"]
compress = {{ programs = {compress} }}
{routes}
"""


class Run:
    """What was started, in a folder of its own."""

    def __init__(self):
        self.at = tempfile.mkdtemp(prefix="beside.")
        os.chmod(self.at, 0o755)
        self.processes = []
        old = "/sys/fs/cgroup/cpuacct"
        self.groups = old if os.path.isdir(old) else "/sys/fs/cgroup"

    def path(self, name):
        return f"{self.at}/{name}"

    def file(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start(self, *command):
        """Its control group."""
        group = f"{self.groups}/{os.path.basename(self.at)}-{len(self.processes)}"
        os.mkdir(group)
        enter = ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]
        log = open(self.path("log"), "a", encoding="utf-8")
        process = subprocess.Popen([*enter, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append((process, group))
        return group

    def end(self):
        for process, _ in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process, group in reversed(self.processes):
            process.wait(30)
            wait_for(lambda group=group: not open(f"{group}/cgroup.procs", encoding="utf-8").read())
            os.rmdir(group)
        shutil.rmtree(self.at)

    def php_fpm(self, name):
        program = sorted(p for p in os.listdir("/usr/sbin") if p.startswith("php-fpm"))[-1]
        config = f"""[global]
error_log = {self.path(name)}.log
daemonize = no
[www]
user = root
group = root
listen = {self.path(name)}.sock
listen.backlog = 4096
pm = static
pm.max_children = {PHP_PROCESSES}
php_admin_value[opcache.enable] = 1
php_admin_value[opcache.validate_timestamps] = 0
"""
        group = self.start(f"/usr/sbin/{program}", "-R", "-F", "-y", self.file(f"{name}-fpm.conf", config))
        wait_for(lambda: os.path.exists(self.path(f"{name}.sock")))
        return group

    def mariadb(self):
        data, sock = self.path("db"), self.path("db.sock")
        install = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
        subprocess.run([*install, "--user=root", f"--datadir={data}"], check=True, stdout=subprocess.DEVNULL)
        server = ["mariadbd", "--no-defaults", "--user=root", "--skip-networking", "--skip-name-resolve"]
        self.start(*server, f"--datadir={data}", f"--socket={sock}", f"--pid-file={data}/pid")
        wait_for(lambda: self.sql("SELECT 1", check=False) == 0)

    def sql(self, text, check=True):
        client = ["mariadb", "--no-defaults", "-u", "root", "-S", self.path("db.sock")]
        return subprocess.run(client, input=text, text=True, check=check, capture_output=True).returncode

    def nginx(self, root, gzip="off"):
        port = free_port()
        config = NGINX.format(at=self.at, port=port, root=root, gzip=gzip)
        nginx = self.start("nginx", "-c", self.file("nginx.conf", config), "-p", self.at)
        return port, [self.php_fpm("nginx"), nginx]

    def lowroad(self, program, root, routes, user="root", database="", compress="false"):
        port = free_port()
        values = {"root": root, "routes": routes, "user": user, "database": database, "compress": compress}
        config = self.file("lowroad.toml", LOWROAD.format(port=port, **values))
        return port, [self.start(program, "run", "--config", config)]

    def php_route(self, more=""):
        """Of a php-fpm of its own: a kept connection holds a process."""
        return f'[[site.route]]\n{more}\nfastcgi = "unix:{self.path("lowroad.sock")}"\nconnections = {PHP_PROCESSES}\n'


def wait_for(is_there):
    for _ in range(300):
        if is_there():
            return
        time.sleep(0.1)
    raise TimeoutError("waited in vain")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(port, path, fields):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=fields)
    with urllib.request.urlopen(asked, timeout=60) as response:
        return response.read()


def cpu_s(groups):
    """What all that ever was in these groups used."""
    total = 0
    for group in groups:
        old, new = f"{group}/cpuacct.usage", f"{group}/cpu.stat"
        with open(old if os.path.exists(old) else new, encoding="utf-8") as file:
            text = file.read()
        total += int(text) / 1e9 if text.strip().isdigit() else int(text.split()[1]) / 1e6
    return total


def wrk(port, path, fields, clients):
    lines = [part for name, value in fields.items() for part in ("-H", f"{name}: {value}")]
    command = ["wrk", "-t1", f"-c{clients}", "-d2s", *lines, f"http://127.0.0.1:{port}{path}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        print(said, file=sys.stderr)
    count, seconds = re.search(r"(\d+) requests in ([\d.]+)s", said).groups()
    return int(count), int(count) / float(seconds)


def compare(what, servers, rounds, paths, fields=None, clients=8):
    """`servers` are names with port and groups, ours the second; `paths` are theirs."""
    fields = fields or {}
    measured = {name: [] for name in servers}
    for name, (port, _) in servers.items():
        wait_for(lambda port=port: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        print(f"{what}: {name} sends {len(get(port, paths[name], fields))} bytes")
        wrk(port, paths[name], fields, clients)
    for number in range(rounds):
        for name in sorted(servers, reverse=number % 2 == 1):
            port, groups = servers[name]
            before = cpu_s(groups)
            count, rate = wrk(port, paths[name], fields, clients)
            measured[name].append(((cpu_s(groups) - before) / count * 1e6, rate))
    for name, rounds_of in measured.items():
        cpu, rate = (statistics.median(column) for column in zip(*rounds_of))
        print(f"{what}: {name:8} {cpu:8.1f} us of processor time a request, {rate:8.0f} requests/s")
    theirs, ours = measured.values()
    pairs = list(zip(theirs, ours))
    cpu = statistics.median(their[0] / our[0] for their, our in pairs)
    rate = statistics.median(our[1] / their[1] for their, our in pairs)
    print(f"{what}: medians of the pairs: {cpu:.2f} by processor time, {rate:.2f} by requests/s")


def php(run, rounds, program):
    run.file("www/hello.php", '<?php echo "hello, world\\n";\n')
    root = run.path("www")
    port, groups = run.lowroad(program, root, run.php_route('pattern = "*.php"'))
    servers = {"nginx": run.nginx(root), "lowroad": (port, [*groups, run.php_fpm("lowroad")])}
    compare("hello", servers, rounds, dict.fromkeys(servers, "/hello.php"), clients=16)


def sql(run, rounds, program):
    run.mariadb()
    with open(f"{ROOT}/examples/pages/bare.sql", encoding="utf-8") as file:
        run.sql("CREATE DATABASE beside; USE beside;" + file.read())
    run.file("www/rows.php", ROWS_PHP % run.path("db.sock"))
    root = run.path("www")
    shutil.copy(f"{ROOT}/examples/pages/www/bare.lrp", root)
    database = f'[[database]]\nname = "main"\nurl = "mysql://root@localhost/beside?socket={run.path("db.sock")}"'
    route = '[[site.route]]\npattern = "*.lrp"\npages = "main"\n'
    servers = {"nginx": run.nginx(root), "lowroad": run.lowroad(program, root, route, database=database)}
    for size in (211, 10217, 19248):
        paths = {"nginx": f"/rows.php?size={size}", "lowroad": f"/bare.lrp?size={size}"}
        compare(f"{size} bytes", servers, rounds, paths)


def cgi(run, rounds, program):
    source = run.file("hello.c", '#include <stdio.h>\nint main(void) { puts("Content-Type: text/plain\\r\\n\\r\\nhello"); }\n')
    os.makedirs(run.path("cgi-bin"))
    subprocess.run(["cc", "-O2", "-o", run.path("cgi-bin/hello.cgi"), source], check=True)
    port = free_port()
    config = APACHE.format(at=run.at, port=port, modules="/usr/lib/apache2/modules")
    group = run.start("apache2", "-f", run.file("apache.conf", config), "-DFOREGROUND")
    route = f'[[site.route]]\npattern = "/cgi-bin/**"\ncgi = "{run.path("cgi-bin")}"\n'
    servers = {"apache": (port, [group]), "lowroad": run.lowroad(program, run.at, route, user="www-data")}
    compare("cgi", servers, rounds, dict.fromkeys(servers, "/cgi-bin/hello.cgi"))


def wordpress(run, rounds, program):
    run.mariadb()
    run.sql("CREATE DATABASE wordpress")
    root = run.path("www")
    shutil.copytree("/usr/share/wordpress", root, ignore_dangling_symlinks=True)
    shutil.copytree("/var/lib/wordpress/wp-content", f"{root}/wp-content", dirs_exist_ok=True)
    keys = "".join(
        f"define('{of}_KEY', '{of} key'); define('{of}_SALT', '{of} salt');\n"
        for of in ("AUTH", "SECURE_AUTH", "LOGGED_IN", "NONCE")
    )
    run.file("www/wp-config.php", f"""<?php
define('DB_NAME', 'wordpress'); define('DB_USER', 'root'); define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:{run.path("db.sock")}'); define('DB_CHARSET', 'utf8mb4');
define('WP_HOME', 'http://blog.test'); define('WP_SITEURL', 'http://blog.test');
define('WP_DEFAULT_THEME', 'twentytwentyone'); define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true);
{keys}$table_prefix = 'wp_'; defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
""")
    script = run.php_route('pattern = "*.php"')
    missing = run.php_route('pattern = "/**"\nmissing = true\nscript = "/index.php"')
    port, groups = run.lowroad(program, root, script + missing, compress="true")
    servers = {"nginx": run.nginx(root, gzip="on"), "lowroad": (port, [*groups, run.php_fpm("lowroad")])}
    form = "weblog_title=T&user_name=a&admin_password=geheim&admin_password2=geheim&pw_weak=1&admin_email=a%40example.org&blog_public=0"
    nginx = servers["nginx"][0]
    wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", nginx)) == 0)
    asked = urllib.request.Request(f"http://127.0.0.1:{nginx}/wp-admin/install.php?step=2", data=form.encode(), headers={"Host": "blog.test"})
    with urllib.request.urlopen(asked, timeout=120) as response:
        assert b"Success" in response.read(), "WordPress is not installed"
    for accepted in ("gzip", "gzip, deflate, br, zstd"):
        fields = {"Host": "blog.test", "Accept-Encoding": accepted}
        compare(f"front page, {accepted}", servers, rounds, dict.fromkeys(servers, "/"), fields, PHP_PROCESSES)


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in PACKAGES:
        sys.exit(__doc__)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    program = os.path.realpath(sys.argv[3] if len(sys.argv) > 3 else f"{ROOT}/target/release/lowroad")
    subprocess.run([f"{TOOLS}/packages.sh", *PACKAGES[kind].split()], check=True)
    run = Run()
    try:
        {"php": php, "sql": sql, "cgi": cgi, "wordpress": wordpress}[kind](run, rounds, program)
    except Exception:
        with open(run.path("log"), encoding="utf-8", errors="replace") as file:
            print(file.read()[-2000:], file=sys.stderr)
        raise
    finally:
        run.end()


main()
