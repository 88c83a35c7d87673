#!/bin/sh
# Installs a program of cargo's registry in a folder of the user's cache, once, and prints its path.
#
#   cargo-tool.sh NAME VERSION
set -eu
folder=${XDG_CACHE_HOME:-$HOME/.cache}/lowroad/$1-$2
if [ ! -x "$folder/bin/$1" ]; then
    echo "installing $1 $2" >&2
    # Built without optimisation: it runs for seconds, and its build would take minutes.
    cargo install --quiet --debug --locked --root "$folder" --target-dir "$folder/build" "$1@$2" >&2
    rm -rf "$folder/build"
fi
echo "$folder/bin/$1"
