#!/bin/sh
# Requests a second against nginx by the clock: the two servers in turn, so that the machine's
# moods hit both alike; prints each pair's ratio and the median. ROUNDS and SECONDS can be set.
set -eu
cd "$(dirname "$0")/.."
./tools/packages.sh nginx-light wrk curl
rounds=${ROUNDS:-7} seconds=${DURATION_S:-2}

work=$(mktemp -d)
mkdir "$work/srv"
chmod 755 "$work" "$work/srv"
head -c 64 /dev/zero | tr '\0' x >"$work/srv/64.html"
head -c 1024 /dev/zero | tr '\0' x >"$work/srv/1k.html"
head -c 102400 /dev/zero | tr '\0' x >"$work/srv/100k.bin"
sed -e "s|listen 80|listen 127.0.0.1:18081|; s|root /srv|root $work/srv|; s|/tmp/nginx|$work/nginx|" \
    -e "s|worker_processes 1|worker_processes 2|" lab/icount/nginx.conf >"$work/nginx.conf"
nginx -c "$work/nginx.conf"
./target/release/lowroad serve "$work/srv" --listen 127.0.0.1:18082 --workers 2 >"$work/out" 2>&1 &
lowroad=$!
trap 'kill "$lowroad" "$(cat "$work/nginx.pid")"; rm -rf "$work"' EXIT
until curl -s -o /dev/null http://127.0.0.1:18082/64.html; do :; done

rate() { # PORT PATH HEADERS
    wrk -t1 -c64 -d"${seconds}s" -H "$3" "http://127.0.0.1:$1$2" |
        awk '/Requests\/sec/ { print $2 } /Non-2xx|Socket errors/ { print > "/dev/stderr" }'
}
compare() { # NAME PATH HEADER
    round=0
    while [ "$round" -lt "$rounds" ]; do
        ours=$(rate 18082 "$2" "$3")
        theirs=$(rate 18081 "$2" "$3")
        echo "$ours $theirs" | awk '{ printf "%.3f\n", $1 / $2 }'
        round=$((round + 1))
    done | sort -n | awk -v name="$1" '{ v[NR] = $1 }
        END { printf "%-24s lowroad/nginx: median %s, least %s, most %s (%d pairs)\n",
              name, v[int((NR + 1) / 2)], v[1], v[NR], NR }'
}
compare "64 B, keep-alive" /64.html "X: y"
compare "1 KB, keep-alive" /1k.html "X: y"
compare "100 KB, keep-alive" /100k.bin "X: y"
compare "1 KB, one a connection" /1k.html "Connection: close"
