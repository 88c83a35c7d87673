//! Waits for a call's next event on the runtime: for the events of `HostedCall::poll`, timers, fetches, and the time
//! limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lowroad_handler::spool::STALL;
use lowroad_module::CallEvent;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::call::{ClientGone, FetchRequest, HostedCall, WaitEvent};
use super::call_loop::CallLimits;
use super::fetch::{FetchFuture, fetch};

/// The shortest timer, so that other calls make progress, too.
const TIMER_MS_MIN: u64 = 1;

/// The reason that a waiting call is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonReason {
    /// The client has disconnected.
    ClientGone,
    /// There was no progress within the time limit.
    Timeout,
}

/// The timers and fetches of a waiting call.
pub struct CallWait {
    limits: CallLimits,
    timer: Option<Pin<Box<Sleep>>>,
    deadline: Pin<Box<Sleep>>,
    /// The timer after which a response that the client does not read is spooled.
    stall: Option<Pin<Box<Sleep>>>,
    fetches: Vec<(u32, FetchFuture)>,
}

impl CallWait {
    /// Starts the time limit; needs the runtime.
    pub fn new(limits: CallLimits) -> CallWait {
        CallWait {
            limits,
            timer: None,
            deadline: Box::pin(sleep_until(instant_after(limits.timeout_ms))),
            stall: None,
            fetches: Vec::new(),
        }
    }

    /// Waits for the module's next event.
    ///
    /// # Errors
    /// The call must be abandoned, for this reason.
    pub async fn event(&mut self, call: &mut HostedCall) -> Result<CallEvent, AbandonReason> {
        poll_fn(|context| self.poll(call, context)).await
    }

    /// The time limit for processing one event.
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.limits.timeout_ms)
    }

    fn poll(
        &mut self,
        call: &mut HostedCall,
        context: &mut Context<'_>,
    ) -> Poll<Result<CallEvent, AbandonReason>> {
        // This comes first: while processing the last event, the module may have requested a timer or a fetch.
        self.begin(call);
        loop {
            // Fetches are polled in the loop, since the client's progress does not end the wait.
            self.poll_fetches(call, context);
            match call.poll(context) {
                Poll::Ready(Ok(WaitEvent::ClientProgress)) => self.restart_deadline(),
                Poll::Ready(Ok(WaitEvent::Event(event))) => {
                    // Only bytes of the bodies count as progress: with timers, a module could defer the time limit
                    // forever.
                    if matches!(event, CallEvent::Body(_) | CallEvent::BodyEnd) {
                        self.restart_deadline();
                    }
                    return Poll::Ready(Ok(event));
                }
                Poll::Ready(Err(ClientGone)) => return Poll::Ready(Err(AbandonReason::ClientGone)),
                Poll::Pending if self.poll_stall(call, context) => call.draft.spool(),
                Poll::Pending => break,
            }
        }
        // The timer is polled after the other events, so that a short timer cannot starve them.
        if self
            .timer
            .as_mut()
            .is_some_and(|timer| timer.as_mut().poll(context).is_ready())
        {
            self.timer = None;
            return Poll::Ready(Ok(CallEvent::Timer));
        }
        // The deadline is polled last, so that an event that is ready at the deadline is still passed.
        self.deadline
            .as_mut()
            .poll(context)
            .map(|()| Err(AbandonReason::Timeout))
    }

    /// Whether the client has read nothing for so long that its response must be spooled.
    fn poll_stall(&mut self, call: &HostedCall, context: &mut Context<'_>) -> bool {
        if !call.draft.is_stalled() {
            // The client reads again; the next stall is timed from its start.
            self.stall = None;
            return false;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL)));
        stall.as_mut().poll(context).is_ready()
    }

    /// Starts the timer and the fetches that the module has requested since the last poll.
    fn begin(&mut self, call: &mut HostedCall) {
        if let Some(after_ms) = call.requested_timer_ms.take() {
            let until = instant_after(u64::from(after_ms).max(TIMER_MS_MIN));
            self.timer = Some(Box::pin(sleep_until(until)));
        }
        let identity = call.identity().clone();
        // Fetches are numbered from 1.
        for (number, fetch_request) in (1..).zip(&mut call.fetches) {
            if let FetchRequest::Requested(target) = fetch_request {
                let future = fetch(&identity, &call.request, target, &self.limits);
                self.fetches.push((number, future));
                *fetch_request = FetchRequest::InProgress;
            }
        }
    }

    fn poll_fetches(&mut self, call: &mut HostedCall, context: &mut Context<'_>) {
        self.fetches
            // All fetches are polled, so that each one registers its waker.
            .retain_mut(|(number, future)| match future.as_mut().poll(context) {
                Poll::Ready((status, bytes)) => {
                    call.complete_fetch(*number, status, bytes);
                    false
                }
                Poll::Pending => true,
            });
    }

    /// Restarts the time limit, since the client has sent or received bytes.
    fn restart_deadline(&mut self) {
        self.deadline
            .as_mut()
            .reset(instant_after(self.limits.timeout_ms));
    }
}

fn instant_after(wait_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(wait_ms)
}
