//! Several runs by one command: a sweep of rates, or a comparison of two servers. The caller supplies the function that
//! executes a run.

use std::fmt::Write;

use super::{LoadResult, LoadRun, RequestPace};
use crate::experiment::units::number;
use crate::report::model::PointSpread;

/// Executes a run.
pub(super) type RepeatedRun<'a> = dyn FnMut(&LoadRun) -> anyhow::Result<LoadResult> + 'a;

/// Applies the load at each rate and prints a line for each. Ends early when a run was interrupted.
pub(super) fn sweep(
    load: &LoadRun,
    rates: &[f64],
    run: &mut RepeatedRun<'_>,
    print_line: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<LoadResult>> {
    print_line("  offered/s  answered/s    p50 µs    p90 µs    p99 µs    errors");
    let mut outcomes = Vec::new();
    for rate in rates {
        let load = LoadRun {
            pace: RequestPace::Requests(*rate),
            ..load.clone()
        };
        let outcome = run(&load)?;
        print_line(&line(*rate, &outcome));
        let is_over = outcome.interrupted;
        outcomes.push(outcome);
        if is_over {
            break;
        }
    }
    Ok(outcomes)
}

fn line(rate: f64, outcome: &LoadResult) -> String {
    let LoadResult { latency_us, .. } = outcome;
    format!(
        "{:>11} {:>11} {:>9} {:>9} {:>9} {:>9}",
        number(rate),
        number(outcome.requests_per_s),
        latency_us.p50,
        latency_us.p90,
        latency_us.p99,
        outcome.errors
    )
}

/// Applies two loads alternately, so that a drift of the machine affects both; their order changes after each round.
pub(super) fn compare(
    loads: [&LoadRun; 2],
    repeats: u32,
    run: &mut RepeatedRun<'_>,
    print_line: &mut dyn FnMut(&str),
) -> anyhow::Result<[Vec<LoadResult>; 2]> {
    let mut outcomes = [Vec::new(), Vec::new()];
    for repeat in 0..repeats {
        for turn in 0..2 {
            let run_index = (turn + repeat as usize) % 2;
            let outcome = run(loads[run_index])?;
            // The figures of an interrupted run are incomplete, so they are not compared.
            if outcome.interrupted {
                return Ok(outcomes);
            }
            outcomes[run_index].push(outcome);
        }
        let rate = |run_index: usize| number(outcomes[run_index][repeat as usize].requests_per_s);
        print_line(&format!(
            "{:>3} of {repeats}: {} and {} requests/s",
            repeat + 1,
            rate(0),
            rate(1)
        ));
    }
    Ok(outcomes)
}

/// Formats a comparison: for each figure, the ratio of the first server to the second with its confidence interval.
pub(super) fn compared(names: [&str; 2], outcomes: &[Vec<LoadResult>; 2]) -> String {
    type Of = fn(&LoadResult) -> f64;
    let figures: [(&str, Of); 3] = [
        ("requests/s", |outcome| outcome.requests_per_s),
        ("µs, median latency", |outcome| {
            outcome.latency_us.p50 as f64
        }),
        ("µs, 99th percentile", |outcome| {
            outcome.latency_us.p99 as f64
        }),
    ];
    let mut out = format!("{} against {}\n", names[0], names[1]);
    for (unit, figure) in figures {
        let spread = |run_index: usize| {
            PointSpread::from_values(outcomes[run_index].iter().map(figure).collect())
        };
        let (Some(first), Some(second)) = (spread(0), spread(1)) else {
            return "nothing was measured\n".into();
        };
        let ratio = first.ratio(&second);
        let kind = if ratio.confident { "95 %: " } else { "" };
        let may_be = if ratio.is_possibly_equal() {
            ", may be the same"
        } else {
            ""
        };
        writeln!(
            out,
            "{:>12} and {:>12} {unit}: {} times ({kind}{} to {}{may_be})",
            number(first.median),
            number(second.median),
            number(ratio.times),
            number(ratio.low),
            number(ratio.high)
        )
        .expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(requests_per_s: f64) -> LoadResult {
        let mut outcome = LoadResult {
            requests_per_s,
            ..LoadResult::default()
        };
        (outcome.latency_us.p50, outcome.latency_us.p99) = (100, 200);
        outcome
    }

    #[test]
    fn comparison_prints_ratio_and_confidence_interval() {
        let of = |base: f64| (0..4).map(|step| outcome(base + f64::from(step))).collect();
        let text = compared(["a", "b"], &[of(200.0), of(100.0)]);
        assert!(text.contains("1.99 times (95 %: 1.94 to 2.03)"), "{text}");
        assert!(
            text.contains("1 times (95 %: 1 to 1, may be the same)"),
            "{text}"
        );
        let none = compared(["a", "b"], &[Vec::new(), Vec::new()]);
        assert_eq!(none, "nothing was measured\n");
    }
}
