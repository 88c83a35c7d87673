# shellcheck shell=bash
packages() { echo wordpress wordpress-theme-twentytwentyone php-fpm php-mysql mariadb-server jq; }
needs() { echo php database; }
prepare() {
    database wordpress
    cp -aL /usr/share/wordpress "$run/wordpress"
    cp -aL /var/lib/wordpress/wp-content/. "$run/wordpress/wp-content/"
    mkdir -p "$run/wordpress/wp-content/uploads"
    cat >"$run/wordpress/wp-config.php" <<EOF
<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'wordpress');
define('DB_HOST', 'localhost');
define('WP_DEFAULT_THEME', 'twentytwentyone');
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
\$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
EOF
    chown -R www-data "$run/wordpress"
}
ask() {
    local nonce
    says / "WordPress" -L
    get "/wp-admin/install.php?step=2" -d "weblog_title=A site of mine" -d user_name=boss -d admin_password=secret-pass-1 \
        -d admin_password2=secret-pass-1 -d pw_weak=1 -d admin_email=boss@example.com -d blog_public=0 >"$run/installed"
    grep -q "Success" "$run/installed" || { cat "$run/installed" >&2; exit 1; }
    says / "A site of mine"
    complete /
    says /wp-includes/css/buttons.css "text/css" -I
    says /wp-admin/ "wp-login.php" -I
    says /wp-admin "Location: /wp-admin/" -I
    get /wp-login.php >/dev/null
    says /wp-login.php "Dashboard" -L -d log=boss -d pwd=secret-pass-1 -d testcookie=1 -d redirect_to=/wp-admin/
    says /wp-admin/ "Dashboard"
    # Its editor writes by the REST interface; pretty names need WordPress as the script of what is no file.
    nonce=$(get "/wp-admin/admin-ajax.php?action=rest-nonce")
    says "/?rest_route=/wp/v2/settings" "A site of mine" -H "X-WP-Nonce: $nonce"
    # Where WordPress can resolve its own name, it has set dated names at its installation; it writes the new rules once the
    # page behind the redirect is shown.
    get /wp-admin/options-permalink.php -L -d permalink_structure=/%postname%/ -d selection=/%postname%/ \
        -d "_wpnonce=$(get /wp-admin/options-permalink.php | hidden _wpnonce)" -d _wp_http_referer=/wp-admin/options-permalink.php >/dev/null
    says /wp-json/wp/v2/posts '"slug":"words-of-mine"' -H "X-WP-Nonce: $nonce" -H "Content-Type: application/json" \
        -d '{"title":"Words of mine","content":"A long text","status":"publish"}'
    says /words-of-mine/ "A long text"
    says /no-such-page/ "404" -I
    says /feed/ "<rss"
    head -c 2500000 /dev/urandom | python3 "$here/apps/png.py" >"$run/noise2.png"
    get /wp-json/wp/v2/media -H "X-WP-Nonce: $nonce" -H "Content-Disposition: attachment; filename=noise.png" -H "Content-Type: image/png" \
        -H "Transfer-Encoding: chunked" --data-binary "@$run/noise2.png" >"$run/media"
    says "$(jq -r .source_url "$run/media" | sed "s#$site##")" "image/png" -I
    [[ -z $(get /wp-config.php) ]] || { echo "/wp-config.php shows something" >&2; exit 1; }
    says /wp-content/uploads/ "403" -I
    says /wp-content/uploads/x.php "403" -I
}
