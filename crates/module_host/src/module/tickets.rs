//! Tickets: numbers that allow any thread to resume a waiting call.
//!
//! A number cannot be guessed from other numbers, so a module can resume only calls for which it received the tickets.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker};

use lowroad_module::ResumeTicket;

use crate::lock::lock;

static TICKETS: LazyLock<Mutex<HashMap<u64, Arc<TicketFlag>>>> = LazyLock::new(Mutex::default);
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static LAST: AtomicU64 = AtomicU64::new(0);

/// The ticket of a call; valid until the guard is dropped.
pub struct TicketGuard {
    number: u64,
    flag: Arc<TicketFlag>,
}

#[derive(Default)]
struct TicketFlag(Mutex<(bool, Option<Waker>)>);

impl TicketGuard {
    /// Creates a ticket.
    pub fn new() -> TicketGuard {
        let flag = Arc::<TicketFlag>::default();
        let mut tickets = lock(&TICKETS);
        loop {
            // The number is a keyed hash of a counter. In the module interface, 0 means no ticket.
            let number = KEY.hash_one(LAST.fetch_add(1, Relaxed));
            if number != 0 && !tickets.contains_key(&number) {
                tickets.insert(number, flag.clone());
                return TicketGuard { number, flag };
            }
        }
    }

    /// The ticket for the module.
    pub fn ticket(&self) -> ResumeTicket {
        ResumeTicket::new(self.number, resume_call)
    }

    /// Ready once after one or more uses of the ticket.
    pub fn poll_used(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.flag.0);
        // All uses since the last poll count as one.
        if std::mem::take(&mut state.0) {
            return Poll::Ready(());
        }
        // The waker is stored under the lock that `resume_call` takes, so that no use is missed.
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        lock(&TICKETS).remove(&self.number);
    }
}

/// Resumes the call with this ticket. False if the call has ended.
pub fn resume_call(number: u64) -> bool {
    let Some(flag) = lock(&TICKETS).get(&number).cloned() else {
        return false;
    };
    let mut state = lock(&flag.0);
    state.0 = true;
    let waker = state.1.take();
    // The lock is released first: waking runs code of the call, which may use the ticket again.
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_resumes_call_until_it_ends() {
        let mut context = Context::from_waker(Waker::noop());
        let guard = TicketGuard::new();
        let ticket = guard.ticket();
        assert!(guard.poll_used(&mut context).is_pending());
        assert!(ticket.go_on() && ticket.go_on());
        assert!(guard.poll_used(&mut context).is_ready());
        assert!(guard.poll_used(&mut context).is_pending(), "told once");
        drop(guard);
        assert!(!ticket.go_on());
    }
}
