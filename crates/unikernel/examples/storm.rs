//! Runs the storms of `tests/attack.rs` against a server in this process: `storm [FIRST SEED] [SEEDS] [FRAMES OF
//! EACH]`. Build it with `debug-assertions` and `overflow-checks`; otherwise few errors are found.

#[path = "../tests/storm/mod.rs"]
mod storm;

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok());
    let mut next = |default| numbers.next().unwrap_or(default);
    let (first, seeds, count) = (next(1), next(10), next(1_000_000));
    for seed in first..first + seeds {
        let totals = storm::storms(seed, 1, count);
        println!("seed {seed}: {totals:?}");
    }
}
