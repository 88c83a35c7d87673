//! Modules: third-party code that answers requests. It is built in, loaded as a shared library or run as WebAssembly,
//! behind one trait, `ModuleBackend`.
//!
//! `call` is one request as a module sees it, and `call_loop` takes a call from its first event to its response. Each
//! kind of module has a separate file. Read first: `docs/modules.md`, and the crate `lowroad-module`, the authors' API.

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

/// The code of a module, callable by all workers.
pub trait ModuleBackend: Send + Sync + 'static {
    /// An instance that serves one call.
    type CallInstance: Instance;

    /// Accepts a call on the worker of this number. It must neither block nor take long.
    ///
    /// # Errors
    /// The response if the module cannot accept the call.
    fn instance(
        &self,
        worker: usize,
        call: HostedCall,
    ) -> Result<Self::CallInstance, HandlerFailure>;
}

/// A module with one call. If it is dropped while the module waits, the module gets `CallEvent::Gone`.
pub trait Instance: Send + 'static {
    /// The call.
    fn call(&mut self) -> &mut HostedCall;

    /// Passes an event to the module if that is possible at once and without a future: the fast path, which allocates
    /// nothing. `None` if it is not; the event is then still to be passed.
    fn try_handle(&mut self, event: CallEvent) -> Option<Result<CallStep, HandlerFailure>> {
        let _ = event;
        None
    }

    /// The route's time limit passed while the module handled an event or waited for one; the instance is dropped next.
    fn on_timeout(&mut self) {}

    /// Passes an event to the module. The future may first be polled on a worker, without a runtime: it must not need
    /// a runtime, nor compute for long in one poll.
    fn handle(
        &mut self,
        event: CallEvent,
    ) -> impl Future<Output = Result<CallStep, HandlerFailure>> + Send;
}
