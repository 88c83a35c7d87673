#!/bin/sh
# Runs all Rust tests, those of the image's kernel too, and ends with the names of the failed tests and one line
# for all. A test that can't run on this machine says why, in the file that LOWROAD_SKIPPED names, and is counted
# as skipped, not as passed.
#
# Up to three failed tests are repeated, alone. One that passes then is named as uncertain: a defect, but not of the
# change that is being tested.
set -u
cd "$(dirname "$0")/.." || exit 2

LOWROAD_SKIPPED=$(mktemp)
export LOWROAD_SKIPPED
log=$(mktemp)
repeated=$(mktemp)
trap 'rm -f "$LOWROAD_SKIPPED" "$log" "$repeated"' EXIT

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

# The output of a failed test stands far above; readers of a shortened log see only the end.
grep -A 30 '^---- .* stdout ----$' "$log" | head -n 150
failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sort -u)
results=$(grep -c '^test result: FAILED' "$log")
count=$(printf '%s\n' "$failed" | grep -c .)
uncertain=0
# A build that failed, a crash, and tests that can't be named for a filter are not repeated.
if [ "$count" -ge 1 ] && [ "$count" -le 3 ] && [ "$results" -le "$count" ] &&
    ! printf '%s' "$failed" | grep -q ' ' && ! grep -q -e '^error: could not compile' -e '^error\[' "$log" &&
    [ "$(grep -c '^error: test failed' "$log")" -le "$count" ]; then
    # shellcheck disable=SC2086 # a list of names
    {
        cargo test --locked --workspace --all-targets --no-fail-fast -- --exact $failed 2>&1
        (cd lab && cargo test --locked --all-targets --no-fail-fast -- --exact $failed 2>&1)
    } >"$repeated"
    for name in $failed; do
        if grep -q "^test $name \.\.\. ok$" "$repeated" && ! grep -q "^test $name \.\.\. FAILED$" "$repeated"; then
            echo "uncertain: $name failed, and passed when it was repeated"
            uncertain=$((uncertain + 1))
        fi
    done
    [ "$uncertain" -eq "$count" ] && status=0
fi
printf '%s\n' "$failed" | sed -n 's/^\(.\)/failed: \1/p'
skipped=$(sort -u "$LOWROAD_SKIPPED" | wc -l)
sort -u "$LOWROAD_SKIPPED" | sed 's/^/skipped: /'
sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; .*/\1 \2/p' "$log" |
    awk -v skipped="$skipped" -v uncertain="$uncertain" '{ passed += $1; failed += $2 }
        END { printf "%d passed, %d failed, %d skipped\n", passed - skipped + uncertain, failed - uncertain, skipped }'
exit "$status"
