//! The lab's workloads with Lowroad and its level, and with nginx and `lowroad attach`, on good and lossy links: each
//! request must be answered with the right bytes, and no connection may hang.
//!
//! At the start of a round a level has no responses; it learns popular ones later. The levels run at TC, because native
//! XDP on veth devices has no tailroom behind a short frame. `LOWROAD_MIX_ROUNDS` and `LOWROAD_MIX_REQUESTS` allow
//! longer runs.

mod line;
mod stall;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lowroad_lab::load::{self, LoadResult, LoadRun};
use lowroad_lab::workload;

use line::{Line, ServerBehind, Site};
use stall::Watch;

/// Default number of rounds of each test.
const ROUNDS: u64 = 1;

/// Default number of requests of a run. A round has several runs: the level may answer in the second run from responses
/// of the first.
const REQUESTS: u64 = 500;
const RUNS: u64 = 2;

/// Simultaneous clients.
const CONNECTIONS: u32 = 8;

/// A connection without input for this long hangs. A client that loses a segment six times in a row has retransmitted
/// the segment by then.
const SILENCE: Duration = Duration::from_secs(20);

/// Maximum time of a run, which normally takes a second or two.
const BOUND: Duration = Duration::from_secs(60);

/// A workload of the lab, with settings that make its folder small.
struct Mix {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const SPECWEB99: Mix = Mix {
    name: "specweb99",
    settings: &[("connections", "1"), ("dynamic", "0"), ("dirs", "3")],
};
const SPECWEB96: Mix = Mix {
    name: "specweb96",
    settings: &[("dirs", "10")],
};
const WEBBENCH: Mix = Mix {
    name: "webbench",
    settings: &[],
};

/// Loss rates of the link, in per cent of the frames of each direction.
const GOOD: f64 = 0.0;
const BAD: f64 = 2.0;

/// Runs a mix in rounds, each with its own network, server and level.
fn check(test: &str, mix: &Mix, above: ServerBehind, loss_percent: f64) {
    if line::skipped(test, above) {
        return;
    }
    let requests = setting("LOWROAD_MIX_REQUESTS", REQUESTS);
    let site = Site::of(mix.name, mix.settings);
    for round in 0..setting("LOWROAD_MIX_ROUNDS", ROUNDS) {
        // Distinct seeds for rounds and tests.
        let seed = test.bytes().map(u64::from).sum::<u64>() * 1_000_000 + round * RUNS;
        let line = Line::start(&site, above, loss_percent, seed);
        for run in 0..RUNS {
            let load = load(mix, &site, requests, seed + run);
            let mut watch = Watch::new(&line);
            let outcome = line
                .path
                .client
                .enter(|| load::run(&load, &mut |now| watch.look(now), &AtomicBool::new(false)));
            let outcome = outcome.expect("it begins");
            eprintln!(
                "{test}, round {round}.{run}: {:.1} s, longest answer {} ms, {:?}",
                outcome.duration_s,
                outcome.latency_us.max / 1000,
                line.counts(),
            );
            assert_right(&outcome, requests, &line);
        }
    }
}

/// A number from the environment, for runs longer than usual.
fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn load(mix: &Mix, site: &Site, requests: u64, seed: u64) -> LoadRun {
    let mut settings = site.settings.clone();
    settings.insert("files".to_owned(), site.folder().display().to_string());
    let address = line::server();
    let workload = workload::named(mix.name, &settings, &address.ip().to_string());
    LoadRun {
        connections: CONNECTIONS,
        duration: BOUND,
        requests: Some(requests),
        timeout: SILENCE,
        seed,
        ..LoadRun::plain(address, workload.expect("good settings"))
    }
}

fn assert_right(outcome: &LoadResult, requests: u64, line: &Line) {
    assert!(
        outcome.errors == 0 && outcome.requests == requests && outcome.unfinished == 0,
        "{} of {requests} requests done, {} unfinished: {:?} {:?}\n{}",
        outcome.requests,
        outcome.unfinished,
        outcome.errors_by_kind,
        outcome.statuses,
        line.state(),
    );
    for direction in line.path.mangler.counts() {
        assert_eq!(direction.bad_checksums, 0, "{direction:?}");
        assert_eq!(direction.oversize, 0, "{direction:?}");
    }
}

macro_rules! mixes {
    ($($test:ident: $mix:expr, $above:expr, $loss_percent:expr;)+) => {$(
        #[test]
        fn $test() {
            check(stringify!($test), &$mix, $above, $loss_percent);
        }
    )+};
}

mixes! {
    specweb99_own: SPECWEB99, ServerBehind::Own, GOOD;
    specweb99_own_with_losses: SPECWEB99, ServerBehind::Own, BAD;
    specweb99_nginx: SPECWEB99, ServerBehind::Nginx, GOOD;
    specweb99_nginx_with_losses: SPECWEB99, ServerBehind::Nginx, BAD;
    specweb96_own: SPECWEB96, ServerBehind::Own, GOOD;
    specweb96_own_with_losses: SPECWEB96, ServerBehind::Own, BAD;
    specweb96_nginx: SPECWEB96, ServerBehind::Nginx, GOOD;
    specweb96_nginx_with_losses: SPECWEB96, ServerBehind::Nginx, BAD;
    webbench_own: WEBBENCH, ServerBehind::Own, GOOD;
    webbench_own_with_losses: WEBBENCH, ServerBehind::Own, BAD;
    webbench_nginx: WEBBENCH, ServerBehind::Nginx, GOOD;
    webbench_nginx_with_losses: WEBBENCH, ServerBehind::Nginx, BAD;
}
