//! Modules: third-party code that answers requests. A module is built in, loaded as a shared library, or run as
//! WebAssembly; the trait `ModuleBackend` abstracts from these kinds.
//!
//! A call is the processing of one request by a module. `call` defines its state and `call_loop` drives it from the
//! first event to the response; every kind of module has its own file. See also `docs/modules.md`, and the crate
//! `lowroad-module`, the API for authors of modules.

pub mod builtin;
pub mod call;
pub mod call_loop;
mod call_wait;
pub mod catalog;
mod clock;
pub mod counts;
mod fetch;
pub mod identity;
pub mod library;
mod native_worker;
pub mod out_of_process;
mod parts;
mod response_draft;
mod table;
mod tickets;

use std::future::Future;

pub use call::HostedCall;
pub use call_loop::{CallLimits, ModuleHandler};
pub use catalog::{ModuleCatalog, ModuleEntry, ModuleHandle, open_native, open_separate};
pub use clock::now_ms;
pub use counts::ModuleCounters;
pub use identity::{ModuleIdentity, StartContext};
use lowroad_handler::HandlerFailure;
use lowroad_module::{CallEvent, CallStep};
pub use tickets::resume_call;

/// The code of a module; used by all workers.
pub trait ModuleBackend: Send + Sync + 'static {
    /// The module's side of one call.
    type CallInstance: Instance;

    /// Creates the instance for a call on a worker. This must not block or take long.
    ///
    /// # Errors
    /// The response if the module cannot accept the call.
    fn instance(
        &self,
        worker: usize,
        call: HostedCall,
    ) -> Result<Self::CallInstance, HandlerFailure>;
}

/// A module while it processes one call. If the instance is dropped while the module waits, the module gets
/// `CallEvent::Gone`.
pub trait Instance: Send + 'static {
    /// The call's state.
    fn call(&mut self) -> &mut HostedCall;

    /// Fast path: passes an event to the module if that is possible immediately, without a future or an allocation.
    /// `None` if it is not: the event must then be passed with `handle`.
    fn try_handle(&mut self, event: CallEvent) -> Option<Result<CallStep, HandlerFailure>> {
        let _ = event;
        None
    }

    /// Called if the route's time limit has passed while the module was processing an event or waiting for one; the
    /// instance is dropped afterwards.
    fn on_timeout(&mut self) {}

    /// Passes an event to the module. The future may be polled on a worker first, without a tokio runtime: it must not
    /// need one, nor compute for long in one poll.
    fn handle(
        &mut self,
        event: CallEvent,
    ) -> impl Future<Output = Result<CallStep, HandlerFailure>> + Send;
}
