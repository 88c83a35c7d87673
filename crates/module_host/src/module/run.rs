//! Takes a call from its first event to its response: on the worker until the call must wait, then on the runtime.
//! Independent of the kinds of modules, which it uses by the trait `ModuleBackend`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lowroad_handler::spool::Spools;
use lowroad_handler::{Answering, Begun, Failure, Handler, Request, Response};
use lowroad_http::status::Status;
use lowroad_limits::{ConcurrencyLimit, Permit};
use lowroad_module::{Event, Next};

use super::call::{Call, Happened};
use super::counts::one;
use super::identity::Identity;
use super::wait::{End, Wait};
use super::{Code, Instance};

/// Events that a call gets on the worker before other connections have their turn.
const EVENTS_NOW_MAX: usize = 16;

/// Limits of a module's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time until the response's head, and between two parts of either body, in milliseconds. Default 30
    /// 000.
    pub timeout_ms: u64,
    /// Concurrent calls; further requests get 503. Default 256.
    pub concurrency_max: usize,
    /// Bytes of a response that are buffered at a time, and of a fetch. Default 16 MiB.
    pub response_len_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            timeout_ms: 30_000,
            concurrency_max: 256,
            response_len_max: 16 << 20,
        }
    }
}

/// A handler: a module answers the requests of a route.
pub struct Running<C> {
    code: Arc<C>,
    identity: Arc<Identity>,
    limits: Limits,
    spools: Option<Arc<Spools>>,
    concurrency: Arc<ConcurrencyLimit>,
}

impl<C: Code> Running<C> {
    /// A handler of this code and identity, with the limits of the route.
    pub fn new(code: Arc<C>, identity: Arc<Identity>, limits: Limits) -> Running<C> {
        Running {
            code,
            identity,
            limits,
            spools: None,
            concurrency: ConcurrencyLimit::new(limits.concurrency_max),
        }
    }

    /// Lets responses wait in spools if their clients read slowly.
    #[must_use]
    pub fn with_spools(mut self, spools: Option<Arc<Spools>>) -> Running<C> {
        self.spools = spools;
        self
    }
}

impl<C: Code> Handler for Running<C> {
    fn begin(self: Arc<Self>, worker: usize, request: Request) -> Begun {
        one(&self.identity.counts.calls);
        let limits = self.limits;
        let slot = match Slot::take(&self) {
            Ok(slot) => slot,
            Err(failure) => return Begun::Answered(Err(failure)),
        };
        let identity = self.identity.clone();
        let call = Call::new(identity, worker, request, limits.response_len_max)
            .with_spools(self.spools.clone());
        let mut instance = match self.code.instance(worker, call) {
            Ok(instance) => instance,
            Err(failure) => return Begun::Answered(Err(failure)),
        };
        match instance.now(Event::Request) {
            Some(first) => match go_on_now(&mut instance, first) {
                Ok(Next::Wait) => {
                    Begun::Later(Box::pin(drive(instance, Some(Next::Wait), limits, slot)))
                }
                Ok(Next::Done) => Begun::Answered(Ok(instance.call().take_response())),
                Ok(Next::Failed) => Begun::Answered(Err(failed(&mut instance))),
                Err(failure) => Begun::Answered(Err(failure)),
            },
            None => try_now(Box::pin(drive(instance, None, limits, slot))),
        }
    }
}

/// Passes the events that are due at once to a module that waits.
fn go_on_now<I: Instance>(instance: &mut I, first: Result<Next, Failure>) -> Result<Next, Failure> {
    let mut next = first?;
    for _ in 0..EVENTS_NOW_MAX {
        // Once the head is to be sent, the response is a stream, which `stream` serves on the runtime.
        if next != Next::Wait || instance.call().outgoing.is_flushed() {
            break;
        }
        let Some(event) = event_now(instance) else {
            break;
        };
        match instance.now(event) {
            Some(after) => next = after?,
            None => {
                instance.call().again(event);
                break;
            }
        }
    }
    Ok(next)
}

/// Polls a response once on the worker: a module that does not wait needs no task on the runtime.
fn try_now(mut answering: Answering) -> Begun {
    let mut context = Context::from_waker(Waker::noop());
    match answering.as_mut().poll(&mut context) {
        Poll::Ready(answer) => Begun::Answered(answer),
        Poll::Pending => Begun::Later(answering),
    }
}

/// Passes events to the module until the response, or its head, is complete.
async fn drive<I: Instance, C: Code>(
    mut instance: I,
    first: Option<Next>,
    limits: Limits,
    slot: Slot<C>,
) -> Result<Response, Failure> {
    let mut next = match first {
        Some(next) => next,
        None => first_events(&mut instance, limits).await?,
    };
    let mut wait = None;
    loop {
        match next {
            Next::Done => return Ok(instance.call().take_response()),
            Next::Failed => return Err(failed(&mut instance)),
            Next::Wait => {}
        }
        let wait = match &mut wait {
            Some(wait) => wait,
            None => {
                one(&instance.call().identity().counts.waited);
                on_the_runtime().await;
                wait.insert(Wait::new(limits))
            }
        };
        // A flushed response returns here. Its body is streamed by a task, which keeps the slot.
        if instance.call().outgoing.is_flushed() {
            let response = instance.call().outgoing.begin_stream();
            let wait = Wait::new(limits);
            tokio::spawn(stream(instance, wait, slot));
            return Ok(response);
        }
        next = step(&mut instance, wait).await?;
    }
}

