//! Waiting for admission by a traffic class: a future on the worker, and a permit that is returned when dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_handler::{Handler, HandlerFailure, HandlerRequest, HandlerResult};
use lowroad_http::status::StatusCode;
use lowroad_limits::{CallArrival, CallOutcome, ClassScheduler, RefusalReason, WaitCell};
use lowroad_store::clock;

use super::{ClassChoice, ClassTable};

/// The permit for one call; dropping it admits the next call.
struct ClassPermit(ClassChoice);

/// Waits for a permit. Dropping it removes the call from the queue.
struct ClassWait {
    choice: ClassChoice,
    ticket: u64,
    cell: Arc<WaitCell>,
    /// Whether the outcome was taken: admitted, or evicted.
    is_settled: bool,
}

/// The outcome for a new call.
enum ClassAdmission {
    Begins(ClassPermit),
    Waits(ClassWait),
    Shed,
}

impl ClassChoice {
    /// Starts a handler once its class admits the call.
    pub fn begin(
        self,
        handler: Arc<dyn Handler>,
        worker: usize,
        request: HandlerRequest,
        worker_handle: &WorkerHandle,
    ) -> HandlerResult {
        let choice = self.clone();
        let wait = match self.arrive() {
            ClassAdmission::Begins(permit) => {
                return with_permit(permit, handler.begin(worker, request));
            }
            // The failure is asynchronous, so that a stale response can be sent instead (stale-if-error).
            ClassAdmission::Shed => {
                let failure = shed_failure(RefusalReason::Queue);
                return HandlerResult::OnWorker(Box::pin(async { Err(failure) }));
            }
            ClassAdmission::Waits(wait) => wait,
        };
        let timers = worker_handle.timers.clone();
        let deadline_ms = choice.class().rules.deadline_ms;
        let (deadline, late_ms) = (
            Duration::from_millis(deadline_ms),
            clock::now_ms().saturating_add(deadline_ms),
        );
        HandlerResult::OnWorker(Box::pin(async move {
            // The scheduler notices a late call only when another call ends, so a timer limits the wait.
            let Ok(outcome) = timers.timeout(deadline, wait).await else {
                choice.class().counts.late.fetch_add(1, Relaxed);
                return Err(shed_failure(RefusalReason::QueueTimeout));
            };
            let _permit = outcome.ok_or_else(|| {
                // The scheduler refuses a waiting call because it is late, or for a call of a preferred class.
                shed_failure(match clock::now_ms() >= late_ms {
                    true => RefusalReason::QueueTimeout,
                    false => RefusalReason::Queue,
                })
            })?;
            choice.class().counts.waited.fetch_add(1, Relaxed);
            handler.begin(worker, request).answer().await
        }))
    }

    fn arrive(self) -> ClassAdmission {
        let cell = WaitCell::pending();
        let mut scheduler = self.classes.lock();
        let (ticket, displaced) = match scheduler.arrive(self.number, cell.clone(), clock::now_ms())
        {
            CallArrival::Begins => {
                drop(scheduler);
                return ClassAdmission::Begins(ClassPermit::new(self));
            }
            CallArrival::Shed => {
                self.class().counts.shed.fetch_add(1, Relaxed);
                return ClassAdmission::Shed;
            }
            CallArrival::Waits { ticket, displaced } => (ticket, displaced),
        };
        let waker = displaced.and_then(|(class, cell)| {
            self.classes.all[class].counts.shed.fetch_add(1, Relaxed);
            cell.settle(false)
        });
        drop(scheduler);
        // The woken task takes the lock, so it is released first.
        waker.into_iter().for_each(Waker::wake);
        ClassAdmission::Waits(ClassWait {
            choice: self,
            ticket,
            cell,
            is_settled: false,
        })
    }
}

impl ClassTable {
    /// Wakes the waiters for which the scheduler has decided.
    fn settle(&self, mut scheduler: MutexGuard<'_, ClassScheduler<Arc<WaitCell>>>) {
        let now_ms = clock::now_ms();
        let mut wakers = Vec::new();
        while let Some(next) = scheduler.next(now_ms) {
            wakers.extend(match next {
                CallOutcome::Begins(cell) => cell.settle(true),
                CallOutcome::TooLate(class, cell) => {
                    self.all[class].counts.late.fetch_add(1, Relaxed);
                    cell.settle(false)
                }
            });
        }
        drop(scheduler);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl ClassPermit {
    fn new(choice: ClassChoice) -> ClassPermit {
        choice.class().counts.started.fetch_add(1, Relaxed);
        ClassPermit(choice)
    }
}

impl Drop for ClassPermit {
    fn drop(&mut self) {
        let mut scheduler = self.0.classes.lock();
        scheduler.end_call(self.0.number);
        self.0.classes.settle(scheduler);
    }
}

impl Future for ClassWait {
    /// `None`: the call was evicted from the queue.
    type Output = Option<ClassPermit>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ClassPermit>> {
        let settled = self.cell.poll(context);
        // From here on, the permit and not this future occupies the slot of the class.
        self.is_settled = settled.is_ready();
        settled.map(|is_admitted| is_admitted.then(|| ClassPermit::new(self.choice.clone())))
    }
}

impl Drop for ClassWait {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let mut scheduler = self.choice.classes.lock();
        // If the call is still queued, only its entry has to be removed.
        if scheduler.give_up(self.choice.number, self.ticket) {
            return;
        }
        // If the call was admitted, its permit was not taken, so its slot is freed here.
        if self.cell.is_admitted() {
            scheduler.end_call(self.choice.number);
            self.choice.classes.settle(scheduler);
        }
    }
}

/// Wraps a call, so that the permit is held until the response has arrived.
fn with_permit(permit: ClassPermit, call: HandlerResult) -> HandlerResult {
    match call {
        // The call has already ended; the permit is returned now.
        HandlerResult::Ready(result) => HandlerResult::Ready(result),
        HandlerResult::OnRuntime(future) => HandlerResult::OnRuntime(Box::pin(async move {
            let _permit = permit;
            future.await
        })),
        HandlerResult::OnWorker(future) => HandlerResult::OnWorker(Box::pin(async move {
            let _permit = permit;
            future.await
        })),
    }
}

/// The failure if the queue is full or the wait too long. It is only counted: a log line each would add load.
fn shed_failure(reason: RefusalReason) -> HandlerFailure {
    HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, "").with_reason(reason)
}

#[cfg(test)]
mod tests;
