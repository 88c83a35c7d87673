//! The default kind of instance: it serves one call; afterwards it is discarded, or its memory is reset. The other kind
//! is in `retained_instance`.

use std::sync::Arc;

use lowroad_handler::HandlerFailure;
use lowroad_module::{CallEvent, CallStep};

use super::code::CompiledWasm;
use super::guest::reset_compute_limit;
use super::instance::{LiveInstance, ReadyInstance, with_ticker};
use super::shared::WasmContext;
use super::snapshot::MemorySnapshot;
use super::trap::failure;
use crate::module::{HostedCall, StartContext};

/// An instance that serves one call: new, or reset to its state after the start.
pub struct FreshInstance {
    shared: Arc<WasmContext>,
    /// The version that this instance runs; the file may already have a newer one.
    code: Arc<CompiledWasm>,
    /// `None` only while it is dropped.
    live: Option<LiveInstance>,
    /// Whether the call ended without a trap.
    done: bool,
}

impl FreshInstance {
    pub(super) fn new(shared: &Arc<WasmContext>, call: HostedCall) -> FreshInstance {
        // The call gets the newest version. Earlier calls continue with the version that they began with.
        let code = shared.file.code();
        let mut live = match shared.idle_instances.take(call.worker(), &code) {
            Some(idle) => idle,
            None => LiveInstance {
                store: shared.store(),
                ready: None,
                snapshot: None,
            },
        };
        live.store.data_mut().call = Some(call);
        FreshInstance {
            shared: shared.clone(),
            code,
            live: Some(live),
            done: false,
        }
    }

    fn live(&mut self) -> &mut LiveInstance {
        self.live.as_mut().expect("it is there until it is dropped")
    }

    pub(super) fn call(&mut self) -> &mut HostedCall {
        let call = &mut self.live().store.data_mut().call;
        call.as_mut().expect("it has one from the beginning")
    }

    pub(super) async fn handle(&mut self, event: CallEvent) -> Result<CallStep, HandlerFailure> {
        // Until the event has ended normally, a trap or drop must discard the instance.
        self.done = false;
        let shared = self.shared.clone();
        let next = with_ticker(&shared.runtime, self.step(event))
            .await
            .map_err(|error| failure(&shared.runtime.counts, &shared.identity.name, &error))?;
        self.done = next != CallStep::Wait;
        Ok(next)
    }

    async fn step(&mut self, event: CallEvent) -> wasmtime::Result<CallStep> {
        let (code, shared) = (self.code.clone(), self.shared.clone());
        let live = self.live();
        let store = &mut live.store;
        // Each event gets the full compute limit.
        reset_compute_limit(store);
        let ready = match &mut live.ready {
            Some(ready) => ready,
            slot => {
                let worker = store.data().call.as_ref().map_or(0, HostedCall::worker);
                let start_context = || StartContext::new(shared.identity.clone(), worker);
                let (ready, instance) = ReadyInstance::new(&code, store, start_context).await?;
                // The snapshot is taken before the first event, so that it contains no data of a request.
                if let Some(globals) = &code.globals {
                    live.snapshot = MemorySnapshot::take(store, &instance, globals);
                }
                slot.insert(ready)
            }
        };
        ready.handle(store, event).await
    }
}

impl Drop for FreshInstance {
    /// Resets an instance after a call that ended normally, for the next request of its worker. An instance that
    /// trapped, was abandoned or cannot be reset is discarded.
    fn drop(&mut self) {
        let Some(mut live) = self.live.take().filter(|_| self.done) else {
            return;
        };
        // The call is dropped before the instance becomes idle, since it holds the request's memory and permit.
        let call = live.store.data_mut().call.take();
        let worker = call.as_ref().map_or(0, HostedCall::worker);
        drop(call);
        let Some(snapshot) = &live.snapshot else {
            return;
        };
        if snapshot.restore(&mut live.store) {
            let shared = &self.shared;
            shared
                .idle_instances
                .insert(&shared.runtime, worker, &self.code, live);
        }
    }
}
