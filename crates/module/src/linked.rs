//! Modules that are built into the server. They need no ABI: a call is a virtual call.

use std::any::Any;

use crate::{step, Event, Host, Module, Next, Settings};

/// A module that is built into the server.
#[derive(Clone, Copy)]
pub struct Linked {
    /// Its name in the configuration: `linked = "NAME"`.
    pub name: &'static str,
    /// Starts it for one worker.
    pub start: Start,
}

/// Starts a module for one worker.
pub type Start = fn(&mut dyn Host) -> Result<Box<dyn Worker>, String>;

/// The memory that a worker keeps with a call for its module.
pub type Kept = Option<Box<dyn Any + Send>>;

/// A module started for one worker, independent of its type.
pub trait Worker: Send {
    /// Passes an event to the module.
    fn handle(&mut self, host: &mut dyn Host, kept: &mut Kept, event: Event) -> Next;
    /// Stops the module.
    fn stop(self: Box<Self>);
}

/// Makes the module's entry for the server's list.
pub fn linked<M: Module>(name: &'static str) -> Linked {
    Linked {
        name,
        start: start::<M>,
    }
}

fn start<M: Module>(host: &mut dyn Host) -> Result<Box<dyn Worker>, String> {
    let module = M::start(&mut Settings::new(host))?;
    Ok(Box::new(Started { module }))
}

struct Started<M> {
    module: M,
}

impl<M: Module> Worker for Started<M> {
    fn handle(&mut self, host: &mut dyn Host, kept: &mut Kept, event: Event) -> Next {
        let mut memory = kept
            .take()
            .map(|kept| kept.downcast().expect("a call stays with its module"));
        let next = step(&mut self.module, host, &mut memory, event);
        *kept = memory.map(|memory| memory as Box<dyn Any + Send>);
        next
    }

    fn stop(self: Box<Self>) {
        self.module.stop();
    }
}
