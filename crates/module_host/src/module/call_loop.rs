//! Drives a call from the first event to the response: on the worker until the call must wait, then on the tokio
//! runtime. This module is independent of the kinds of modules, which implement `ModuleBackend`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, PendingResponse,
};
use lowroad_http::status::StatusCode;
use lowroad_limits::{ConcurrencyLimit, Permit, RefusalReason};
use lowroad_module::{CallEvent, CallStep};

use super::call::{HostedCall, WaitEvent};
use super::call_wait::{AbandonReason, CallWait};
use super::counts::increment;
use super::identity::ModuleIdentity;
use super::{Instance, ModuleBackend};

/// The maximum number of events of a call that are processed before the worker serves other connections.
const EVENTS_ON_WORKER_MAX: usize = 16;

/// The limits for the calls of one module on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Time limit until the head of the response, and between two parts of either body, in milliseconds. Default 30
    /// 000.
    pub timeout_ms: u64,
    /// Maximum concurrent calls; further requests get 503. Default 256.
    pub concurrency_max: usize,
    /// Maximum bytes of a response that are buffered, and maximum length of a fetched response. Default 16 MiB.
    pub response_len_max: usize,
}

impl Default for CallLimits {
    fn default() -> CallLimits {
        CallLimits {
            timeout_ms: 30_000,
            concurrency_max: 256,
            response_len_max: 16 << 20,
        }
    }
}

/// The handler that passes the requests of a route to a module.
pub struct ModuleHandler<C> {
    code: Arc<C>,
    identity: Arc<ModuleIdentity>,
    limits: CallLimits,
    spools: Option<Arc<SpoolLimits>>,
    concurrency: Arc<ConcurrencyLimit>,
}

impl<C: ModuleBackend> ModuleHandler<C> {
    /// Creates a handler with the limits of the route.
    pub fn new(
        code: Arc<C>,
        identity: Arc<ModuleIdentity>,
        limits: CallLimits,
    ) -> ModuleHandler<C> {
        ModuleHandler {
            code,
            identity,
            limits,
            spools: None,
            concurrency: ConcurrencyLimit::new(limits.concurrency_max),
        }
    }

    /// Lets responses be spooled if their clients read slowly.
    #[must_use]
    pub fn with_spools(mut self, spools: Option<Arc<SpoolLimits>>) -> ModuleHandler<C> {
        self.spools = spools;
        self
    }
}

impl<C: ModuleBackend> Handler for ModuleHandler<C> {
    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult {
        increment(&self.identity.counts.calls);
        let limits = self.limits;
        // The slot is taken before the instance is created, which can cost a process or the memory of a WebAssembly
        // instance.
        let slot = match CallSlot::take(&self) {
            Ok(slot) => slot,
            Err(failure) => return HandlerResult::Ready(Err(failure)),
        };
        let identity = self.identity.clone();
        let call = HostedCall::new(identity, worker, request, limits.response_len_max)
            .with_spools(self.spools.clone());
        let mut instance = match self.code.instance(worker, call) {
            Ok(instance) => instance,
            Err(failure) => return HandlerResult::Ready(Err(failure)),
        };
        // A module that responds immediately needs neither a future nor the runtime.
        match instance.try_handle(CallEvent::Request) {
            Some(first) => match handle_ready_events(&mut instance, first) {
                Ok(CallStep::Wait) => HandlerResult::OnRuntime(Box::pin(drive(
                    instance,
                    Some(CallStep::Wait),
                    limits,
                    slot,
                ))),
                Ok(CallStep::Done) => HandlerResult::Ready(Ok(instance.call().take_response())),
                Ok(CallStep::Failed) => HandlerResult::Ready(Err(module_failure(&mut instance))),
                Err(failure) => HandlerResult::Ready(Err(failure)),
            },
            None => poll_once(Box::pin(drive(instance, None, limits, slot))),
        }
    }
}

