//! The API for modules of the Lowroad web server: code that answers requests.
//!
//! A module is a state machine. The server calls [`Module::handle`] with an [`Event`]; the module
//! does what it can do at once, and says with [`Next`] whether it is done or waits for more. It
//! must not block: other requests of its worker wait meanwhile.
//!
//! ```
//! use lowroad_module::{Call, Event, Module, Next, Settings};
//!
//! struct Hello;
//!
//! impl Module for Hello {
//!     type Memory = ();
//!
//!     fn start(_: &mut Settings<'_>) -> Result<Hello, String> {
//!         Ok(Hello)
//!     }
//!
//!     fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: Event) -> Next {
//!         call.field("Content-Type", "text/plain");
//!         call.send("Hello\n");
//!         Next::Done
//!     }
//! }
//!
//! let answer = lowroad_module::testing::get("/").run::<Hello>().expect("it is answered");
//! assert_eq!(answer.text(), "Hello\n");
//! ```
//!
//! The same module is linked into the server ([`linked`]), loaded as a shared library, or run as
//! WebAssembly ([`export!`]). Nothing here knows the server; it is reached through [`Host`].

#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod call;
mod host;
pub mod linked;
pub mod testing;

pub use call::{Call, Settings};
pub use host::{Event, Host, Level, Next, Sent, Ticket, What};

/// Code that answers requests. There is one of it for each worker; it is never used by two threads
/// at a time.
pub trait Module: Sized + Send + 'static {
    /// What is kept with a call from one event to the next; `()` for a module that answers at once.
    type Memory: Default + Send + 'static;

    /// Starts for one worker.
    ///
    /// # Errors
    /// Why it cannot start: a text for the operator.
    fn start(settings: &mut Settings<'_>) -> Result<Self, String>;

    /// Does what an event asks for. The first is [`Event::Request`]. After [`Next::Done`],
    /// [`Next::Failed`] and [`Event::Gone`] there is no other, and the memory is dropped.
    fn handle(&mut self, call: &mut Call<'_>, memory: &mut Self::Memory, event: Event) -> Next;

    /// Ends: the worker stops, or the module is replaced. No call is left. Not for WebAssembly.
    fn stop(self) {}
}

/// Gives an event to a module, and keeps the memory of a call that goes on.
pub(crate) fn step<M: Module>(
    module: &mut M,
    host: &mut dyn Host,
    kept: &mut Option<Box<M::Memory>>,
    event: Event,
) -> Next {
    let mut call = Call::new(host);
    let next = match kept {
        Some(memory) => module.handle(&mut call, memory, event),
        None => {
            let mut memory = M::Memory::default();
            let next = module.handle(&mut call, &mut memory, event);
            if next == Next::Wait && event != Event::Gone {
                *kept = Some(Box::new(memory));
            }
            return next;
        }
    };
    if next != Next::Wait || event == Event::Gone {
        *kept = None;
    }
    next
}
