#!/bin/sh
# Fetches the public tests for HTTP caches (npm: http-cache-tests), one package without what it depends on: the
# test `cache_suite` brings its own client. Without npm or a network it says so, and that test is skipped.
set -eu
cd "$(dirname "$0")/.."

name=http-cache-tests-0.4.5
sum=0e3bb037d9d46572d35bec1abf52d1112099355c65f12b21c0ecb8cf5a71b966d6b79fdacbab0cf5043595e6c16833ba3f520c0682ba99d7fe3ee54ffd034bf0
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/tmp")

[ -d "$folder/$name" ] && exit
mkdir -p "$folder"
fetched=$(mktemp -d "$folder/$name.XXXXXX")
trap 'rm -rf "$fetched"' EXIT
# Of Debian's only where there is none: it conflicts with other builds of node, which bring their own.
command -v npm >/dev/null || ./tools/packages.sh npm || true
if ! (cd "$fetched" && npm pack --ignore-scripts --silent "${name%-*}@${name##*-}" >/dev/null); then
    echo "$name can't be fetched; its test will be skipped" >&2
    exit
fi
echo "$sum  $fetched/$name.tgz" | sha512sum --check --quiet
tar -xzf "$fetched/$name.tgz" -C "$fetched" --no-same-owner
mv "$fetched/package" "$folder/$name"