/// After the first event, passes further events to the waiting module as long as they are ready.
fn handle_ready_events<I: Instance>(
    instance: &mut I,
    first: Result<CallStep, HandlerFailure>,
) -> Result<CallStep, HandlerFailure> {
    let mut next = first?;
    // The loop is bounded, so that a module with events that are always ready does not occupy the worker.
    for _ in 0..EVENTS_ON_WORKER_MAX {
        // After a flush, the response is streamed by `stream`, on the runtime.
        if next != CallStep::Wait || instance.call().draft.is_flushed() {
            break;
        }
        let Some(event) = ready_event(instance) else {
            break;
        };
        match instance.try_handle(event) {
            Some(step) => next = step?,
            None => {
                // The module's state has become busy, so the event, which was taken from the call, is queued again.
                instance.call().requeue(event);
                break;
            }
        }
    }
    Ok(next)
}

/// Polls a response once on the worker: if the module does not wait, no task on the runtime is needed.
fn poll_once(mut response: PendingResponse) -> HandlerResult {
    let mut context = Context::from_waker(Waker::noop());
    match response.as_mut().poll(&mut context) {
        Poll::Ready(answer) => HandlerResult::Ready(answer),
        Poll::Pending => HandlerResult::OnRuntime(response),
    }
}

/// Passes events to the module until the response, or its head after a flush, is complete.
async fn drive<I: Instance, C: ModuleBackend>(
    mut instance: I,
    first: Option<CallStep>,
    limits: CallLimits,
    slot: CallSlot<C>,
) -> Result<HandlerResponse, HandlerFailure> {
    let mut next = match first {
        Some(next) => next,
        None => handle_first_events(&mut instance, limits).await?,
    };
    let mut wait = None;
    loop {
        match next {
            CallStep::Done => return Ok(instance.call().take_response()),
            CallStep::Failed => return Err(module_failure(&mut instance)),
            CallStep::Wait => {}
        }
        let wait = match &mut wait {
            Some(wait) => wait,
            None => {
                // Before its first wait, the call moves to the runtime, which the timers need.
                increment(&instance.call().identity().counts.waited);
                move_to_runtime().await;
                wait.insert(CallWait::new(limits))
            }
        };
        // After a flush, the response is returned here, and a task streams its body. The task holds the slot.
        if instance.call().draft.is_flushed() {
            let response = instance.call().draft.begin_stream();
            let wait = CallWait::new(limits);
            // The head is sent only after the response was returned, while the module still produces the body.
            tokio::spawn(stream(instance, wait, slot));
            return Ok(response);
        }
        next = step(&mut instance, wait).await?;
    }
}

/// Passes the first event, and further events as long as they are ready.
async fn handle_first_events<I: Instance>(
    instance: &mut I,
    limits: CallLimits,
) -> Result<CallStep, HandlerFailure> {
    let mut event = CallEvent::Request;
    for _ in 0..EVENTS_ON_WORKER_MAX {
        let next = handle_early_event(instance, event, limits).await?;
        if next != CallStep::Wait || instance.call().draft.is_flushed() {
            return Ok(next);
        }
        match ready_event(instance) {
            Some(next_event) => event = next_event,
            None => return Ok(next),
        }
    }
    // The worker's limit of events is reached; the runtime continues with the next event.
    instance.call().requeue(event);
    Ok(CallStep::Wait)
}

/// The next event, if one is ready. A client disconnect is detected later, by the wait on the runtime.
fn ready_event(instance: &mut impl Instance) -> Option<CallEvent> {
    let mut context = Context::from_waker(Waker::noop());
    match instance.call().poll(&mut context) {
        Poll::Ready(Ok(WaitEvent::Event(event))) => Some(event),
        _ => None,
    }
}

/// Passes an event: as far as possible on the worker, then on the runtime with the time limit.
async fn handle_early_event<I: Instance>(
    instance: &mut I,
    event: CallEvent,
    limits: CallLimits,
) -> Result<CallStep, HandlerFailure> {
    let result = {
        let mut future = pin!(instance.handle(event));
        // The future is polled once without the time limit, since tokio's timers do not work on a worker.
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(next) = polled {
            return next;
        }
        // If the future is pending, it moves to the runtime: the time limit needs the runtime's timers.
        move_to_runtime().await;
        let limit = Duration::from_millis(limits.timeout_ms);
        tokio::time::timeout(limit, future).await
    };
    result.unwrap_or_else(|_| Err(timeout_failure(instance)))
}

