//! The API for modules of the Lowroad web server: code that answers requests.
//!
//! A module is a state machine. The server calls [`Module::handle`] with an event. The module does all it can
//! immediately, and returns whether the response is complete or the module waits for another event. It must not block,
//! since the worker's other requests wait in the meantime.
//!
//! ```
//! use lowroad_module::{Call, CallEvent, CallStep, Module, ModuleSettings};
//!
//! struct Hello;
//!
//! impl Module for Hello {
//!     type Memory = ();
//!
//!     fn start(_: &mut ModuleSettings<'_>) -> Result<Hello, String> {
//!         Ok(Hello)
//!     }
//!
//!     fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: CallEvent) -> CallStep {
//!         call.field("Content-Type", "text/plain");
//!         call.send("Hello\n");
//!         CallStep::Done
//!     }
//! }
//!
//! let answer = lowroad_module::testing::get("/").run::<Hello>().expect("it is answered");
//! assert_eq!(answer.text(), "Hello\n");
//! ```
//!
//! The same source code can be built into the server, loaded as a shared library, or run as WebAssembly ([`export!`]).
//! The crate is independent of the server, and accesses it through the trait `CallHost`.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
pub mod builtin;
mod call;
mod host;
pub mod testing;

pub use call::{Call, ModuleSettings};
pub use host::{CallEvent, CallHost, CallStep, HostValue, MessageLevel, ResumeTicket, SendStatus};

/// Code that answers requests. Each worker has its own instance, which is never used by two threads at the same time.
pub trait Module: Sized + Send + 'static {
    /// The state of a call, kept from one event to the next; `()` for a module that always answers immediately.
    type Memory: Default + Send + 'static;

    /// Starts the module for one worker.
    ///
    /// # Errors
    /// A message for the operator: the reason that the module cannot start.
    fn start(settings: &mut ModuleSettings<'_>) -> Result<Self, String>;

    /// Processes an event. The first event of a call is `CallEvent::Request`. After `CallStep::Done`,
    /// `CallStep::Failed` or `CallEvent::Gone`, the call gets no further events, and its memory is dropped.
    fn handle(
        &mut self,
        call: &mut Call<'_>,
        memory: &mut Self::Memory,
        event: CallEvent,
    ) -> CallStep;

    /// Stops the module, because the worker ends or the module is replaced. All of its calls have ended. Not called in
    /// WebAssembly.
    fn stop(self) {}
}

/// Passes an event to a module, and stores the memory of a call that waits.
pub(crate) fn step<M: Module>(
    module: &mut M,
    host: &mut dyn CallHost,
    stored_memory: &mut Option<Box<M::Memory>>,
    event: CallEvent,
) -> CallStep {
    let mut call = Call::new(host);
    let next = match stored_memory {
        Some(memory) => module.handle(&mut call, memory, event),
        None => {
            // The memory is boxed only if the call waits, so that a module that answers immediately needs no
            // allocation.
            let mut memory = M::Memory::default();
            let next = module.handle(&mut call, &mut memory, event);
            if next == CallStep::Wait && event != CallEvent::Gone {
                *stored_memory = Some(Box::new(memory));
            }
            return next;
        }
    };
    if next != CallStep::Wait || event == CallEvent::Gone {
        *stored_memory = None;
    }
    next
}
