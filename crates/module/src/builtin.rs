//! Modules that are built into the server. They need no ABI: the server calls them through a trait object.

use std::any::Any;

use crate::{step, CallEvent, CallHost, CallStep, Module, ModuleSettings};

/// A module that is built into the server.
#[derive(Clone, Copy)]
pub struct LinkedModule {
    /// The module's name in the configuration: `linked = "NAME"`.
    pub name: &'static str,
    /// Starts the module for one worker.
    pub start: StartFunction,
}

/// A function that starts a module for one worker.
pub type StartFunction = fn(&mut dyn CallHost) -> Result<Box<dyn WorkerModule>, String>;

/// The state that a module keeps for a call from one event to the next.
pub type CallData = Option<Box<dyn Any + Send>>;

/// A module that was started for one worker; the trait hides its type.
pub trait WorkerModule: Send {
    /// Passes an event to the module.
    fn handle(
        &mut self,
        host: &mut dyn CallHost,
        data: &mut CallData,
        event: CallEvent,
    ) -> CallStep;
    /// Stops the module.
    fn stop(self: Box<Self>);
}

/// Creates the module's entry for the server's list of built-in modules.
pub fn linked<M: Module>(name: &'static str) -> LinkedModule {
    LinkedModule {
        name,
        start: start::<M>,
    }
}

fn start<M: Module>(host: &mut dyn CallHost) -> Result<Box<dyn WorkerModule>, String> {
    let module = M::start(&mut ModuleSettings::new(host))?;
    Ok(Box::new(StartedModule { module }))
}

struct StartedModule<M> {
    module: M,
}

impl<M: Module> WorkerModule for StartedModule<M> {
    fn handle(
        &mut self,
        host: &mut dyn CallHost,
        data: &mut CallData,
        event: CallEvent,
    ) -> CallStep {
        let mut memory = data
            .take()
            .map(|data| data.downcast().expect("a call stays with its module"));
        let next = step(&mut self.module, host, &mut memory, event);
        *data = memory.map(|memory| memory as Box<dyn Any + Send>);
        next
    }

    fn stop(self: Box<Self>) {
        self.module.stop();
    }
}
