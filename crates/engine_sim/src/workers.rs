//! What tests of tasks share: workers without clients, which take turns until something is so, and cases by their seeds.
//! Knows nothing of what the tasks are for.

use std::ops::Range;
use std::sync::Arc;

use super::{SharedWorld, SimDriver};
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::worker_handle::WorkerHandle;

/// How often a case may be asked in vain before it is a busy loop.
const VAIN_MAX: usize = 40;
const TURNS_MAX: usize = 1_000_000;

/// Workers that have tasks and their connections to elsewhere, and no clients.
pub struct SimWorkers {
    drivers: Vec<SimDriver>,
    locals: Arc<[WorkerHandle]>,
    turn: usize,
}

impl SimWorkers {
    /// So many in this world.
    pub fn new(world: &SharedWorld, count: usize) -> SimWorkers {
        let drivers: Vec<SimDriver> = (0..count).map(|_| world.driver()).collect();
        let locals = drivers.iter().map(|driver| driver.local().clone());
        SimWorkers {
            locals: locals.collect(),
            drivers,
            turn: 0,
        }
    }

    /// What they lend.
    pub fn locals(&self) -> &Arc<[WorkerHandle]> {
        &self.locals
    }

    /// One wait of the worker whose turn it is, and what its tasks do then. Whether anything came.
    pub fn turn(&mut self) -> bool {
        self.turn = (self.turn + 1) % self.drivers.len();
        let (driver, local) = (&mut self.drivers[self.turn], &self.locals[self.turn]);
        let mut events = Vec::new();
        driver.wait(None, &mut events);
        let came = !events.is_empty();
        for event in events {
            if let DriverEvent::Outgoing(news) = event {
                local.sources.happened(news);
            }
        }
        local.run();
        came
    }

    /// Whoever is done has left nothing behind.
    ///
    /// # Panics
    /// Something is left.
    pub fn check_nothing_is_left(&self) {
        for local in self.locals.iter() {
            assert_eq!(local.tasks.count(), 0, "tasks");
            assert!(!local.tasks.is_held(), "a worker that can't end");
            assert_eq!(local.sources.count(), 0, "sockets' places");
            assert_eq!(local.timers.count(), 0, "timers");
        }
    }
}

/// Takes turns in a case until it is `done`; `turn` says whether anything happened.
///
/// # Panics
/// There is no end, or nothing happens and no time passes.
pub fn turn_until<C>(
    world: &SharedWorld,
    case: &mut C,
    turn: impl Fn(&mut C) -> bool,
    done: impl Fn(&C) -> bool,
) {
    let mut vain = 0;
    for _ in 0..TURNS_MAX {
        if done(case) {
            return;
        }
        let before_ms = world.now_ms();
        let did = turn(case);
        vain = match did || world.now_ms() > before_ms {
            true => 0,
            false => vain + 1,
        };
        assert!(vain <= VAIN_MAX, "a busy loop");
    }
    panic!("no end at {} ms", world.now_ms());
}

/// Runs a case for each seed; names the one that fails. `LOWROAD_SEED` has one run, `LOWROAD_SEEDS` so many from the first
/// on.
///
/// # Panics
/// As the case does, or the environment has no number.
pub fn for_each_seed(seeds: Range<u64>, run: impl Fn(u64)) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let seeds = match (number("LOWROAD_SEED"), number("LOWROAD_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => seeds.start..seeds.start + count,
        (None, None) => seeds,
    };
    for seed in seeds {
        let name = SeedReport(seed);
        run(seed);
        std::mem::forget(name);
    }
}

/// Names the seed when its case panics.
struct SeedReport(u64);

impl Drop for SeedReport {
    fn drop(&mut self) {
        eprintln!("the seed is {0}: LOWROAD_SEED={0}", self.0);
    }
}
