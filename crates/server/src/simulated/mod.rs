//! The accelerator in the simulator: the workers, decisions, store and tasks of the server on [`lowroad_engine_sim`]'s
//! driver, with an origin and clients that are the test's. Network, completions and time follow from a seed.
//!
//! The scripts are those that run over sockets, too (`tests/accelerate`): here `front` has the same names for other things.
//! `LOWROAD_SEED` says which seed all of them have; a test below runs them with many.

mod accelerator;
mod cache_counters;
mod costs;
mod front;
mod histories;
mod interrupted;
#[path = "../../tests/accelerate/rfc9111/mod.rs"]
mod rfc9111;
mod seeds;
mod shared_ranges;

use std::cell::RefCell;
use std::rc::Rc;

use lowroad_engine_sim::Shared;

thread_local! {
    /// The world of this thread's test.
    static WORLD: RefCell<Option<Shared>> = const { RefCell::new(None) };
    /// What another worker may do while the one whose turn it is stands at such a point.
    static BETWEEN: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// What time it is in this thread's world, if it is in one.
pub fn now_ms() -> Option<u64> {
    WORLD.with_borrow(|world| world.as_ref().map(Shared::now_ms))
}

/// The worker whose turn it is may be interrupted here, as a thread is anywhere, and another one goes on.
pub fn interrupt() {
    // Who comes between is not interrupted.
    if let Some(between) = BETWEEN.take() {
        between();
        BETWEEN.set(Some(between));
    }
}