/// Passes events to the module while the response is streamed.
async fn stream<I: Instance, C: ModuleBackend>(
    mut instance: I,
    mut wait: CallWait,
    slot: CallSlot<C>,
) {
    loop {
        match step(&mut instance, &mut wait).await {
            Ok(CallStep::Wait) => {}
            Ok(CallStep::Done) => {
                instance.call().draft.end_stream();
                break;
            }
            // The head was already sent, so the failure is signalled by a truncated response.
            Ok(CallStep::Failed) => {
                let failure = module_failure(&mut instance);
                log_failure(&mut instance, &failure);
                break;
            }
            Err(failure) => {
                log_failure(&mut instance, &failure);
                break;
            }
        }
    }
    // The instance is dropped first: the slot counts calls that have module state.
    drop(instance);
    drop(slot);
}

/// Waits for one event and passes it to the module.
async fn step<I: Instance>(
    instance: &mut I,
    wait: &mut CallWait,
) -> Result<CallStep, HandlerFailure> {
    let event = match wait.event(instance.call()).await {
        Ok(event) => event,
        Err(AbandonReason::ClientGone) => return Err(gone_failure(instance)),
        Err(AbandonReason::Timeout) => return Err(timeout_failure(instance)),
    };
    let result = {
        let future = pin!(instance.handle(event));
        // The module may compute or wait while it processes an event, so processing is timed, too.
        tokio::time::timeout(wait.limit(), future).await
    };
    result.unwrap_or_else(|_| Err(timeout_failure(instance)))
}

/// Returns `Pending` once, so that the following code is polled by the runtime.
async fn move_to_runtime() {
    let mut first = true;
    poll_fn(|context| {
        if std::mem::take(&mut first) {
            // The task is woken immediately, so that the runtime polls again once the worker has handed the future
            // over.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The failure after the client has disconnected: nothing is sent; the status is for the log.
fn gone_failure(instance: &mut impl Instance) -> HandlerFailure {
    increment(&instance.call().identity().counts.gone);
    HandlerFailure::new(StatusCode::BAD_REQUEST, "")
}

fn module_failure(instance: &mut impl Instance) -> HandlerFailure {
    let identity = instance.call().identity();
    increment(&identity.counts.failed);
    let name = &identity.name;
    let detail = format!("module {name}: it reported a failure; its log lines have the reason");
    HandlerFailure::new(StatusCode::INTERNAL_ERROR, detail)
}

fn timeout_failure(instance: &mut impl Instance) -> HandlerFailure {
    instance.on_timeout();
    let identity = instance.call().identity();
    increment(&identity.counts.late);
    let name = &identity.name;
    let detail = format!(
        "module {name}: no response within the route's timeout; raise it, or find out why the \
         module waits"
    );
    HandlerFailure::new(StatusCode::GATEWAY_TIMEOUT, detail)
}

/// Logs a failure during streaming, which can no longer be reported to the client.
fn log_failure(instance: &mut impl Instance, failure: &HandlerFailure) {
    if !failure.detail.is_empty() {
        let level = lowroad_module::MessageLevel::Error;
        instance.call().log_line(level, &failure.detail);
    }
}

/// One of the permitted concurrent calls.
struct CallSlot<C> {
    _permit: Permit,
    /// Keeps the module alive as long as the call.
    _handler: Arc<ModuleHandler<C>>,
}

impl<C> CallSlot<C> {
    fn take(handler: &Arc<ModuleHandler<C>>) -> Result<CallSlot<C>, HandlerFailure> {
        if let Some(permit) = handler.concurrency.try_acquire() {
            return Ok(CallSlot {
                _permit: permit,
                _handler: handler.clone(),
            });
        }
        increment(&handler.identity.counts.refused);
        let detail = format!(
            "module {}: {} calls are in progress, the route's concurrency; raise it, or find out \
             why they take so long",
            handler.identity.name,
            handler.concurrency.max()
        );
        let failure = HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Err(failure.with_reason(RefusalReason::Concurrency))
    }
}
