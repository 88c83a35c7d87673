#!/bin/sh
# Checks the dependencies of all workspaces by deny.toml (cargo-deny): licences, sources, versions, and vulnerabilities that
# RustSec knows. Without network access it checks less, and prints what it omits.
set -eu
cd "$(dirname "$0")/.."

if ! deny=$(./tools/cargo-tool.sh cargo-deny 0.20.2); then
    echo "audit: cargo-deny can't be installed; the dependencies are not checked" >&2
    exit
fi
checks='bans licenses sources'
if "$deny" fetch db 2>/dev/null; then
    checks="$checks advisories"
else
    echo "audit: the database of vulnerabilities can't be fetched; they are not checked" >&2
fi
for workspace in . lab unikernel fuzz; do
    # shellcheck disable=SC2086 # a list of names
    "$deny" --locked --manifest-path "$workspace/Cargo.toml" --config deny.toml --log-level error check --hide-inclusion-graph $checks
done
