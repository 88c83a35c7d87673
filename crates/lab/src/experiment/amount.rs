//! How much is asked for a figure that is counted: enough that it repeats, and no more, since an emulated machine does some
//! 10^8 instructions a second. Pure.

use super::bench::Job;

/// Instructions of a figure, where all requests are for the same file.
const WORK: f64 = 1.5e8;
/// Those of a warm-up.
const WARMUP_WORK: f64 = 1e8;
/// Most requests of a figure for one file.
const MOST: f64 = 6000.0;
/// Requests of a figure of a mix: all servers are asked for the same part of it.
const OF_A_MIX: u64 = 2400;
/// Runs of a pair: a short one, and one three times as long.
const PAIR: u64 = 4;

/// Pairs of a short and a long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Requests of the short run.
    pub short: u64,
    /// How many pairs: an odd number.
    pub rounds: u64,
}

/// What the amounts depend on.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    connections: u64,
    /// All requests are for the same file.
    is_of_one_file: bool,
    /// Requests of a figure, at least.
    least: u64,
    /// Requests before these.
    warmup: u64,
}

impl Wanted {
    /// For a job.
    pub fn by(job: &Job) -> Wanted {
        Wanted {
            connections: u64::from(job.connections),
            is_of_one_file: job.settings.contains_key("size"),
            least: job.requests,
            warmup: job.warmup_requests,
        }
    }

    /// Requests that tell roughly what one costs.
    pub fn trial(self) -> u64 {
        self.connections.max(20)
    }

    /// Requests before a figure, if one costs `each` instructions.
    pub fn warmup(self, each: f64) -> u64 {
        let most = match self.is_of_one_file {
            true => (WARMUP_WORK / each.max(1.0)) as u64,
            false => u64::MAX,
        };
        self.warmup.min(most).max(1)
    }

    /// What makes a figure, if a request costs `each`. Even a short run has all connections.
    pub fn amount(self, each: f64) -> Amount {
        const ROUNDS: u64 = 3;
        let requests = match self.is_of_one_file {
            true => (WORK / each.max(1.0)).min(MOST) as u64,
            false => OF_A_MIX,
        };
        let requests = requests.max(self.least);
        let short = |rounds: u64| (requests / (PAIR * rounds)).max(self.connections).max(1);
        // With many connections, short runs are long.
        let rounds = match PAIR * ROUNDS * short(ROUNDS) > 2 * requests {
            true => 1,
            false => ROUNDS,
        };
        Amount {
            short: short(rounds),
            rounds,
        }
    }
}

/// Seconds of the guest's that are counted, of at most `most_s`, at a rate.
pub fn lasting_s(rate_per_s: f64, most_s: f64) -> f64 {
    const REQUESTS: f64 = 1000.0;
    most_s.min(REQUESTS / rate_per_s.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(connections: u64, is_of_one_file: bool) -> Wanted {
        Wanted {
            connections,
            is_of_one_file,
            least: 180,
            warmup: 300,
        }
    }

    fn of(short: u64, rounds: u64) -> Amount {
        Amount { short, rounds }
    }

    #[test]
    fn one_file_is_asked_for_as_often_as_takes_the_work() {
        let wanted = wanted(16, true);
        assert_eq!(wanted.amount(50_000.0), of(250, 3));
        assert_eq!(wanted.amount(1e6), of(16, 3));
        assert_eq!((wanted.warmup(50_000.0), wanted.warmup(1e6)), (300, 100));
    }

    #[test]
    fn of_a_mix_all_servers_get_the_same() {
        for each in [20_000.0, 500_000.0] {
            assert_eq!(wanted(100, false).amount(each), of(200, 3));
            assert_eq!(wanted(100, false).warmup(each), 300);
        }
        assert_eq!(wanted(700, false).amount(50_000.0), of(700, 1));
    }

    #[test]
    fn fast_rates_are_counted_for_a_shorter_time() {
        assert_eq!(lasting_s(100.0, 0.5), 0.5);
        assert_eq!(lasting_s(4000.0, 0.5), 0.25);
    }
}
