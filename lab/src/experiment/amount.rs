//! How much is asked for a figure that is counted: enough that it repeats, and no more, since an emulated machine does some
//! 10^8 instructions a second. Pure.

use super::bench::MeasurementJob;

/// Instructions of a figure, where all requests are for the same file.
const WORK: f64 = 5e7;
/// Most requests of a figure for one file.
const MOST: f64 = 4000.0;
/// Most requests before it.
const WARMUP_OF_ONE_FILE: u64 = 300;
/// Requests of a figure of a mix: all servers are asked for the same part of it,
const OF_A_MIX: u64 = 320;
/// but those for whom that would be more instructions than these.
const MIX_WORK: f64 = 1.28e8;
/// A mix is asked for so many times before it is counted: by then a server has done what it does only once.
const MIXES_BEFORE: u64 = 2;

/// Requests that are counted at a rate,
const OF_A_RATE: f64 = 300.0;
/// and at each that a search tries.
const OF_A_SEARCH: f64 = 600.0;
/// Of the order in which connections are dealt: another order is another number.
const ORDER_VERSION: f64 = 3.0;
/// What results depend on: those of other amounts are not gone on with.
pub const AMOUNTS: [f64; 8] = [
    WORK,
    MOST,
    OF_A_MIX as f64,
    MIX_WORK,
    MIXES_BEFORE as f64,
    OF_A_RATE,
    OF_A_SEARCH,
    ORDER_VERSION,
];

/// What the amounts depend on.
#[derive(Clone, Copy, Debug)]
pub struct AmountInput {
    connections: u64,
    /// All requests are for the same file.
    is_of_one_file: bool,
    /// Requests of a figure, at least.
    least: u64,
    /// Requests before these, at least.
    warmup: Option<u64>,
}

impl AmountInput {
    /// For a job.
    pub fn by(job: &MeasurementJob) -> AmountInput {
        AmountInput {
            connections: u64::from(job.connections),
            is_of_one_file: job.settings.contains_key("size"),
            least: job.requests,
            warmup: job.warmup_requests,
        }
    }

    /// Requests that tell roughly what one costs.
    pub fn trial(self) -> u64 {
        20
    }

    /// Requests before a figure, if one costs `each` instructions. Of a mix, all that will be asked for are among them.
    pub fn warmup(self, each: f64) -> u64 {
        let usual = match self.is_of_one_file {
            true => as_many(each).clamp(1, WARMUP_OF_ONE_FILE),
            false => self.least.max(MIXES_BEFORE * of_a_mix(each)),
        };
        usual.max(self.warmup.unwrap_or(0))
    }

    /// Requests of a figure, if one costs `each`.
    pub fn requests(self, each: f64) -> u64 {
        let requests = match self.is_of_one_file {
            true => as_many(each),
            false => of_a_mix(each),
        };
        requests.max(self.least)
    }

    /// Connections for so many requests, at least: while a third of them is answered all clients are there.
    pub fn connections(self, requests: u64) -> u64 {
        match requests <= self.trial() {
            true => requests,
            false => self.connections + self.connections / 2,
        }
    }
}

fn of_a_mix(each: f64) -> u64 {
    OF_A_MIX.min((MIX_WORK / each.max(1.0)) as u64)
}

fn as_many(each: f64) -> u64 {
    (WORK / each.max(1.0)).min(MOST) as u64
}

/// Seconds of the guest's before counting and of counting, of at most so many, at a rate. A search asks for more: a few
/// requests decide.
pub fn lasting_s(rate_per_s: f64, (before_s, counted_s): (f64, f64), searches: bool) -> (f64, f64) {
    const BEFORE: f64 = 100.0;
    let counted = if searches { OF_A_SEARCH } else { OF_A_RATE };
    let as_long = |requests: f64| requests / rate_per_s.max(1.0);
    (
        before_s.min(as_long(BEFORE)),
        counted_s.min(as_long(counted)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(connections: u64, is_of_one_file: bool) -> AmountInput {
        AmountInput {
            connections,
            is_of_one_file,
            least: 180,
            warmup: None,
        }
    }

    #[test]
    fn one_file_is_asked_for_as_often_as_takes_the_work() {
        let wanted = wanted(16, true);
        assert_eq!(
            (wanted.requests(50_000.0), wanted.requests(1e6)),
            (1000, 180)
        );
        assert_eq!((wanted.warmup(50_000.0), wanted.warmup(1e6)), (300, 50));
    }

    #[test]
    fn of_a_mix_all_servers_get_the_same() {
        for each in [20_000.0, 250_000.0] {
            assert_eq!(wanted(100, false).requests(each), 320);
            assert_eq!(wanted(100, false).warmup(each), 640);
        }
        let starts_processes = wanted(100, false);
        assert_eq!(starts_processes.requests(640_000.0), 200);
        assert_eq!(starts_processes.warmup(640_000.0), 400);
        assert_eq!(starts_processes.warmup(6e6), 180);
        let more = AmountInput {
            warmup: Some(8000),
            ..starts_processes
        };
        assert_eq!(more.warmup(6e6), 8000, "that is what its file asks for");
    }

    #[test]
    fn fast_rates_are_counted_for_a_shorter_time() {
        assert_eq!(lasting_s(100.0, (0.1, 0.5), false), (0.1, 0.5));
        assert_eq!(lasting_s(4000.0, (0.1, 0.5), false), (0.025, 0.075));
        assert_eq!(lasting_s(4000.0, (0.1, 0.5), true), (0.025, 0.15));
    }
}
