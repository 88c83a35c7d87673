//! Modules: code of others that answers requests, linked in, loaded as a library or run as
//! WebAssembly, all behind one [`Code`].
//!
//! `call` is one request as a module sees it, `run` takes a call from its first event to its
//! response, and each kind of module has a file of its own. To read first: `docs/modules.md`, and the
//! crate `lowroad-module`, which is what authors see.

pub mod call;
pub mod catalog;
mod clock;
pub mod counts;
mod fetch;
pub mod identity;
pub mod library;
pub mod linked;
mod native;
mod outgoing;
mod parts;
pub mod run;
pub mod separate;
mod table;
mod tickets;
mod wait;

use std::future::Future;

pub use call::Call;
pub use catalog::{Catalog, Opened, Ready, open_native, open_separate};
pub use clock::now_ms;
pub use counts::Counts;
pub use identity::{Identity, Starting};
use lowroad_handler::Failure;
use lowroad_module::{Event, Next};
pub use run::{Limits, Running};
pub use tickets::go_on;

/// The code of a module, ready to be called by all workers.
pub trait Code: Send + Sync + 'static {
    /// What serves one call.
    type Instance: Instance;

    /// Takes a call on, on the worker with this number: it must neither wait nor take long.
    ///
    /// # Errors
    /// The answer where the module cannot take it.
    fn instance(&self, worker: usize, call: Call) -> Result<Self::Instance, Failure>;
}

/// A module with one call. When it is dropped before the module said that it is done, the module is
/// told so, if it wants to know.
pub trait Instance: Send + 'static {
    /// The call.
    fn call(&mut self) -> &mut Call;

    /// Gives the module an event if that is possible now and without a future: the short way, which
    /// costs no allocation. `None` if not; the event is still to be given then.
    fn now(&mut self, event: Event) -> Option<Result<Next, Failure>> {
        let _ = event;
        None
    }

    /// The route's time passed while the module had an event, or waited for one; it is dropped next.
    fn late(&mut self) {}

    /// Gives the module an event. May be polled on a worker at first, without a runtime: it must
    /// not need one, nor use much time at a time.
    fn handle(&mut self, event: Event) -> impl Future<Output = Result<Next, Failure>> + Send;
}
