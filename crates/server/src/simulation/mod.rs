//! Simulation of the accelerator: the server's workers, decisions, store and tasks on [`lowroad_engine_sim`]'s driver,
//! with a scripted origin and clients. A seed determines network, completions and time.
//!
//! The scripts also run over sockets (`tests/accelerate`): `front` has the same names with other implementations.
//! `LOWROAD_SEED` sets the seed of all tests; a test below runs them with many seeds.

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
    /// The world of this thread's test.
    static WORLD: RefCell<Option<SharedWorld>> = const { RefCell::new(None) };
    /// The action of another worker at an interleaving point.
    static BETWEEN: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// The current time of this thread's world, if it has one.
pub fn now_ms() -> Option<u64> {
    WORLD.with_borrow(|world| world.as_ref().map(SharedWorld::now_ms))
}

/// An interleaving point: here the current worker can be interrupted, as a thread can anywhere, while another one runs.
pub fn interrupt() {
    // Taken out while it runs: the interrupting worker is not interrupted itself.
    if let Some(between) = BETWEEN.take() {
        between();
        BETWEEN.set(Some(between));
    }
}
