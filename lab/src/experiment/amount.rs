//! The number of requests behind a counted figure: enough for reproducible figures, and no more, since an emulated
//! machine executes only about 10^8 instructions a second. No I/O.

use super::bench::MeasurementJob;

/// Instructions of a figure, if all requests are for one file.
const WORK: f64 = 5e7;
/// Maximum number of requests of such a figure.
const MOST: f64 = 4000.0;
/// Maximum number of requests before it.
const WARMUP_OF_ONE_FILE: u64 = 300;
/// Requests of a figure of a mix: equal for all servers, so that all get the same part of it.
const OF_A_MIX: u64 = 320;
/// Maximum number of instructions of a mix; slower servers get fewer requests.
const MIX_WORK: f64 = 1.28e8;
/// A mix runs this many times before it is counted: by then a server has done its one-time work.
const MIXES_BEFORE: u64 = 2;

/// Counted requests at a rate.
const OF_A_RATE: f64 = 300.0;
/// Counted requests at each rate of a search.
const OF_A_SEARCH: f64 = 600.0;
/// Version of the order in which connections are dealt, to be increased with it.
const ORDER_VERSION: f64 = 3.0;
/// The constants that results depend on: stored results with other values are not continued.
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

/// The inputs of the amounts.
#[derive(Clone, Copy, Debug)]
pub struct AmountInput {
    connections: u64,
    /// All requests are for one file.
    is_of_one_file: bool,
    /// Minimum number of requests of a figure.
    requests_min: u64,
    /// Minimum number of requests before these.
    warmup: Option<u64>,
}

impl AmountInput {
    /// The inputs of a job.
    pub fn for_job(job: &MeasurementJob) -> AmountInput {
        AmountInput {
            connections: u64::from(job.connections),
            is_of_one_file: job.settings.contains_key("size"),
            requests_min: job.requests,
            warmup: job.warmup_requests,
        }
    }

    /// Number of requests for a rough estimate of the cost.
    pub fn trial(self) -> u64 {
        20
    }

    /// Requests before a figure, if one costs `instructions_per_request` instructions. For a mix, they include all requests of the figure.
    pub fn warmup(self, instructions_per_request: f64) -> u64 {
        let usual = match self.is_of_one_file {
            true => requests_of_file(instructions_per_request).clamp(1, WARMUP_OF_ONE_FILE),
            false => self
                .requests_min
                .max(MIXES_BEFORE * requests_of_mix(instructions_per_request)),
        };
        usual.max(self.warmup.unwrap_or(0))
    }

    /// Requests of a figure, if one costs `instructions_per_request` instructions.
    pub fn requests(self, instructions_per_request: f64) -> u64 {
        let requests = match self.is_of_one_file {
            true => requests_of_file(instructions_per_request),
            false => requests_of_mix(instructions_per_request),
        };
        requests.max(self.requests_min)
    }

    /// Minimum number of connections for `requests` requests: all clients are active while a third of them is answered.
    pub fn connections(self, requests: u64) -> u64 {
        match requests <= self.trial() {
            true => requests,
            false => self.connections + self.connections / 2,
        }
    }
}

fn requests_of_mix(instructions_per_request: f64) -> u64 {
    OF_A_MIX.min((MIX_WORK / instructions_per_request.max(1.0)) as u64)
}

fn requests_of_file(instructions_per_request: f64) -> u64 {
    (WORK / instructions_per_request.max(1.0)).min(MOST) as u64
}

/// The duration of a run in seconds of the guest's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSeconds {
    /// Before counting.
    pub before_s: f64,
    /// Of counting.
    pub counted_s: f64,
}

/// The duration of a run at a rate, at most `limits`. A search counts more requests, since few of
/// them decide.
pub fn run_seconds(rate_per_s: f64, limits: RunSeconds, searches: bool) -> RunSeconds {
    const BEFORE: f64 = 100.0;
    let instructions_max = if searches { OF_A_SEARCH } else { OF_A_RATE };
    let as_long = |requests: f64| requests / rate_per_s.max(1.0);
    RunSeconds {
        before_s: limits.before_s.min(as_long(BEFORE)),
        counted_s: limits.counted_s.min(as_long(instructions_max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(connections: u64, is_of_one_file: bool) -> AmountInput {
        AmountInput {
            connections,
            is_of_one_file,
            requests_min: 180,
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
        let seconds = |before_s, counted_s| RunSeconds {
            before_s,
            counted_s,
        };
        let most = seconds(0.1, 0.5);
        assert_eq!(run_seconds(100.0, most, false), most);
        assert_eq!(run_seconds(4000.0, most, false), seconds(0.025, 0.075));
        assert_eq!(run_seconds(4000.0, most, true), seconds(0.025, 0.15));
    }
}
