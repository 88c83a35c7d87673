# What the parts of the trial share: checks, and questions to the server. Read by trial.sh, in the guest.

config=/etc/lowroad/lowroad.toml

# Runs a command, which has to succeed.
check() { # name, command...
    name=$1
    shift
    if output=$("$@" 2>&1); then
        echo "ok: $name"
    else
        failed "$name" "$* ended with $?
$output"
    fi
}

equal() { # name, expected, actual
    if [ "$2" = "$3" ]; then
        echo "ok: $1"
    else
        failed "$1" "expected: $2
actual: $3"
    fi
}

failed() { # name, reason
    touch /trial/failed
    echo "FAILED: $1"
    echo "$2" | head -n 25 | sed 's/^/    /'
}

# Runs a command again and again until it succeeds, for two minutes at most.
wait_until() { # command...
    tries=0
    until "$@" > /trial/last 2>&1; do
        tries=$((tries + 1))
        if [ $tries = 600 ]; then
            cat /trial/last
            return 1
        fi
        sleep 0.2
    done
}

contains() { # file, text
    grep -qF -- "$2" "$1" || { cat "$1"; return 1; }
}

fetch() { # URL, options of curl...
    curl -sS --fail --max-time 60 --cacert /trial/authorities.pem "$@"
}

# The serial number of the certificate that a client of this name gets.
serial() { # name
    openssl s_client -connect localhost:443 -servername "$1" < /dev/null 2> /dev/null | openssl x509 -noout -serial
}

main_pid() {
    systemctl show -P MainPID lowroad.service
}

# A counter of the server.
counter() { # name
    lowroad status | awk -v name="$1" '$1 == name { print $2 }'
}

# Requests one after another, over http and https, until `end_load`.
begin_load() {
    rm -f /trial/end-load
    (
        while [ ! -e /trial/end-load ]; do
            for url in http://localhost/ https://a.test/; do
                if fetch -o /dev/null "$url" 2> /trial/load-error; then echo ok; else cat /trial/load-error; fi
            done
        done
    ) > /trial/load 2>&1 &
    load=$!
    wait_until contains /trial/load ok
}

# Requests that failed.
end_load() {
    touch /trial/end-load
    wait "$load"
    grep -v '^ok$' /trial/load
}
