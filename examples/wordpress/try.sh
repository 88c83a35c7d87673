#!/bin/bash
# Has Debian's WordPress served by Apache and php-fpm behind Lowroad, walks through it as its users would (walk.py), once
# through Lowroad and once past it, and takes all of it away again. As root, since php-fpm and MariaDB run as www-data.
#
#     examples/wordpress/try.sh target/debug/lowroad
set -eu
lowroad=$(realpath "${1:-target/debug/lowroad}")
here=$(dirname "$(realpath "$0")")
"$here/../../tools/packages.sh" wordpress wordpress-theme-twentytwentyone apache2-bin php-fpm php-mysql mariadb-server python3 openssl
run=$(mktemp -d /tmp/lowroad-wordpress.XXXXXX)
site=127.0.0.1:18000
behind=127.0.0.1:18080
pids=
started() { pids="$! $pids"; }
end() {
    # shellcheck disable=SC2086 # a list of numbers
    kill $pids 2>/dev/null || true
    wait
    rm -rf "$run"
}
trap end EXIT
# So often at most, a fifth of a second each.
wait_for() {
    for _ in $(seq 150); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    echo "waited in vain for: $*" >&2
    exit 1
}

mkdir "$run/db" "$run/php"
chown www-data "$run" "$run/db" "$run/php"
mariadb-install-db --no-defaults --user=www-data --datadir="$run/db" --auth-root-authentication-method=normal >/dev/null
mariadbd --no-defaults --user=www-data --datadir="$run/db" --socket="$run/db.sock" --skip-networking >"$run/db.log" 2>&1 &
started
wait_for mariadb-admin --no-defaults -S "$run/db.sock" ping
mariadb --no-defaults -S "$run/db.sock" -u root \
    -e "create database wordpress; create user wp@localhost identified by 'wp'; grant all on wordpress.* to wp@localhost"

cp -aL /usr/share/wordpress "$run/wp"
cp -aL /var/lib/wordpress/wp-content/. "$run/wp/wp-content/"
mkdir -p "$run/wp/wp-content/mu-plugins" "$run/wp/wp-content/uploads"
sed "s#http://127.0.0.1:80'#http://$site'#" "$here/lowroad.php" >"$run/wp/wp-content/mu-plugins/lowroad.php"
# It takes one comment in 15 s from an address.
echo "<?php add_filter('wp_is_comment_flood', '__return_false', 99);" >"$run/wp/wp-content/mu-plugins/try.php"
cat >"$run/wp/wp-config.php" <<EOF
<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wp');
define('DB_PASSWORD', 'wp');
define('DB_HOST', 'localhost:$run/db.sock');
define('DB_CHARSET', 'utf8mb4');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as \$of) {
    define(\$of . '_KEY', \$of . ' key');
    define(\$of . '_SALT', \$of . ' salt');
}
define('WP_DEFAULT_THEME', 'twentytwentyone');
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
\$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
EOF
chown -R www-data "$run/wp"

cat >"$run/fpm.conf" <<EOF
[global]
error_log = $run/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = $run/php/fpm.sock
listen.owner = www-data
pm = static
pm.max_children = 6
EOF
"$(find /usr/sbin -name 'php-fpm[0-9]*' | sort | tail -n 1)" -F -y "$run/fpm.conf" 2>"$run/fpm.out" &
started
wait_for test -S "$run/php/fpm.sock"

modules=/usr/lib/apache2/modules
{
    for name in mpm_event authz_core dir mime rewrite deflate filter proxy proxy_fcgi; do
        echo "LoadModule ${name}_module $modules/mod_$name.so"
    done
    cat <<EOF
ServerRoot $run
PidFile $run/apache.pid
Listen $behind
ServerName origin.test
ErrorLog $run/apache.log
User www-data
Group www-data
TypesConfig /etc/mime.types
AddOutputFilterByType DEFLATE text/html text/css application/javascript
DocumentRoot $run/wp
DirectoryIndex index.php
<Directory $run/wp>
    Require all granted
    RewriteEngine On
    RewriteBase /
    RewriteCond %{REQUEST_FILENAME} !-f
    RewriteCond %{REQUEST_FILENAME} !-d
    RewriteRule . /index.php [L]
</Directory>
<FilesMatch "\.php$">
    SetHandler "proxy:unix:$run/php/fpm.sock|fcgi://localhost"
</FilesMatch>
EOF
} >"$run/apache.conf"
apache2 -f "$run/apache.conf" -DFOREGROUND 2>"$run/apache.out" &
started

name=$(printf 'http://%s' "$site" | md5sum | cut -d ' ' -f 1)
sed -e "s/0123456789abcdef0123456789abcdef/$name/; s/127.0.0.1:8080/$behind/; s/\"\*:80\"/\"$site\"/" \
    "$here/lowroad.toml" >"$run/lowroad.toml"
RUNTIME_DIRECTORY=$run "$lowroad" run --config "$run/lowroad.toml" >"$run/lowroad.log" 2>&1 &
started
wait_for curl -s "http://$behind/wp-login.php"
wait_for curl -s "http://$site/wp-login.php"

python3 "$here/walk.py" "$site" "$site" install
python3 "$here/walk.py" "$site" "$behind"
