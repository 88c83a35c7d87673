#!/bin/sh
# Runs all Rust tests, those of the image's kernel too, and ends with the names of the failed tests and one line
# for all. A test that can't run on this machine says why, in the file that LOWROAD_SKIPPED names, and is counted
# as skipped, not as passed.
set -u
cd "$(dirname "$0")/.." || exit 2

LOWROAD_SKIPPED=$(mktemp)
export LOWROAD_SKIPPED
log=$(mktemp)
trap 'rm -f "$LOWROAD_SKIPPED" "$log"' EXIT

# The lab and the image's kernel are separate workspaces, and a server without features another build. The
# lab's tests need the server's program. The status is that of what failed, not of tee.
{
    cargo test --locked --workspace --all-targets --no-fail-fast 2>&1; echo "status $?"
    cargo test --locked --workspace --doc --no-fail-fast 2>&1; echo "status $?"
    (cd lab && cargo test --locked --all-targets --no-fail-fast 2>&1); echo "status $?"
    ./unikernel/try.sh 2>&1; echo "status $?"
    ./tools/static.sh 2>&1; echo "status $?"
} | tee "$log"
status=$(sed -n 's/^status //p' "$log" | sort -n | tail -n 1)

# What a failed test printed stands far above; readers of a shortened log see only the end.
grep -A 30 '^---- .* stdout ----$' "$log" | head -n 150
sed -n 's/^test \(.*\) \.\.\. FAILED$/failed: \1/p' "$log"
skipped=$(sort -u "$LOWROAD_SKIPPED" | wc -l)
sort -u "$LOWROAD_SKIPPED" | sed 's/^/skipped: /'
sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; .*/\1 \2/p' "$log" |
    awk -v skipped="$skipped" '{ passed += $1; failed += $2 }
        END { printf "%d passed, %d failed, %d skipped\n", passed - skipped, failed, skipped }'
exit "$status"
