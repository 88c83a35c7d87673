//! A running instance: creates and starts it, and passes events to it.

use std::future::{Future, poll_fn};
use std::pin::pin;

use lowroad_module::{CallEvent, CallStep};
use wasmtime::{Instance, Store, TypedFunc, bail};

use super::code::{CompiledWasm, function};
use super::guest::GuestState;
use super::runtime::WasmRuntime;
use super::snapshot::MemorySnapshot;
use crate::module::StartContext;

type WasmHandleFn = TypedFunc<(u32, u32, i32, u32), i32>;

/// An instance that has started.
pub(super) struct ReadyInstance {
    handle: WasmHandleFn,
    /// The result of `lowroad_start`.
    state: u32,
}

impl ReadyInstance {
    /// Creates an instance in a new store, and starts it.
    pub(super) async fn new(
        code: &CompiledWasm,
        store: &mut Store<GuestState>,
        start_context: impl FnOnce() -> StartContext,
    ) -> wasmtime::Result<(ReadyInstance, Instance)> {
        let instance = code.instance(store).await?;
        let handle = function(&instance, store, &code.handle).typed(&*store)?;
        let mut state = 0;
        if let Some(export) = &code.start {
            let start = function(&instance, store, export).typed::<u32, u32>(&*store)?;
            let number = store.data().number;
            // While `start_context` is set, host functions use it instead of the call.
            store.data_mut().start_context = Some(start_context());
            state = start.call_async(&mut *store, number).await?;
            store.data_mut().start_context = None;
            if state == 0 {
                bail!("lowroad_start reported a failure; the module's log lines have the reason");
            }
        }
        Ok((ReadyInstance { handle, state }, instance))
    }

    /// Passes an event of the current call to the module.
    pub(super) async fn handle(
        &self,
        store: &mut Store<GuestState>,
        event: CallEvent,
    ) -> wasmtime::Result<CallStep> {
        let (event, detail) = event.to_numbers();
        let arguments = (self.state, store.data().number, event, detail);
        let next = self.handle.call_async(store, arguments).await?;
        Ok(CallStep::from_number(next))
    }
}

/// An instance that has started, or will start with its first event.
pub(super) struct LiveInstance {
    pub(super) store: Store<GuestState>,
    pub(super) ready: Option<ReadyInstance>,
    pub(super) snapshot: Option<MemorySnapshot>,
}

/// Polls a future while the epoch ticker runs.
pub(super) async fn with_ticker<T>(runtime: &WasmRuntime, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        // The guard is taken in each poll: while the call waits, no code runs.
        let _computing = runtime.ticker.compute();
        future.as_mut().poll(context)
    })
    .await
}
