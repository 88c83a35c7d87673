//! Simulation of the accelerator: the server's workers, request decisions, store and tasks run on
//! [`lowroad_engine_sim`]'s driver, with a scripted origin and simulated clients. A seed determines network faults, the
//! order of completions, and time.
//!
//! The tests of `rfc9111` also run over sockets (`tests/accelerate`); there the module `front` has the same names with
//! other implementations. `LOWROAD_SEED` sets the seed of all tests; a test in `seeds` runs them with many seeds.

mod accelerator;
mod cache_counters;
mod costs;
mod front;
mod histories;
mod interruptions;
#[path = "../../tests/accelerate/rfc9111/mod.rs"]
mod rfc9111;
mod seeds;
mod shared_ranges;

use std::cell::RefCell;
use std::rc::Rc;

use lowroad_engine_sim::SharedWorld;

thread_local! {
    /// The simulated world of the current thread's test.
    static WORLD: RefCell<Option<SharedWorld>> = const { RefCell::new(None) };
    /// The action that runs at an interleaving point, on behalf of another worker.
    static BETWEEN: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// The current time of this thread's simulated world, if there is one.
pub fn now_ms() -> Option<u64> {
    WORLD.with_borrow(|world| world.as_ref().map(SharedWorld::now_ms))
}

/// An interleaving point: the current worker may be interrupted here, as a thread may be anywhere, and another worker
/// runs.
pub fn interrupt() {
    // The action is taken out while it runs, so that the interrupting worker is not interrupted itself.
    if let Some(between) = BETWEEN.take() {
        between();
        BETWEEN.set(Some(between));
    }
}
