//! `lowroad attach` in front of real servers on virtual links. With any clients, links and attackers each response is
//! right, and detaching removes the level completely.
//!
//! Each test uses separate namespaces. `LOWROAD_WIRE_REQUESTS` and `LOWROAD_WIRE_CONNECTIONS` select long runs.

mod abuse;
mod addresses;
mod attached;
mod attacks;
mod cables;
mod clients;
mod comeback;
mod comeback_races;
mod devices;
mod ends;
mod ends_waited;
mod handover;
mod learning;
mod levels;
mod loading;
mod lossy;
mod odd_requests;
mod own;
mod privacy;
mod raw;
mod resting;
mod segments;
mod sums;
mod time_wait;
mod troubles;
mod wire;
mod worker;
mod worker_bytes;
mod worker_policy;
mod worker_transparent;
mod wrapped;

/// A number from the environment, to configure longer runs.
fn setting(name: &str, default: usize) -> usize {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Whether the test is skipped because this system can't run it; prints the reason.
fn skipped(test: &str, programs: &[&str]) -> bool {
    let missing = programs
        .iter()
        .find(|program| !lowroad_testkit::net::is_installed(program));
    let reason = lowroad_testkit::net::missing_requirement()
        .or_else(|| missing.map(|program| format!("there is no `{program}`")));
    if let Some(reason) = &reason {
        lowroad_testkit::skip(test, reason);
    }
    reason.is_some()
}
