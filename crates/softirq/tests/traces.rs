//! The rules of the level, segment by segment: runs `traces/*.txt` with the eBPF programs of both tiers, and with
//! `lowroad-wire`, which implements the same rules in Rust.

mod common;

use common::bench::{Bench, missing_bench_requirement};
use common::model::Model;
use common::programs::Programs;
use common::script::{self, TraceTarget};
use lowroad_softirq::programs::loader::ProgramTier;

const TRACES: [(&str, &str); 12] = [
    ("handshake", include_str!("traces/handshake.txt")),
    ("answers", include_str!("traces/answers.txt")),
    ("handover", include_str!("traces/handover.txt")),
    ("repeats", include_str!("traces/repeats.txt")),
    ("pipelined", include_str!("traces/pipelined.txt")),
    ("ends", include_str!("traces/ends.txt")),
    ("admission", include_str!("traces/admission.txt")),
    ("rest", include_str!("traces/rest.txt")),
    ("flights", include_str!("traces/flights.txt")),
    ("timestamps", include_str!("traces/timestamps.txt")),
    ("wrapped", include_str!("traces/wrapped.txt")),
    ("time_wait", include_str!("traces/time_wait.txt")),
];

fn run_all(subject: &mut dyn TraceTarget) -> Vec<String> {
    let mut all = Vec::new();
    for (first_port, (name, text)) in (20_000..).step_by(100).zip(TRACES) {
        let (faults, count) = script::run(text, first_port, subject);
        eprintln!("{name}: {count} traces");
        all.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    all
}

fn program_follows_traces(test: &str, tier: ProgramTier) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(tier);
    let faults = bench.namespace.enter(|| {
        let mut subject = Programs::new(&bench, tier);
        run_all(&mut subject)
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn xdp_program_follows_the_traces() {
    program_follows_traces("xdp_program_follows_the_traces", ProgramTier::Xdp);
}

#[test]
fn tc_program_follows_the_traces() {
    program_follows_traces("tc_program_follows_the_traces", ProgramTier::Tc);
}

#[test]
fn rust_model_follows_the_traces() {
    for tier in [ProgramTier::Tc, ProgramTier::Xdp] {
        let faults = run_all(&mut Model::new(tier));
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
