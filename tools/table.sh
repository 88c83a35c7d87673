#!/bin/sh
# Instructions a request over the whole machine, this server and its peers: the table of
# docs/performance.md. Needs root (a tap device); takes a few minutes.
set -eu
cd "$(dirname "$0")/.."
./tools/packages.sh qemu-system-x86 nghttp2-client apache2-utils cpio iproute2 curl gcc \
    nginx-light lighttpd python3 xz-utils

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
chmod 755 "$site" # nginx reads it as nobody
head -c 64 /dev/zero | tr '\0' x >"$site/64.html"
head -c 1024 /dev/zero | tr '\0' x >"$site/1k.html"
head -c 102400 /dev/zero | tr '\0' x >"$site/100k.bin"

measure() { # NAME FILES COMMAND
    name=$1 files=$2 command=$3
    for mode in ka close; do
        for url in /64.html /1k.html /100k.bin; do
            # shellcheck disable=SC2086 # a list of options
            result=$(./tools/icount.py $files --file "$site:/srv" --cmd "$command" \
                --url "$url" --mode "$mode" 2>&1 | sed '/^$/d' | tail -n 1)
            case $result in
                *instructions/request) printf '%-10s %s\n' "$name" "$result" ;;
                *) printf '%-10s %s %s not measured: %s\n' "$name" "$url" "$mode" "$result" >&2 ;;
            esac
        done
    done
}

lighttpd_files="--file /usr/sbin/lighttpd --file tools/peers/lighttpd.conf:/etc/lighttpd.conf"
for module in /usr/lib/lighttpd/mod_*.so; do
    lighttpd_files="$lighttpd_files --file $module:$module"
done
measure lowroad "--file target/release/lowroad" \
    "lowroad serve /srv --listen 0.0.0.0:80 --workers 1 &"
measure nginx "--file /usr/sbin/nginx --file tools/peers/nginx.conf:/etc/nginx.conf" \
    "nginx -c /etc/nginx.conf"
measure lighttpd "$lighttpd_files" "lighttpd -f /etc/lighttpd.conf"
