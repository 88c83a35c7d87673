//! Modules that are built into the server.

use std::sync::Arc;

use lowroad_handler::HandlerFailure;
use lowroad_module::builtin::{LinkedModule, WorkerModule};
use lowroad_module::{CallEvent, CallStep};

use super::ModuleBackend;
use super::call::HostedCall;
use super::identity::{ModuleIdentity, StartContext};
use super::native_worker::{NativeCall, NativeWorker as Native, WorkerState};

/// A built-in module, started once per worker.
pub struct LinkedCode {
    workers: Box<[Arc<Native<LinkedInstance>>]>,
}

impl LinkedCode {
    /// Starts the module for this number of workers.
    ///
    /// # Errors
    /// The reason, given by the module, that it cannot start.
    pub fn start(
        linked: &LinkedModule,
        identity: &Arc<ModuleIdentity>,
        workers: usize,
    ) -> Result<LinkedCode, String> {
        let start = |worker| {
            let module = (linked.start)(&mut StartContext::new(identity.clone(), worker))?;
            Ok(Arc::new(Native::new(LinkedInstance(Some(module)))))
        };
        let workers = (0..workers).map(start).collect::<Result<_, String>>();
        let workers = workers
            .map_err(|problem| format!("module {} does not start: {problem}", identity.name))?;
        Ok(LinkedCode { workers })
    }
}

impl ModuleBackend for LinkedCode {
    type CallInstance = NativeCall<LinkedInstance>;

    fn instance(
        &self,
        worker: usize,
        call: HostedCall,
    ) -> Result<NativeCall<LinkedInstance>, HandlerFailure> {
        let worker = &self.workers[worker % self.workers.len()];
        Ok(NativeCall::new(worker.clone(), call))
    }
}

/// The module as started for one worker; `None` only while it is dropped.
pub struct LinkedInstance(Option<Box<dyn WorkerModule>>);

impl WorkerState for LinkedInstance {
    fn handle(&mut self, call: &mut HostedCall, event: CallEvent) -> CallStep {
        let Some(module) = &mut self.0 else {
            return CallStep::Failed;
        };
        let mut module_data = call.module_data.take();
        let next = module.handle(call, &mut module_data, event);
        call.module_data = module_data;
        next
    }
}

impl Drop for LinkedInstance {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            module.stop();
        }
    }
}
