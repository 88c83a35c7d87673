//! The search for a server's capacity: the highest offered rate that it sustains.
//!
//! A rate is sustained if at least 95 % of the requests are answered, fewer than 1 % fail, and 99 % are answered within
//! the time that the experiment allows; without the time limit a slowly growing queue would pass. The rate doubles
//! until it is not sustained; then bisection narrows the range. If an approximate capacity is known, the search starts
//! there. Independent of servers: a probe is a function.

use super::bench::MeasurementResult;
use super::measure::errors_share;
use super::schema::SearchConfig;

/// Minimum share of answered requests.
const ANSWERED_MIN: f64 = 0.95;
/// Requests that may be outstanding at the end. Without this allowance, a single one would decide if there are few.
const OUTSTANDING_MAX: u64 = 2;
/// The class of dynamic requests in paper `003`'s mix.
const DYNAMIC: &str = "dynamic";
/// Errors must stay below this share.
const ERRORS_BELOW: f64 = 0.01;
/// Width of the range at which the search ends, as a share of the capacity.
const RESOLUTION: f64 = 0.04;
/// Slightly more than `RESOLUTION`, so that rounding errors do not continue the search.
const GAP: f64 = RESOLUTION * 1.001;
/// Factor of the rate while only one end of the range is known.
const COARSE_FACTOR: f64 = 2.0;

/// Whether a rate was sustained: 95 % of all requests were answered, and also 95 % of the dynamic ones if static ones
/// are offered too. The class of each request is random, so the share is of the requests that were sent, not of the
/// number that the rate implies.
#[must_use]
pub fn sustained(latency_max_ms: u64, measured: &MeasurementResult) -> bool {
    let outcome = &measured.outcome;
    let answered = |requests: u64, errors, unfinished: u64| {
        // A few requests are outstanding at the end of any run, and are no sign of overload.
        let offered = requests + errors + unfinished.saturating_sub(OUTSTANDING_MAX);
        requests as f64 >= ANSWERED_MIN * offered as f64
    };
    let dynamic = outcome.classes.iter().find(|class| class.name == DYNAMIC);
    answered(outcome.requests, outcome.errors, outcome.unfinished)
        && dynamic.is_none_or(|class| answered(class.requests, class.errors, class.unfinished))
        && errors_share(outcome) < ERRORS_BELOW
        && outcome.latency_us.p99 <= latency_max_ms * 1000
}

/// Searches the highest sustained rate between `start` and `max`, beginning at `hint` if there is an earlier result;
/// `probe` measures at a rate. Returns the measurement at that rate with its `capacity_per_s`. If not even a 64th of
/// `start` is sustained, the capacity is 0 and the measurement is that of the lowest rate tried.
///
/// # Errors
/// Those of `probe`.
pub fn search<E>(
    limits: &SearchConfig,
    hint: Option<f64>,
    probe: &mut dyn FnMut(f64) -> Result<MeasurementResult, E>,
) -> Result<MeasurementResult, E> {
    let SearchConfig {
        start,
        max,
        latency_max_ms,
    } = *limits;
    // A server that does not sustain this rate is considered broken: its capacity is reported as 0.
    let rate_min = start / 64.0;
    let mut sustained_at: Option<(f64, MeasurementResult)> = None;
    let mut overloaded_at = None;
    // An earlier result outside of the limits is ignored.
    let hint = hint.filter(|rate| (rate_min..=max).contains(rate));
    let mut rate = hint.unwrap_or(start);
    // If the capacity is unchanged, a second probe just above the earlier result ends the search.
    let mut factor = hint.map_or(COARSE_FACTOR, |_| 1.0 / (1.0 - RESOLUTION));
    loop {
        let measured = probe(rate)?;
        // The caller discards interrupted measurements.
        if measured.outcome.interrupted {
            return Ok(measured);
        }
        match sustained(latency_max_ms, &measured) {
            true => sustained_at = Some((rate, measured)),
            false if sustained_at.is_none() && rate <= rate_min => {
                return Ok(at_capacity(0.0, measured));
            }
            false => overloaded_at = Some(rate),
        }
        // The rate never falls below the minimum; if the minimum is not sustained, the search ends.
        match next(
            sustained_at.as_ref().map(|(rate, _)| *rate),
            overloaded_at,
            max,
            factor,
        ) {
            Some(rate_next) => rate = rate_next.max(rate_min),
            None => break,
        }
        // Only the first step is small: the capacity may have changed a lot.
        factor = COARSE_FACTOR;
    }
    let (rate, measured) = sustained_at.expect("a search ends with a good rate or returned before");
    Ok(at_capacity(rate, measured))
}

