//! An instance at work: made, started, given events. Here for the usual case, in which it is made
//! for one call and thrown away with it, memory and all; `kept` has the other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use lowroad_handler::Failure;
use lowroad_module::{Event, Next};
use wasmtime::{Instance, Store, TypedFunc, bail};

use super::code::{Code, function};
use super::guest::{Guest, wind};
use super::problem::failure;
use super::snapshot::Snapshot;
use super::{Runtime, Shared};
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
    ) -> wasmtime::Result<(Ready, Instance)> {
        let instance = code.instance(store).await?;
        let handle = function(&instance, store, &code.handle).typed(&*store)?;
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
        Ok((Ready { handle, state }, instance))
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

/// An instance that one call has for itself: new, or as if it were.
pub struct Fresh {
    shared: Arc<Shared>,
    /// Kept, since a newer version may come meanwhile.
    code: Arc<Code>,
    /// There until it is dropped.
    live: Option<Live>,
    /// Its last event ended well.
    done: bool,
}

/// An instance, ready or to be made.
pub(super) struct Live {
    store: Store<Guest>,
    ready: Option<Ready>,
    snapshot: Option<Snapshot>,
}

impl Fresh {
    pub(super) fn new(shared: &Arc<Shared>, call: Call) -> Fresh {
        let code = shared.file.code();
        let mut live = match shared.resting.take(call.worker(), &code) {
            Some(rested) => rested,
            None => Live {
                store: shared.store(),
                ready: None,
                snapshot: None,
            },
        };
        live.store.data_mut().call = Some(call);
        Fresh {
            shared: shared.clone(),
            code,
            live: Some(live),
            done: false,
        }
    }

    fn live(&mut self) -> &mut Live {
        self.live.as_mut().expect("it is there until it is dropped")
    }

    pub(super) fn call(&mut self) -> &mut Call {
        let call = &mut self.live().store.data_mut().call;
        call.as_mut().expect("it has one from the beginning")
    }

    pub(super) async fn handle(&mut self, event: Event) -> Result<Next, Failure> {
        self.done = false;
        let shared = self.shared.clone();
        let next = computing(&shared.runtime, self.step(event))
            .await
            .map_err(|error| failure(&shared.runtime.counts, &shared.identity.name, &error))?;
        self.done = next != Next::Wait;
        Ok(next)
    }

    async fn step(&mut self, event: Event) -> wasmtime::Result<Next> {
        let (code, shared) = (self.code.clone(), self.shared.clone());
        let live = self.live();
        let store = &mut live.store;
        wind(store);
        let ready = match &mut live.ready {
            Some(ready) => ready,
            none => {
                let worker = store.data().call.as_ref().map_or(0, Call::worker);
                let starting = || Starting::new(shared.identity.clone(), worker);
                let (ready, instance) = Ready::new(&code, store, starting).await?;
                if let Some(globals) = &code.globals {
                    live.snapshot = Snapshot::take(store, &instance, globals);
                }
                none.insert(ready)
            }
        };
        ready.handle(store, event).await
    }
}

impl Drop for Fresh {
    /// An instance that ended well is put back to how it started, for the next request of its worker.
    /// One that trapped, was given up or cannot be put back ends.
    fn drop(&mut self) {
        let Some(mut live) = self.live.take().filter(|_| self.done) else {
            return;
        };
        let call = live.store.data_mut().call.take();
        let worker = call.as_ref().map_or(0, Call::worker);
        drop(call);
        let Some(snapshot) = &live.snapshot else {
            return;
        };
        if snapshot.restore(&mut live.store) {
            let shared = &self.shared;
            shared
                .resting
                .put(&shared.runtime, worker, &self.code, live);
        }
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
