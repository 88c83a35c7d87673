#!/bin/sh
# Sees to it that Debian packages are installed: as root it installs what is missing, otherwise it
# prints the line that does. Also says how to get Rust where that is missing.
set -eu

missing=
for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
        missing="$missing $package"
done

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "installing$missing"
        apt-get update -qq
        # shellcheck disable=SC2086 # a list of names
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "these Debian packages are missing; install them with:" >&2
        echo "    sudo apt-get install$missing" >&2
        exit 1
    fi
fi

if ! command -v cargo >/dev/null; then
    echo "Rust (1.95 or later) is missing: https://rustup.rs has it, or Debian's package rustup" >&2
    exit 1
fi