/// Passes the first event, and the events that are due at once after it.
async fn first_events<I: Instance>(instance: &mut I, limits: Limits) -> Result<Next, Failure> {
    let mut event = Event::Request;
    for _ in 0..EVENTS_NOW_MAX {
        let next = early_event(instance, event, limits).await?;
        if next != Next::Wait || instance.call().outgoing.is_flushed() {
            return Ok(next);
        }
        match event_now(instance) {
            Some(another) => event = another,
            None => return Ok(next),
        }
    }
    instance.call().again(event);
    Ok(Next::Wait)
}

/// The next event, if one is due. A client that is gone is detected later, by the wait on the runtime.
fn event_now(instance: &mut impl Instance) -> Option<Event> {
    let mut context = Context::from_waker(Waker::noop());
    match instance.call().poll(&mut context) {
        Poll::Ready(Ok(Happened::Event(event))) => Some(event),
        _ => None,
    }
}

/// Passes an event on the worker as far as possible, then with the time limit.
async fn early_event<I: Instance>(
    instance: &mut I,
    event: Event,
    limits: Limits,
) -> Result<Next, Failure> {
    let handled = {
        let mut handling = pin!(instance.handle(event));
        let begun = poll_fn(|context| Poll::Ready(handling.as_mut().poll(context))).await;
        if let Poll::Ready(next) = begun {
            return next;
        }
        on_the_runtime().await;
        let limit = Duration::from_millis(limits.timeout_ms);
        tokio::time::timeout(limit, handling).await
    };
    handled.unwrap_or_else(|_| Err(late(instance)))
}

/// Passes events to the module while the response streams.
async fn stream<I: Instance, C: Code>(mut instance: I, mut wait: Wait, slot: Slot<C>) {
    loop {
        match step(&mut instance, &mut wait).await {
            Ok(Next::Wait) => {}
            Ok(Next::Done) => {
                instance.call().outgoing.end_stream();
                break;
            }
            // Truncating the response signals the failure to the client, since the head was already sent.
            Ok(Next::Failed) => {
                let failure = failed(&mut instance);
                tell(&mut instance, &failure);
                break;
            }
            Err(failure) => {
                tell(&mut instance, &failure);
                break;
            }
        }
    }
    drop(instance);
    drop(slot);
}

/// Waits for one event and passes it to the module.
async fn step<I: Instance>(instance: &mut I, wait: &mut Wait) -> Result<Next, Failure> {
    let event = match wait.event(instance.call()).await {
        Ok(event) => event,
        Err(End::Gone) => return Err(gone(instance)),
        Err(End::Late) => return Err(late(instance)),
    };
    let handled = {
        let handling = pin!(instance.handle(event));
        tokio::time::timeout(wait.limit(), handling).await
    };
    handled.unwrap_or_else(|_| Err(late(instance)))
}

/// Pending once, so that the runtime polls the code that follows.
async fn on_the_runtime() {
    let mut first = true;
    poll_fn(|context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The failure for a client that is gone: nothing is sent, the status is for the log.
fn gone(instance: &mut impl Instance) -> Failure {
    one(&instance.call().identity().counts.gone);
    Failure::new(Status::BAD_REQUEST, "")
}

fn failed(instance: &mut impl Instance) -> Failure {
    let identity = instance.call().identity();
    one(&identity.counts.failed);
    let name = &identity.name;
    let detail = format!("module {name}: it says that it failed; its own lines say why");
    Failure::new(Status::INTERNAL_ERROR, detail)
}

fn late(instance: &mut impl Instance) -> Failure {
    instance.late();
    let identity = instance.call().identity();
    one(&identity.counts.late);
    let name = &identity.name;
    let detail = format!(
        "module {name}: no response within the route's timeout; raise it, or see what the module \
         waits for"
    );
    Failure::new(Status::GATEWAY_TIMEOUT, detail)
}

/// Logs a failure in a stream, which can no longer be reported to the client.
fn tell(instance: &mut impl Instance, failure: &Failure) {
    if !failure.detail.is_empty() {
        let identity = instance.call().identity();
        identity.log(lowroad_module::Level::Error, &failure.detail);
    }
}

/// One of the permitted concurrent calls.
struct Slot<C> {
    _permit: Permit,
    /// Keeps the module as long as its calls.
    _running: Arc<Running<C>>,
}

impl<C> Slot<C> {
    fn take(running: &Arc<Running<C>>) -> Result<Slot<C>, Failure> {
        if let Some(permit) = running.concurrency.try_acquire() {
            return Ok(Slot {
                _permit: permit,
                _running: running.clone(),
            });
        }
        one(&running.identity.counts.refused);
        let detail = format!(
            "module {}: {} calls are under way, which is the route's concurrency; raise it, or \
             see why they take so long",
            running.identity.name,
            running.concurrency.max()
        );
        Err(Failure::new(Status::SERVICE_UNAVAILABLE, detail))
    }
}
