#!/bin/sh
# Builds the server without features, looks that nothing large is left in it, and has it pass the tests of
# static files, as they were built by `cargo test --workspace`.
set -eu
cd "$(dirname "$0")/.."

tree=$(cargo tree --locked -p lowroad --no-default-features -e normal,build --prefix none)
for name in wasmtime cranelift-codegen sqlx hyper minijinja libbpf-sys lowroad-embedded-kernel; do
    if echo "$tree" | grep -q "^$name v"; then
        echo "$name is in a server without features" >&2
        exit 1
    fi
done

# A folder of its own: tests of the whole server need target/debug/lowroad.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/static")
cargo build --locked -p lowroad --no-default-features --target-dir "$target"
export LOWROAD_PROGRAM="$target/debug/lowroad"
cargo test --locked --workspace --test 'static_*' --test without -- --include-ignored