/// The next rate to try; `None` if the range is narrow enough.
fn next(
    sustained_rate: Option<f64>,
    overloaded_rate: Option<f64>,
    max: f64,
    factor: f64,
) -> Option<f64> {
    match (sustained_rate, overloaded_rate) {
        (Some(sustained_rate), Some(overloaded_rate)) => (overloaded_rate - sustained_rate
            > GAP * overloaded_rate)
            .then_some((sustained_rate + overloaded_rate) / 2.0),
        (Some(sustained_rate), None) => {
            (sustained_rate < max).then_some((sustained_rate * factor).min(max))
        }
        (None, Some(overloaded_rate)) => Some(overloaded_rate / factor),
        (None, None) => None,
    }
}

fn at_capacity(rate: f64, mut measured: MeasurementResult) -> MeasurementResult {
    measured.capacity_per_s = Some(rate);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::outcome::OperationClass;

    /// A server that answers up to `capacity` and fails beyond it.
    fn server(
        capacity: f64,
        probes: &mut Vec<f64>,
        rate: f64,
    ) -> Result<MeasurementResult, String> {
        probes.push(rate);
        let mut measured = MeasurementResult::default();
        let answered = rate.min(capacity);
        measured.outcome.requests_per_s = answered;
        measured.outcome.requests = (answered * 2.0) as u64;
        measured.outcome.errors = ((rate - answered) * 2.0) as u64;
        Ok(measured)
    }

    fn limits(start: f64, max: f64) -> SearchConfig {
        SearchConfig {
            start,
            max,
            latency_max_ms: 500,
        }
    }

    #[test]
    fn growing_latency_is_not_sustained() {
        let mut measured = server(1e6, &mut Vec::new(), 100.0).expect("no failure");
        measured.outcome.duration_s = 2.0;
        assert!(sustained(500, &measured));
        measured.outcome.latency_us.p99 = 500_001;
        assert!(!sustained(500, &measured));
    }

    #[test]
    fn dynamic_share_is_judged_by_drawn_requests() {
        let class = |name: &str, requests, unfinished| OperationClass {
            name: name.to_owned(),
            requests,
            unfinished,
            ..OperationClass::default()
        };
        let mut measured = MeasurementResult::default();
        measured.outcome.requests = 1000;
        // The rate implies a tenth; a twentieth was drawn.
        measured.outcome.classes = vec![class("static", 950, 0), class(DYNAMIC, 50, 4)];
        assert!(sustained(500, &measured));
        measured.outcome.classes = vec![class("static", 950, 0), class(DYNAMIC, 50, 5)];
        assert!(!sustained(500, &measured));
        measured.outcome.classes.clear();
        measured.outcome.unfinished = 50;
        assert!(sustained(500, &measured));
        measured.outcome.unfinished = 60;
        assert!(!sustained(500, &measured));
    }

    fn capacity(capacity: f64, start: f64, max: f64) -> (f64, usize) {
        after(None, capacity, start, max)
    }

    fn after(before: Option<f64>, capacity: f64, start: f64, max: f64) -> (f64, usize) {
        let mut probes = Vec::new();
        let found = search(&limits(start, max), before, &mut |rate| {
            server(capacity, &mut probes, rate)
        });
        (
            found
                .expect("probes don't fail")
                .capacity_per_s
                .expect("found"),
            probes.len(),
        )
    }

    #[test]
    fn finds_capacities_above_and_below_the_start() {
        for real in [150.0, 999.0, 1000.0, 6000.0, 48_000.0] {
            let (found, probes) = capacity(real, 1000.0, 1e6);
            assert!(
                found <= real * 1.01 && found > real * 0.94,
                "{found} of {real}"
            );
            assert!(probes < 16, "{probes} probes");
        }
    }

    #[test]
    fn search_starts_near_the_earlier_result() {
        let (found, probes) = capacity(6000.0, 1000.0, 1e6);
        assert!(probes > 5);
        let again = |real| after(Some(found), real, 1000.0, 1e6);
        assert_eq!(again(6000.0), (found, 2));
        for real in [2000.0, 5800.0, 6300.0, 30_000.0] {
            let (other, probes) = again(real);
            assert!(
                other <= real * 1.01 && other > real * 0.94,
                "{other} of {real}"
            );
            assert!(probes < 12, "{probes} probes");
        }
        assert_eq!(
            after(Some(0.0), 0.0, 1000.0, 5000.0),
            capacity(0.0, 1000.0, 5000.0)
        );
        assert_eq!(after(Some(5000.0), 1e9, 1000.0, 5000.0), (5000.0, 1));
    }

    #[test]
    fn search_stops_at_maximum_rate_and_at_zero_capacity() {
        assert_eq!(capacity(1e9, 1000.0, 5000.0).0, 5000.0);
        assert_eq!(capacity(0.0, 1000.0, 5000.0).0, 0.0);
    }

    #[test]
    fn failing_probe_ends_the_search() {
        let found = search(&limits(1.0, 2.0), None, &mut |_| Err("no"));
        assert_eq!(found, Err("no"));
    }
}
