//! Instances that are kept from one request to the next: one for each worker. Calls that wait share
//! it with others, one at a time; if it traps, all calls that are with it fail, and the next
//! request gets a new one. A newer version of the code begins with a new one, too, and the one before
//! it lives as long as its calls.

use std::mem;
use std::sync::{Arc, Mutex as Lock, PoisonError};

use lowroad_http::status::Status;
use lowroad_module::{Event, Next};
use tokio::sync::Mutex;
use wasmtime::Store;

use super::Shared;
use super::code::Code;
use super::guest::{Guest, wind};
use super::instance::{Ready, computing};
use super::problem::failure;
use crate::Failure;
use crate::module::{Call, Starting};

/// The places of all workers.
pub(super) struct Keeper(Box<[Lock<Option<Arc<Place>>>]>);

/// Where one version of the code has its instance.
struct Place {
    code: Arc<Code>,
    live: Mutex<Life>,
}

/// An instance, or none: before the first request, while it computes, and after a trap.
#[derive(Default)]
struct Life {
    live: Option<Live>,
    /// Counts the instances that were here.
    generation: u64,
    /// Counts the calls.
    number: u32,
}

struct Live {
    store: Store<Guest>,
    ready: Ready,
}

impl Keeper {
    pub(super) fn new(workers: usize) -> Keeper {
        Keeper((0..workers.max(1)).map(|_| Lock::default()).collect())
    }

    /// A call for the worker's instance.
    pub(super) fn call(&self, shared: &Arc<Shared>, worker: usize, call: Call) -> Kept {
        let code = shared.file.code();
        let slot = &self.0[worker % self.0.len()];
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match &*slot {
            Some(place) if Arc::ptr_eq(&place.code, &code) => place.clone(),
            _ => {
                let live = Mutex::default();
                slot.insert(Arc::new(Place { code, live })).clone()
            }
        };
        Kept {
            shared: shared.clone(),
            place,
            call: Some(call),
            began: None,
        }
    }
}

/// A call with a kept instance.
pub struct Kept {
    shared: Arc<Shared>,
    place: Arc<Place>,
    /// Taken while the instance has it.
    call: Option<Call>,
    /// The instance that it began with, and its number there.
    began: Option<(u64, u32)>,
}

impl Kept {
    pub(super) fn call(&mut self) -> &mut Call {
        self.call.as_mut().expect("between two events it is here")
    }

    pub(super) async fn handle(&mut self, event: Event) -> Result<Next, Failure> {
        let place = self.place.clone();
        let mut life = place.live.lock().await;
        let live = self.take(&mut life)?;
        let shared = self.shared.clone();
        // Given up in between, it is gone, and what it did half with it.
        let (live, next) = computing(&shared.runtime, self.step(live, event))
            .await
            .map_err(|error| failure(&shared.runtime.counts, &shared.identity.name, &error))?;
        life.live = Some(live);
        Ok(next)
    }

    /// The instance, if it is still the one that the call began with.
    fn take(&mut self, life: &mut Life) -> Result<Option<Live>, Failure> {
        if life.live.is_none() {
            life.generation += 1;
        }
        let generation = life.generation;
        match self.began {
            Some((began, _)) if began != generation => Err(Failure::new(
                Status::INTERNAL_ERROR,
                format!(
                    "module {}: the instance with which it waited trapped for another request",
                    self.shared.identity.name
                ),
            )),
            Some(_) => Ok(life.live.take()),
            None => {
                life.number = life.number.wrapping_add(1).max(1);
                self.began = Some((generation, life.number));
                Ok(life.live.take())
            }
        }
    }

    async fn step(&mut self, live: Option<Live>, event: Event) -> wasmtime::Result<(Live, Next)> {
        let mut live = match live {
            Some(live) => live,
            None => self.begin().await?,
        };
        wind(&mut live.store);
        let guest = live.store.data_mut();
        guest.number = self.began.map_or(1, |(_, number)| number);
        mem::swap(&mut guest.call, &mut self.call);
        let next = live.ready.handle(&mut live.store, event).await;
        mem::swap(&mut live.store.data_mut().call, &mut self.call);
        Ok((live, next?))
    }

    async fn begin(&mut self) -> wasmtime::Result<Live> {
        let mut store = self.shared.store();
        let worker = self.call().worker();
        let starting = || Starting::new(self.shared.identity.clone(), worker);
        let (ready, _) = Ready::new(&self.place.code, &mut store, starting).await?;
        Ok(Live { store, ready })
    }
}
