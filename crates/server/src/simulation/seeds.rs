//! The seed of a simulated world: `LOWROAD_SEED`, or 0. One test runs others with many seeds, each in a new process,
//! because tests can't have arguments.

use std::process::Command;

/// The number of seeds in addition to 0, with which all tests run anyway.
const SEEDS: u64 = 12;

/// Returns the seed, and a number of workers derived from it.
pub fn world_seed() -> (u64, usize) {
    let seed = number("LOWROAD_SEED").unwrap_or(0);
    (seed, 1 + (seed % 2) as usize)
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn rfc_9111_tests_pass_with_many_seeds() {
    // The child processes of this test have a seed, and must not start more processes.
    if number("LOWROAD_SEED").is_some() {
        return;
    }
    for seed in 1..=number("LOWROAD_SEEDS").unwrap_or(SEEDS) {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["simulation::rfc9111", "--test-threads=2"]);
        command.env("LOWROAD_SEED", seed.to_string());
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "LOWROAD_SEED={seed}\n{said}");
    }
}
