//! Instances that are kept from one request to the next: one per worker. The worker's calls share the instance; it
//! processes one event at a time. If it traps, all of its calls fail, and the next request gets a new instance. A newer
//! version of the code gets a new instance, too; the old instance lives as long as its calls. Abandoned calls are
//! reported to the instance, since otherwise it would never free their memory.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};

use lowroad_handler::HandlerFailure;
use lowroad_http::status::StatusCode;
use lowroad_module::{CallEvent, CallStep, MessageLevel};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use wasmtime::Store;

use super::code::CompiledWasm;
use super::guest::{GuestState, reset_compute_limit};
use super::instance::{ReadyInstance, with_ticker};
use super::shared::WasmContext;
use super::trap::failure;
use crate::module::{HostedCall, StartContext};

/// The retained instances of all workers.
pub(super) struct RetainedInstances(Box<[Lock<Option<Arc<InstanceSlot>>>]>);

/// The slot for the instance of one version of the code.
struct InstanceSlot {
    code: Arc<CompiledWasm>,
    live: Mutex<SlotState>,
    /// Abandoned calls that have not been reported to the instance.
    abandoned: Lock<Vec<AbandonedCall>>,
    has_abandoned: AtomicBool,
}

/// A call that was abandoned while the module waited.
struct AbandonedCall {
    generation: u64,
    number: u32,
    call: HostedCall,
}

/// The contents of a slot: an instance, or none before the first request, while the instance computes, and after a
/// trap.
#[derive(Default)]
struct SlotState {
    live: Option<InstanceState>,
    /// The number of the current instance in this slot; incremented for each new instance.
    generation: u64,
    /// The number of the last call.
    number: u32,
}

struct InstanceState {
    store: Store<GuestState>,
    ready: ReadyInstance,
}

impl InstanceState {
    /// Passes an event of the call with this number. The call is in the store while the event is processed.
    async fn handle(
        &mut self,
        number: u32,
        call: &mut Option<HostedCall>,
        event: CallEvent,
    ) -> wasmtime::Result<CallStep> {
        // Each event gets the full compute limit.
        reset_compute_limit(&mut self.store);
        let guest = self.store.data_mut();
        guest.number = number;
        mem::swap(&mut guest.call, call);
        let next = self.ready.handle(&mut self.store, event).await;
        mem::swap(&mut self.store.data_mut().call, call);
        next
    }
}

impl InstanceSlot {
    fn new(code: Arc<CompiledWasm>) -> InstanceSlot {
        InstanceSlot {
            code,
            live: Mutex::default(),
            abandoned: Lock::default(),
            has_abandoned: AtomicBool::new(false),
        }
    }

    fn lock_abandoned(&self) -> MutexGuard<'_, Vec<AbandonedCall>> {
        self.abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports all abandoned calls to the instance.
    async fn report_abandoned(&self, shared: &WasmContext, life: &mut SlotState) {
        if !self.has_abandoned.swap(false, SeqCst) {
            // In the usual case, the flag avoids taking the lock.
            return;
        }
        let calls = mem::take(&mut *self.lock_abandoned());
        for abandoned_call in calls {
            // The call's instance no longer exists, and neither does the call's memory.
            if abandoned_call.generation != life.generation {
                continue;
            }
            // The instance is taken out while it computes: after a trap or if the future is dropped, the instance must
            // not be used again.
            let Some(live) = life.live.take() else {
                return;
            };
            match with_ticker(&shared.runtime, abandoned_call.report_to(live)).await {
                Ok(live) => life.live = Some(live),
                Err(error) => {
                    let report = failure(&shared.runtime.counts, &shared.identity.name, &error);
                    shared.identity.log(MessageLevel::Error, &report.detail);
                }
            }
        }
    }
}

impl AbandonedCall {
    async fn report_to(self, mut live: InstanceState) -> wasmtime::Result<InstanceState> {
        let mut call = Some(self.call);
        live.handle(self.number, &mut call, CallEvent::Gone).await?;
        Ok(live)
    }
}

impl RetainedInstances {
    pub(super) fn new(workers: usize) -> RetainedInstances {
        RetainedInstances((0..workers.max(1)).map(|_| Lock::default()).collect())
    }

