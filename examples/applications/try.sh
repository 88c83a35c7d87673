#!/bin/bash
# Serves cgit, awstats, DokuWiki and a FastCGI program in Perl by lowroad.toml, beside this file, asks each something that
# only it can say, and takes all of it away again. As root, since php-fpm runs as www-data.
#
#     examples/applications/try.sh target/debug/lowroad
set -eu
lowroad=$(realpath "${1:-target/debug/lowroad}")
here=$(dirname "$(realpath "$0")")
"$here/../../tools/packages.sh" awstats cgit curl dokuwiki git libfcgi-perl php-fpm php-xml
run=$(mktemp -d /tmp/lowroad-applications.XXXXXX)
chmod 755 "$run"
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
# says URL WORDS [CURL ARGUMENTS]: the answer has these words.
says() {
    local url=$1 words=$2 got
    shift 2
    got=$(curl -sS "$@" "$url")
    grep -qF "$words" <<<"$got" || {
        echo "$url does not say \"$words\" but: $got" >&2
        tail "$run/lowroad.log" >&2
        exit 1
    }
    echo "$url: $words"
}

mkdir "$run/www" "$run/php" "$run/repositories"
git init -q --bare "$run/repositories/one.git"
printf 'scan-path=%s\nvirtual-root=/cgit/\nroot-title=All repositories\n' "$run/repositories" >"$run/cgitrc"

cat >"$run/awstats.test.conf" <<EOF
LogFile="$run/access.log"
LogFormat=1
SiteDomain="test"
DirData="$run"
DirIcons="/icons"
EOF
echo '192.0.2.7 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 7 "-" "Mozilla/5.0"' >"$run/access.log"
/usr/lib/cgi-bin/awstats.pl -config=test -configdir="$run" -update >/dev/null

"$here/hello.pl" "$run/perl.sock" &
started

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
chown -R www-data "$run/conf" "$run/data" "$run/php"
cat >"$run/fpm.conf" <<EOF
[global]
error_log = $run/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = $run/php/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 2
EOF
"$(find /usr/sbin -name 'php-fpm[0-9]*' | sort | tail -n 1)" -F -y "$run/fpm.conf" 2>"$run/fpm.out" &
started
wait_for test -S "$run/php/fpm.sock"
wait_for test -S "$run/perl.sock"

sed "s#RUN#$run#g" "$here/lowroad.toml" >"$run/lowroad.toml"
RUNTIME_DIRECTORY=$run "$lowroad" run --config "$run/lowroad.toml" >"$run/lowroad.log" 2>&1 &
started
site=http://127.0.0.1:18100
wiki=http://127.0.0.1:18101
wait_for curl -s "$site/"

says "$site/cgit/" "All repositories"
says "$site/cgit/one.git/" "one.git"
says "$site/cgi-bin/awstats.pl?config=test&configdir=$run" "Statistics for test"
says "$site/perl/a/.b%2Fc" "GET [/perl] [/a/.b/c] 0"
says "$site/perl/" "REPORT [/perl] [/] 5" -X REPORT -d hello
head -c 3000000 /dev/zero >"$run/long"
says "$site/perl/x" "POST [/perl] [/x] 3000000" -H "Transfer-Encoding: chunked" --data-binary "@$run/long"
says "$wiki/" "A wiki behind Lowroad" -L
says "$wiki/doku.php/some:page" "This topic does not exist yet"
says "$wiki/lib/tpl/dokuwiki/images/logo.png" "image/png" -I
says "$wiki/doku.php/some:page" "Preview" -L --data-urlencode "wikitext=words of mine" -d "do=preview"
echo "all of them work"
