//! Common code for tests of tasks: workers without clients, which run in turn until a condition holds, and test cases
//! by seed.

use std::ops::Range;
use std::sync::Arc;

use super::{SharedWorld, SimDriver};
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::worker_handle::WorkerHandle;

/// Maximum number of turns without progress and without passing time; more count as a busy loop.
const TURNS_WITHOUT_PROGRESS_MAX: usize = 40;
const TURNS_MAX: usize = 1_000_000;

/// Workers that only run tasks, with upstream connections but without clients.
pub struct SimWorkers {
    drivers: Vec<SimDriver>,
    locals: Arc<[WorkerHandle]>,
    turn: usize,
}

impl SimWorkers {
    /// Creates this many workers in the world.
    pub fn new(world: &SharedWorld, count: usize) -> SimWorkers {
        let drivers: Vec<SimDriver> = (0..count).map(|_| world.driver()).collect();
        let locals = drivers.iter().map(|driver| driver.worker_handle().clone());
        SimWorkers {
            locals: locals.collect(),
            drivers,
            turn: 0,
        }
    }

    /// The handles of the workers.
    pub fn locals(&self) -> &Arc<[WorkerHandle]> {
        &self.locals
    }

    /// Lets the next worker wait and run its tasks. Returns whether there were events.
    pub fn turn(&mut self) -> bool {
        self.turn = (self.turn + 1) % self.drivers.len();
        let (driver, local) = (&mut self.drivers[self.turn], &self.locals[self.turn]);
        let mut events = Vec::new();
        // The wait has no timeout, so that the world panics after a lost wake-up.
        driver.wait(None, &mut events);
        let has_events = !events.is_empty();
        for event in events {
            if let DriverEvent::UpstreamReady(socket_event) = event {
                local.sources.handle_event(socket_event);
            }
        }
        local.run();
        has_events
    }

    /// Checks that tasks have released all resources when they ended.
    ///
    /// # Panics
    /// A resource was not released.
    pub fn check_all_released(&self) {
        for local in self.locals.iter() {
            assert_eq!(local.tasks.count(), 0, "tasks");
            assert!(!local.tasks.has_holds(), "a worker that can't end");
            assert_eq!(local.sources.count(), 0, "sockets' places");
            assert_eq!(local.timers.count(), 0, "timers");
        }
    }
}

/// Runs turns of a case until it is `done`; `run_turn` returns whether there was progress.
///
/// # Panics
/// The case does not end, or makes no progress while no time passes.
pub fn turn_until<C>(
    world: &SharedWorld,
    case: &mut C,
    run_turn: impl Fn(&mut C) -> bool,
    done: impl Fn(&C) -> bool,
) {
    let mut vain = 0;
    for _ in 0..TURNS_MAX {
        if done(case) {
            return;
        }
        let before_ms = world.now_ms();
        let did = run_turn(case);
        vain = match did || world.now_ms() > before_ms {
            true => 0,
            false => vain + 1,
        };
        assert!(vain <= TURNS_WITHOUT_PROGRESS_MAX, "a busy loop");
    }
    panic!("no end at {} ms", world.now_ms());
}

/// Runs a case for each seed, and prints the seed of a failure. `LOWROAD_SEED` selects one seed, `LOWROAD_SEEDS` the
/// number of seeds.
///
/// # Panics
/// The case panics, or an environment variable is not a number.
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
        // The case has succeeded, so its seed is not printed.
        std::mem::forget(name);
    }
}

/// Prints the seed when its case panics.
struct SeedReport(u64);

impl Drop for SeedReport {
    fn drop(&mut self) {
        eprintln!("the seed is {0}: LOWROAD_SEED={0}", self.0);
    }
}