    /// Creates a call that uses the worker's instance.
    pub(super) fn call(
        &self,
        shared: &Arc<WasmContext>,
        worker: usize,
        call: HostedCall,
    ) -> RetainedCall {
        let code = shared.file.code();
        let slot = &self.0[worker % self.0.len()];
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let home = match &*slot {
            Some(home) if Arc::ptr_eq(&home.code, &code) => home.clone(),
            // A new version of the code gets a new slot. The old instance lives as long as the calls that refer to it.
            _ => slot.insert(Arc::new(InstanceSlot::new(code))).clone(),
        };
        RetainedCall {
            shared: shared.clone(),
            home,
            call: Some(call),
            instance_key: None,
            is_waiting: false,
        }
    }
}

/// A call that uses a retained instance.
pub struct RetainedCall {
    shared: Arc<WasmContext>,
    home: Arc<InstanceSlot>,
    /// `None` while the instance processes an event of the call.
    call: Option<HostedCall>,
    /// The generation of the call's instance, and the call's number in that instance.
    instance_key: Option<(u64, u32)>,
    /// Whether the module waits, so that it must be notified when the call ends.
    is_waiting: bool,
}

impl RetainedCall {
    pub(super) fn call(&mut self) -> &mut HostedCall {
        self.call.as_mut().expect("between two events it is here")
    }

    pub(super) async fn handle(&mut self, event: CallEvent) -> Result<CallStep, HandlerFailure> {
        let home = self.home.clone();
        // Events are processed one at a time: the instance has one stack and one current call.
        let mut life = home.live.lock().await;
        let shared = self.shared.clone();
        // Abandoned calls are reported before the event, so that their memory is available to it.
        home.report_abandoned(&shared, &mut life).await;
        self.is_waiting = false;
        let live = self.take(&mut life)?;
        // If this future is dropped, the instance is dropped with it, since it has processed the event only partially.
        let (live, next) = with_ticker(&shared.runtime, self.step(live, event))
            .await
            .map_err(|error| failure(&shared.runtime.counts, &shared.identity.name, &error))?;
        life.live = Some(live);
        self.is_waiting = next == CallStep::Wait;
        Ok(next)
    }

    /// Takes the instance, if it is still the instance that the call began with.
    fn take(&mut self, life: &mut SlotState) -> Result<Option<InstanceState>, HandlerFailure> {
        // If the instance is lost, its calls must not continue in a new instance, which does not know them.
        if life.live.is_none() {
            life.generation += 1;
        }
        let generation = life.generation;
        match self.instance_key {
            Some((began_generation, _)) if began_generation != generation => {
                Err(HandlerFailure::new(
                    StatusCode::INTERNAL_ERROR,
                    format!(
                        "module {}: the request's instance trapped in another request",
                        self.shared.identity.name
                    ),
                ))
            }
            Some(_) => Ok(life.live.take()),
            None => {
                // The number is never 0, which a module would take for the null pointer.
                life.number = life.number.wrapping_add(1).max(1);
                self.instance_key = Some((generation, life.number));
                Ok(life.live.take())
            }
        }
    }

    async fn step(
        &mut self,
        live: Option<InstanceState>,
        event: CallEvent,
    ) -> wasmtime::Result<(InstanceState, CallStep)> {
        let mut live = match live {
            Some(live) => live,
            None => self.begin().await?,
        };
        let number = self.instance_key.map_or(1, |(_, number)| number);
        let next = live.handle(number, &mut self.call, event).await?;
        Ok((live, next))
    }

    async fn begin(&mut self) -> wasmtime::Result<InstanceState> {
        let mut store = self.shared.store();
        let worker = self.call().worker();
        let start_context = || StartContext::new(self.shared.identity.clone(), worker);
        let (ready, _) = ReadyInstance::new(&self.home.code, &mut store, start_context).await?;
        Ok(InstanceState { store, ready })
    }
}

/// Abandons a waiting call. If there is a runtime, the call is reported to the instance immediately, otherwise before
/// the instance's next event.
impl Drop for RetainedCall {
    fn drop(&mut self) {
        // A call that has ended, or was dropped while an event was processed, has no memory in the instance.
        if !self.is_waiting {
            return;
        }
        let Some((call, (generation, number))) = self.call.take().zip(self.instance_key) else {
            return;
        };
        let home = self.home.clone();
        home.lock_abandoned().push(AbandonedCall {
            generation,
            number,
            call,
        });
        // The flag is set after the push, so that an event that sees the flag finds the call.
        home.has_abandoned.store(true, SeqCst);
        if let Ok(runtime) = Handle::try_current() {
            let shared = self.shared.clone();
            runtime.spawn(async move {
                let mut life = home.live.lock().await;
                home.report_abandoned(&shared, &mut life).await;
            });
        }
    }
}
