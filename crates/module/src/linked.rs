//! Modules that are linked into the server: no ABI between, a call is a virtual call.

use std::any::Any;

use crate::{step, Event, Host, Module, Next, Settings};

/// A module that is linked in.
#[derive(Clone, Copy)]
pub struct Linked {
    /// What the configuration calls it: `linked = "NAME"`.
    pub name: &'static str,
    /// Starts it for one worker.
    pub start: Start,
}

/// Starts a module for one worker.
pub type Start = fn(&mut dyn Host) -> Result<Box<dyn Worker>, String>;

/// What a worker keeps with a call for a module.
pub type Kept = Option<Box<dyn Any + Send>>;

/// A module started for one worker, whatever its type.
pub trait Worker: Send {
    /// Gives it an event.
    fn handle(&mut self, host: &mut dyn Host, kept: &mut Kept, event: Event) -> Next;
    /// Ends it.
    fn stop(self: Box<Self>);
}

/// The entry for a module in the server's list.
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
