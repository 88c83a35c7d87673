#!/bin/sh
# Tests the kernel: its logic here, then the machine in QEMU. Fails if anything does.
set -eu
cd "$(dirname "$0")"
cargo test --locked --quiet -p lowroad-kernel --lib
cargo build --locked --quiet --release -p lowroad-kernel --features echo
target=${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release
cp "$target/lowroad-kernel" "$target/lowroad-kernel-echo"
case $target in /*) ;; *) target=$PWD/$target ;; esac
LOWROAD_KERNEL=$target/lowroad-kernel-echo cargo test --locked --quiet -p lowroad-kernel-image -- --test-threads=1
