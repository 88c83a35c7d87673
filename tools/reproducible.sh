#!/bin/sh
# Builds the Debian packages twice, from nothing, and compares them: the same sources at the same path and the same
# compiler have to give the same bytes. Takes two release builds. BUILD='--no-default-features' compares other features,
# in a quarter of an hour less.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for build in first second; do
    export CARGO_TARGET_DIR="$work/target"
    # shellcheck disable=SC2086 # a list of options
    cargo build --release --locked -p lowroad ${BUILD:-}
    BINARY=$work/target/release/lowroad COMPRESSION=none ./tools/deb.sh
    mkdir "$work/$build"
    mv "$work"/target/deb/*.deb "$work/$build/"
    rm -rf "$work/target"
done
for package in "$work"/first/*.deb; do
    cmp "$package" "$work/second/$(basename "$package")"
    echo "equal: $(sha256sum "$package" | cut -d' ' -f1) $(basename "$package")"
done
