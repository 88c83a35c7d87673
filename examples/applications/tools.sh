# shellcheck shell=bash
# What the scripts of applications share: a folder, programs that end with it, a database, php-fpm, and questions to a site.

run=$(mktemp -d /tmp/lowroad-applications.XXXXXX)
chmod 755 "$run"
mkdir "$run/www"
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
    tail -n 5 "$run"/*.log >&2
    exit 1
}

# A MariaDB that listens at $run/db.sock only; its root needs no password.
start_database() {
    mkdir "$run/db"
    chown www-data "$run/db"
    mariadb-install-db --no-defaults --user=www-data --datadir="$run/db" --auth-root-authentication-method=normal >/dev/null
    mariadbd --no-defaults --user=www-data --datadir="$run/db" --socket="$run/db/sock" --skip-networking >"$run/db.log" 2>&1 &
    started
    wait_for mariadb-admin --no-defaults -S "$run/db/sock" ping
}

# database NAME: with a user of its name and password.
database() {
    mariadb --no-defaults -S "$run/db/sock" -u root \
        -e "create database $1; create user $1@localhost identified by '$1'; grant all on *.* to $1@localhost"
}

# php-fpm at $run/php/sock.
start_php() {
    mkdir "$run/php"
    chown www-data "$run/php"
    cat >"$run/fpm.conf" <<EOF
[global]
error_log = $run/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = $run/php/sock
listen.mode = 0666
pm = static
pm.max_children = 4
php_admin_value[mysqli.default_socket] = $run/db/sock
EOF
    "$(find /usr/sbin -name 'php-fpm[0-9]*' | sort | tail -n 1)" -F -y "$run/fpm.conf" 2>"$run/fpm.out" &
    started
    wait_for test -S "$run/php/sock"
}

# get PATH [CURL ARGUMENTS]: what $site answers, to a visitor whose cookies are kept.
get() {
    local path=$1
    shift
    curl -sS --resolve '*:18100:127.0.0.1' -b "$run/cookies" -c "$run/cookies" "$@" "$site$path"
}

# says PATH WORDS [CURL ARGUMENTS]: the answer has these words.
says() {
    local path=$1 words=$2 got
    shift 2
    got=$(get "$path" "$@" | tr -d '\0')
    grep -qF -- "$words" <<<"$got" || {
        echo "$site$path does not say \"$words\" but: $got" >&2
        tail "$run/lowroad.log" >&2
        exit 1
    }
    echo "$site$path: $words"
}

# complete PATH [CURL ARGUMENTS]: all styles, scripts and pictures of the page are there, as a browser needs them.
complete() {
    local path=$1 url part status count=0
    shift
    url=$(get "$path" -L -o "$run/page" -w '%{url_effective}' "$@")
    while read -r part; do
        status=$(get "$part" -o /dev/null -w '%{http_code}')
        [[ $status = 200 ]] || { echo "$site$path: $part is $status" >&2; exit 1; }
        count=$((count + 1))
    done < <(python3 "$here/parts.py" "$url" <"$run/page")
    [[ $count -gt 0 ]] || { echo "$site$path has no styles, scripts or pictures" >&2; exit 1; }
    echo "$site$path: complete, with $count files"
}

# hidden NAME: the value of the field of a form that a visitor does not see; the page is read.
hidden() {
    grep -o "<input[^>]*>" | grep "name=\"$1\"" | head -n 1 | sed 's/.*value="\([^"]*\)".*/\1/; s/&quot;/"/g; s/&amp;/\&/g'
}
