//! The number of requests behind a counted figure: enough for reproducible figures and no more, since an emulated
//! machine executes only about 10^8 instructions a second. No I/O.

use super::bench::MeasurementJob;

/// Target number of instructions of a figure, if all requests are for one file.
const INSTRUCTIONS_OF_ONE_FILE: f64 = 5e7;
/// Maximum number of requests for one file behind a figure.
const REQUESTS_OF_ONE_FILE_MAX: f64 = 4000.0;
/// Maximum number of warm-up requests for one file.
const WARMUP_OF_ONE_FILE: u64 = 300;
/// Number of requests of a mix behind a figure. It is the same for all servers, so that all get the same part of the
/// mix.
const REQUESTS_OF_MIX: u64 = 320;
/// Maximum number of instructions of a mix; slower servers get fewer requests.
const INSTRUCTIONS_OF_MIX_MAX: f64 = 1.28e8;
/// Number of times that the counted requests of a mix are sent as warm-up, so that the server's one-time work is done.
const WARMUP_MIXES: u64 = 2;

/// Number of counted requests at an offered rate.
const REQUESTS_AT_RATE: f64 = 300.0;
/// Number of counted requests at each rate of a capacity search.
const REQUESTS_AT_SEARCHED_RATE: f64 = 600.0;
/// Version of the order in which connections are dealt to clients; increase it if that order changes.
const ORDER_VERSION: f64 = 3.0;
/// The constants that results depend on: stored results with other values are not continued.
pub const AMOUNTS: [f64; 8] = [
    INSTRUCTIONS_OF_ONE_FILE,
    REQUESTS_OF_ONE_FILE_MAX,
    REQUESTS_OF_MIX as f64,
    INSTRUCTIONS_OF_MIX_MAX,
    WARMUP_MIXES as f64,
    REQUESTS_AT_RATE,
    REQUESTS_AT_SEARCHED_RATE,
    ORDER_VERSION,
];

/// The parameters of a job that determine its number of requests.
#[derive(Clone, Copy, Debug)]
pub struct AmountInput {
    connections: u64,
    /// All requests are for one file.
    is_of_one_file: bool,
    /// Minimum number of requests of a figure.
    requests_min: u64,
    /// Minimum number of warm-up requests.
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

    /// Number of warm-up requests, if a request costs `instructions_per_request` instructions. For a mix, they include
    /// all requests of the figure.
    pub fn warmup(self, instructions_per_request: f64) -> u64 {
        let usual = match self.is_of_one_file {
            true => requests_of_file(instructions_per_request).clamp(1, WARMUP_OF_ONE_FILE),
            false => self
                .requests_min
                .max(WARMUP_MIXES * requests_of_mix(instructions_per_request)),
        };
        usual.max(self.warmup.unwrap_or(0))
    }

    /// Number of counted requests, if a request costs `instructions_per_request` instructions.
    pub fn requests(self, instructions_per_request: f64) -> u64 {
        let requests = match self.is_of_one_file {
            true => requests_of_file(instructions_per_request),
            false => requests_of_mix(instructions_per_request),
        };
        requests.max(self.requests_min)
    }

    /// Minimum number of connections to open for `requests` requests: 1.5 times the clients, so that all clients are
    /// active for a while. For a trial, one for each request.
    pub fn connections(self, requests: u64) -> u64 {
        match requests <= self.trial() {
            true => requests,
            false => self.connections + self.connections / 2,
        }
    }
}

fn requests_of_mix(instructions_per_request: f64) -> u64 {
    REQUESTS_OF_MIX.min((INSTRUCTIONS_OF_MIX_MAX / instructions_per_request.max(1.0)) as u64)
}

fn requests_of_file(instructions_per_request: f64) -> u64 {
    (INSTRUCTIONS_OF_ONE_FILE / instructions_per_request.max(1.0)).min(REQUESTS_OF_ONE_FILE_MAX)
        as u64
}

/// The duration of a run in seconds of the guest's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSeconds {
    /// Seconds before counting.
    pub before_s: f64,
    /// Seconds of counting.
    pub counted_s: f64,
}

/// The duration of a run at an offered rate, at most `limits`. A search counts more requests, because its verdict rests
/// on the few that are late or lost.
pub fn run_seconds(rate_per_s: f64, limits: RunSeconds, searches: bool) -> RunSeconds {
    const BEFORE: f64 = 100.0;
    let instructions_max = if searches {
        REQUESTS_AT_SEARCHED_RATE
    } else {
        REQUESTS_AT_RATE
    };
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
    fn requests_for_one_file_are_limited_by_instructions() {
        let wanted = wanted(16, true);
        assert_eq!(
            (wanted.requests(50_000.0), wanted.requests(1e6)),
            (1000, 180)
        );
        assert_eq!((wanted.warmup(50_000.0), wanted.warmup(1e6)), (300, 50));
    }

    #[test]
    fn requests_of_a_mix_are_equal_for_all_but_slow_servers() {
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
    fn high_rates_are_counted_for_a_shorter_time() {
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
