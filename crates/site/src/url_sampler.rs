//! Samples the requests of a worker for its table of frequent URLs.
//!
//! The first [`EXACT_PER_SECOND`] requests of a second are recorded, and of further ones one in [`SAMPLE_INTERVAL`] on
//! average, with the weight of the skipped ones. The distance between samples is random: with a fixed one, a page that
//! always loads the same number of files would always show the same file.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, TryLockError};

use lowroad_engine::Exchange;
use lowroad_http::request::Request;

use crate::access::RequestOutcome;
use crate::request_metrics::ResponseSource;
use crate::url_table::{SOFTIRQ_LEVEL, UrlParts, UrlTable};

/// The average distance between samples. A sample costs some 800 instructions if its URL replaces another.
const SAMPLE_INTERVAL: u32 = 32;
/// The number of requests of a second that are recorded without sampling, so that the URLs of a quiet server appear.
const EXACT_PER_SECOND: u32 = 16;

/// The table of a worker's frequent URLs. The worker locks it for a sample, and only if it is free; a scrape locks it
/// for a copy.
pub type SharedUrlTable = Arc<Mutex<UrlTable>>;

/// Chooses the requests that are recorded.
pub struct UrlSampler {
    /// The number of requests until the next sample, at least 1.
    countdown: u32,
    plan: SamplePlan,
    table: SharedUrlTable,
}

/// The distance and the weight of the next sample.
struct SamplePlan {
    /// The number of requests that the next sample represents.
    weight: u32,
    /// The second of the latest sample.
    second: u64,
    /// The number of requests of this second that are still recorded without sampling.
    exact: u32,
    /// The state of the generator of distances, never 0.
    random: u64,
}

impl UrlSampler {
    /// Creates a sampler with an empty table.
    pub fn new(now_ms: u64) -> UrlSampler {
        let seed = foldhash::fast::RandomState::default().hash_one(now_ms);
        UrlSampler {
            countdown: 1,
            plan: SamplePlan::new(seed),
            table: Arc::new(Mutex::new(UrlTable::new(now_ms))),
        }
    }

    /// The table, for scrapes.
    pub fn table(&self) -> SharedUrlTable {
        self.table.clone()
    }

    /// Records a request if it is a sample.
    #[inline]
    pub fn record(&mut self, request: &Request<'_>, exchange: &Exchange, outcome: RequestOutcome) {
        self.countdown -= 1;
        if self.countdown == 0 {
            self.sample(request, exchange, outcome);
        }
    }

    #[inline(never)]
    fn sample(&mut self, request: &Request<'_>, exchange: &Exchange, outcome: RequestOutcome) {
        let mut table = match self.table.try_lock() {
            Ok(table) => table,
            Err(TryLockError::Poisoned(table)) => table.into_inner(),
            // A scrape copies the table. The next request becomes the sample instead.
            Err(TryLockError::WouldBlock) => {
                self.countdown = 1;
                return;
            }
        };
        let (weight, now_ms) = (self.plan.weight.into(), exchange.now_ms);
        match UrlParts::from_request(request, exchange) {
            Some(url) => {
                let level = SOFTIRQ_LEVEL + 1 + ResponseSource::from(outcome).level_index();
                table.record_sample(&url, level, weight, now_ms);
            }
            None => table.record_others(weight, now_ms),
        }
        self.countdown = self.plan.next_distance(now_ms);
    }
}

impl SamplePlan {
    fn new(seed: u64) -> SamplePlan {
        SamplePlan {
            weight: 1,
            second: 0,
            exact: 0,
            // From 0, xorshift would only produce 0.
            random: seed | 1,
        }
    }

    /// Chooses the next sample; returns the number of requests until it.
    fn next_distance(&mut self, now_ms: u64) -> u32 {
        let second = now_ms / 1000;
        if second != self.second {
            (self.second, self.exact) = (second, EXACT_PER_SECOND);
        }
        if self.exact > 0 {
            self.exact -= 1;
            self.weight = 1;
            return 1;
        }
        self.weight = SAMPLE_INTERVAL;
        // Xorshift (Marsaglia 2003). The mean of 1 to 2n - 1 is n.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1 + (self.random % u64::from(2 * SAMPLE_INTERVAL - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Sends `count` requests for URLs 0 to 31 in turn during a second; returns the weight of each URL.
    fn sample_in_turn(count: usize) -> [u64; 32] {
        let mut plan = SamplePlan::new(7);
        let (mut countdown, mut weights) = (1, [0; 32]);
        for number in 0..count {
            countdown -= 1;
            if countdown == 0 {
                weights[number % 32] += u64::from(plan.weight);
                countdown = plan.next_distance(5_000);
            }
        }
        weights
    }

    #[test]
    fn few_requests_are_recorded_exactly() {
        let weights = sample_in_turn(EXACT_PER_SECOND as usize);
        assert!(weights[..16].iter().all(|it| *it == 1), "{weights:?}");
    }

    /// Sends bursts of requests for ever new URLs beside a few frequent ones, with quiet seconds between them, and
    /// compares the estimates with the real counts at every step.
    #[test]
    fn error_bounds_the_overestimate_during_and_after_bursts() {
        let mut broken = 0;
        for seed in 1..=40 {
            let mut plan = SamplePlan::new(seed);
            let mut random = SamplePlan::new(seed << 32 | 7);
            let mut table = UrlTable::new(0);
            let (mut counts, mut countdown) = (HashMap::new(), 1);
            for second in 0..12u64 {
                let requests = [1500, 40, 3, 0][second as usize % 4];
                for number in 0..requests {
                    let url = match random.next_distance(0) % 4 {
                        0 => format!("/{second}/{number}"),
                        kind => format!("/frequent/{kind}"),
                    };
                    let now_ms = second * 1000 + number * 1000 / requests;
                    *counts.entry(url.clone()).or_insert(0.0) += (now_ms as f64 / HALF_LIFE).exp2();
                    countdown -= 1;
                    if countdown == 0 {
                        table.record_sample(&url_parts(&url), 1, plan.weight.into(), now_ms);
                        countdown = plan.next_distance(now_ms);
                    }
                }
                let now_ms = second * 1000 + 999;
                let snapshot = table.snapshot(now_ms);
                // One request at this moment has this rate.
                let unit = rate_of_one(now_ms);
                for estimate in &snapshot.urls {
                    let decayed = counts[&estimate.target] / (now_ms as f64 / HALF_LIFE).exp2();
                    let rate: f64 = estimate.rates.iter().sum();
                    broken += u32::from(rate - estimate.error > decayed * unit * (1.0 + 1e-9));
                }
            }
        }
        assert!(broken <= 2, "{broken} estimates beyond their bound");
    }

    const HALF_LIFE: f64 = crate::url_table::HALF_LIFE_MS as f64;

    fn url_parts(path: &str) -> UrlParts<'_> {
        UrlParts {
            scope: lowroad_metrics::MetricScope::NO_SITE,
            is_https: false,
            host: b"h",
            path: path.as_bytes(),
            query: None,
        }
    }

    /// The rate that a table shows for one request at `now_ms`.
    fn rate_of_one(now_ms: u64) -> f64 {
        let mut table = UrlTable::new(0);
        table.record(&url_parts("/"), 1, 1, now_ms);
        table.snapshot(now_ms).total_rate
    }

    #[test]
    fn weights_are_right_for_requests_in_a_fixed_order() {
        let weights = sample_in_turn(3_200_000);
        for weight in weights {
            assert!((90_000..110_000).contains(&weight), "{weights:?}");
        }
    }
}
