#!/bin/bash
# Has Debian's WordPress served by Apache and php-fpm behind Lowroad, walks through it as its users would (walk.py), once
# through Lowroad and once past it, and takes all of it away again. As root, since php-fpm and MariaDB run as www-data.
#
#     examples/wordpress/try.sh target/debug/lowroad
set -eu
lowroad=$(realpath "${1:-target/debug/lowroad}")
here=$(dirname "$(realpath "$0")")
"$here/../../tools/packages.sh" wordpress wordpress-theme-twentytwentyone apache2-bin php-fpm php-mysql mariadb-server python3 openssl
site=127.0.0.1:18000
behind=127.0.0.1:18080
# shellcheck source=examples/applications/tools.sh
. "$here/../applications/tools.sh"
# shellcheck source=examples/applications/apps/wordpress.sh
. "$here/../applications/apps/wordpress.sh"

start_database
start_php
prepare
mkdir "$run/wordpress/wp-content/mu-plugins"
sed "s#http://127.0.0.1:80'#http://$site'#" "$here/lowroad.php" >"$run/wordpress/wp-content/mu-plugins/lowroad.php"
# It takes one comment in 15 s from an address.
echo "<?php add_filter('wp_is_comment_flood', '__return_false', 99);" >"$run/wordpress/wp-content/mu-plugins/try.php"

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
DocumentRoot $run/wordpress
DirectoryIndex index.php
<Directory $run/wordpress>
    Require all granted
    RewriteEngine On
    RewriteBase /
    RewriteCond %{REQUEST_FILENAME} !-f
    RewriteCond %{REQUEST_FILENAME} !-d
    RewriteRule . /index.php [L]
</Directory>
<FilesMatch "\.php$">
    SetHandler "proxy:unix:$run/php/sock|fcgi://localhost"
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
