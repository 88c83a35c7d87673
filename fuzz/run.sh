#!/bin/sh
# Fuzzes the parsers on a stable Rust toolchain: fuzz/run.sh [SECONDS] [TARGET]...
#
# SECONDS is for each target, 30 unless given; 0 only runs what was found before. Found inputs are
# kept in fuzz/target/found/TARGET for the next run, an input that crashes in fuzz/artifacts/TARGET.
# Exits with 1 if any target crashed.
#
# With FUZZ_SEED, a number, a run without earlier found inputs tries the same inputs each time;
# without it, others each time.
#
# It does without cargo-fuzz and nightly: the flags below are what it would pass, and all of them
# are options of the stable compiler. Only the code for --target is instrumented, so the build
# scripts are not.
set -u
cd "$(dirname "$0")" || exit 2
seconds=${1:-30}
[ $# -gt 0 ] && shift
targets=${*:-request chunked config h1 h2 h3 hpack log log_format nginx_config proxy_protocol range target}

# CARGO_TARGET_DIR is often shared with other builds, which have other flags.
triple=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:+$CARGO_TARGET_DIR/fuzz}
build=${build:-$PWD/target}
RUSTFLAGS="-Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-trace-compares \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Ccodegen-units=1 -Clink-dead-code -Cdebug-assertions --cfg fuzzing"
export RUSTFLAGS
cargo build --locked --release --quiet --target "$triple" --target-dir "$build" || exit 2

# Fuzzes one target and prints a line; returns whether it crashed.
fuzz() {
	found=$build/found/$1
	log=$build/$1.log
	mkdir -p "$found" "artifacts/$1"
	if [ "$seconds" -eq 0 ]; then
		limits=-runs=0
	else
		limits="-max_total_time=$seconds -timeout=10"
	fi
	# New inputs go into the first folder; the corpus is only read.
	# shellcheck disable=SC2086
	"$build/$triple/release/$1" $limits -seed="${FUZZ_SEED:-0}" -max_len=4096 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="artifacts/$1/" "$found" "corpus/$1" >"$log" 2>&1
	code=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
	coverage=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
	printf '%-8s %10s runs, %5s points covered, %3s inputs in the corpus, %4s found: ' \
		"$1" "${runs:-?}" "${coverage:-?}" "$(ls "corpus/$1" | wc -l)" "$(ls "$found" | wc -l)"
	if [ $code -eq 0 ]; then
		echo ok
	else
		echo "FAILED ($code)"
		tail -n 40 "$log"
	fi
	return $code
}

# Each target has one thread, so there are as many at a time as processors. The limit is a time, so more would test less.
at_once=$(getconf _NPROCESSORS_ONLN)
failed=
# shellcheck disable=SC2086
set -- $targets
while [ $# -gt 0 ]; do
	running=
	while [ $# -gt 0 ] && [ "$(echo "$running" | wc -w)" -lt "$at_once" ]; do
		fuzz "$1" >"$build/$1.result" &
		running="$running $1:$!"
		shift
	done
	for started in $running; do
		target=${started%:*}
		wait "${started#*:}" || failed="$failed $target"
		cat "$build/$target.result"
	done
done
rmdir artifacts/* artifacts 2>/dev/null
if [ -n "$failed" ]; then
	echo "crashed:$failed; the inputs are in $PWD/artifacts" >&2
	exit 1
fi
