//! Modules that are built into the server.

use std::sync::Arc;

use lowroad_handler::Failure;
use lowroad_module::linked::{Linked, Worker};
use lowroad_module::{Event, Next};

use super::Code;
use super::call::Call;
use super::identity::{Identity, Starting};
use super::native::{Calling, Worker as Native, WorkerState};

/// A built-in module, started for every worker.
pub struct LinkedCode {
    workers: Box<[Arc<Native<Started>>]>,
}

impl LinkedCode {
    /// Starts the module for this many workers.
    ///
    /// # Errors
    /// The module's reason why it cannot start.
    pub fn start(
        linked: &Linked,
        identity: &Arc<Identity>,
        workers: usize,
    ) -> Result<LinkedCode, String> {
        let start = |worker| {
            let module = (linked.start)(&mut Starting::new(identity.clone(), worker))?;
            Ok(Arc::new(Native::new(Started(Some(module)))))
        };
        let workers = (0..workers).map(start).collect::<Result<_, String>>();
        let workers = workers
            .map_err(|problem| format!("module {} does not start: {problem}", identity.name))?;
        Ok(LinkedCode { workers })
    }
}

impl Code for LinkedCode {
    type Instance = Calling<Started>;

    fn instance(&self, worker: usize, call: Call) -> Result<Calling<Started>, Failure> {
        let worker = &self.workers[worker % self.workers.len()];
        Ok(Calling::new(worker.clone(), call))
    }
}

/// A module started for one worker; `None` only during the drop.
pub struct Started(Option<Box<dyn Worker>>);

impl WorkerState for Started {
    fn handle(&mut self, call: &mut Call, event: Event) -> Next {
        let Some(module) = &mut self.0 else {
            return Next::Failed;
        };
        // Taken out for the call, since the module gets the call and its memory as two exclusive references.
        let mut kept = call.kept.take();
        let next = module.handle(call, &mut kept, event);
        call.kept = kept;
        next
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            module.stop();
        }
    }
}
