//! Common code of tests of tasks: workers without clients, which take turns until a condition holds, and cases by
//! seeds.

use std::ops::Range;
use std::sync::Arc;

use super::{SharedWorld, SimDriver};
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::worker_handle::WorkerHandle;

/// Maximum number of turns without any event before a case counts as a busy loop.
const VAIN_MAX: usize = 40;
const TURNS_MAX: usize = 1_000_000;

/// Workers with tasks and their upstream connections, without clients.
pub struct SimWorkers {
    drivers: Vec<SimDriver>,
    locals: Arc<[WorkerHandle]>,
    turn: usize,
}

impl SimWorkers {
    /// Creates this many workers in the world.
    pub fn new(world: &SharedWorld, count: usize) -> SimWorkers {
        let drivers: Vec<SimDriver> = (0..count).map(|_| world.driver()).collect();
        let locals = drivers.iter().map(|driver| driver.local().clone());
        SimWorkers {
            locals: locals.collect(),
            drivers,
            turn: 0,
        }
    }

    /// Their handles.
    pub fn locals(&self) -> &Arc<[WorkerHandle]> {
        &self.locals
    }

    /// One wait of the next worker, and a run of its tasks. Returns whether there were events.
    pub fn turn(&mut self) -> bool {
        self.turn = (self.turn + 1) % self.drivers.len();
        let (driver, local) = (&mut self.drivers[self.turn], &self.locals[self.turn]);
        let mut events = Vec::new();
        // Without a timeout: a lost wake-up makes the world panic.
        driver.wait(None, &mut events);
        let has_events = !events.is_empty();
        for event in events {
            if let DriverEvent::Outgoing(socket_event) = event {
                local.sources.handle_event(socket_event);
            }
        }
        local.run();
        has_events
    }

    /// Checks that the ended tasks have released all resources.
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
/// There is no end, or no progress while no time passes.
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
        assert!(vain <= VAIN_MAX, "a busy loop");
    }
    panic!("no end at {} ms", world.now_ms());
}

/// Runs a case for each seed; prints the seed of a failure. `LOWROAD_SEED` runs only that one, `LOWROAD_SEEDS` that
/// many from the first on.
///
/// # Panics
/// As the case does, or the environment variable is no number.
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
