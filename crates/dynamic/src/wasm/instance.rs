//! An instance at work: made, started, given events. Here for the usual case, in which it is made
//! for one call and thrown away with it, memory and all; `kept` has the other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use lowroad_module::{Event, Next};
use wasmtime::{Store, TypedFunc, bail};

use super::code::{Code, function};
use super::guest::{Guest, wind};
use super::problem::failure;
use super::{Runtime, Shared};
use crate::Failure;
use crate::module::{Call, Starting};

type Handle = TypedFunc<(u32, u32, i32, u32), i32>;

/// An instance, ready for events.
pub(super) struct Ready {
    handle: Handle,
    /// What `lowroad_start` gave.
    state: u32,
}

impl Ready {
    /// Makes and starts an instance in a store that is new.
    pub(super) async fn new(
        code: &Code,
        store: &mut Store<Guest>,
        starting: impl FnOnce() -> Starting,
    ) -> wasmtime::Result<Ready> {
        let instance = code.pre.instantiate_async(&mut *store).await?;
        let memory = instance.get_module_export(&mut *store, &code.memory);
        store.data_mut().memory = memory.and_then(wasmtime::Extern::into_memory);
        let handle = function(&instance, store, &code.handle).typed(&*store)?;
        if let Some(export) = &code.initialize {
            let initialize = function(&instance, store, export).typed::<(), ()>(&*store)?;
            initialize.call_async(&mut *store, ()).await?;
        }
        let mut state = 0;
        if let Some(export) = &code.start {
            let start = function(&instance, store, export).typed::<u32, u32>(&*store)?;
            let number = store.data().number;
            store.data_mut().starting = Some(starting());
            state = start.call_async(&mut *store, number).await?;
            store.data_mut().starting = None;
            if state == 0 {
                bail!("lowroad_start said that it cannot start; the lines before this say why");
            }
        }
        Ok(Ready { handle, state })
    }

    /// Gives the current call an event.
    pub(super) async fn handle(
        &self,
        store: &mut Store<Guest>,
        event: Event,
    ) -> wasmtime::Result<Next> {
        let (event, detail) = event.to_numbers();
        let arguments = (self.state, store.data().number, event, detail);
        let next = self.handle.call_async(store, arguments).await?;
        Ok(Next::from_number(next))
    }
}

/// An instance that is made for one call.
pub struct Fresh {
    shared: Arc<Shared>,
    store: Store<Guest>,
    /// Kept, since a newer version may come meanwhile.
    code: Arc<Code>,
    ready: Option<Ready>,
}

impl Fresh {
    pub(super) fn new(shared: &Arc<Shared>, call: Call) -> Fresh {
        let own = &shared.own;
        let mut store = Guest::store(&shared.runtime, own.memory_len_max, own.compute_ms_max);
        store.data_mut().call = Some(call);
        Fresh {
            shared: shared.clone(),
            store,
            code: shared.file.code(),
            ready: None,
        }
    }

    pub(super) fn call(&mut self) -> &mut Call {
        self.store
            .data_mut()
            .call
            .as_mut()
            .expect("it has one from the beginning")
    }

    pub(super) async fn handle(&mut self, event: Event) -> Result<Next, Failure> {
        let shared = self.shared.clone();
        computing(&shared.runtime, self.step(event))
            .await
            .map_err(|error| failure(&shared.runtime.counts, &shared.identity.name, &error))
    }

    async fn step(&mut self, event: Event) -> wasmtime::Result<Next> {
        wind(&mut self.store);
        let ready = match &mut self.ready {
            Some(ready) => ready,
            none => {
                let shared = &self.shared;
                let worker = self.store.data().call.as_ref().map_or(0, Call::worker);
                let starting = || Starting::new(shared.identity.clone(), worker);
                none.insert(Ready::new(&self.code, &mut self.store, starting).await?)
            }
        };
        ready.handle(&mut self.store, event).await
    }
}

/// Has the clock tick while a future is polled.
pub(super) async fn computing<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _computing = runtime.ticker.compute();
        future.as_mut().poll(context)
    })
    .await
}
