# shellcheck shell=bash
packages() { echo dokuwiki php-fpm php-xml; }
needs() { echo php; }
prepare() {
    cp -aL /usr/share/dokuwiki "$run/dokuwiki"
    cp -aL /etc/dokuwiki "$run/conf"
    cp -aL /var/lib/dokuwiki/data "$run/data"
    cat >"$run/conf/local.php" <<EOF
<?php
\$conf['title'] = 'A wiki behind Lowroad';
\$conf['savedir'] = '$run/data';
\$conf['useacl'] = 0;
\$conf['userewrite'] = 2;
EOF
    echo "<?php define('DOKU_CONF', '$run/conf/');" >"$run/dokuwiki/inc/preload.php"
    chown -R www-data "$run/conf" "$run/data"
}
ask() {
    says / "A wiki behind Lowroad" -L
    complete /
    says /doku.php/some:page "This topic does not exist yet"
    says /lib/tpl/dokuwiki/images/logo.png "image/png" -I
    says /doku.php/some:page "Preview" -L --data-urlencode "wikitext=words of mine" -d "do=preview"
}
