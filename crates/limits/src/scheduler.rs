//! Schedules calls of traffic classes: which call begins, waits or is shed.
//!
//! ```text
//!  arrive ─┬─► Begins ────────────────────────────► end_call
//!          ├─► Waits ──┬─► next: Begins ──────────► end_call
//!          │           ├─► next: TooLate
//!          │           ├─► displaced by another `arrive`
//!          │           └─► give_up
//!          └─► Shed
//! ```
//!
//! After each event that may free a slot ([`ClassScheduler::end_call`], [`ClassScheduler::give_up`]) the caller calls
//! [`ClassScheduler::next`] until it returns `None`; then no waiting call can begin.
//!
//! The next class is chosen by start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM '96), with each call as one unit: a
//! class that begins a call advances in virtual time by the inverse of its weight, and the class with the earliest
//! virtual time is next. A class that was idle, or at its limit, continues at the current virtual time: it cannot save
//! up turns.

use alloc::vec::Vec;

use crate::wait_queue::WaitQueue;

/// The virtual time of one call of weight 1. A `u64` lasts for 2^44 such calls.
const CALL_COST: u64 = 1 << 20;

/// The bounds of all classes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBounds {
    /// The most calls in progress; at least 1.
    pub calls_max: usize,
    /// The most waiting calls.
    pub waiting_max: usize,
}

/// The settings of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassRules {
    /// The share of the class relative to other classes; 1 to 2^20.
    pub weight: u32,
    /// The most calls in progress.
    pub calls_max: usize,
    /// The most waiting calls.
    pub waiting_max: usize,
    /// The longest wait of a call.
    pub deadline_ms: u64,
}

/// Schedules calls. `W` is the handle of a waiting call, by which the caller reports the outcome.
#[derive(Debug)]
pub struct ClassScheduler<W> {
    bounds: CallBounds,
    classes: Vec<ClassState<W>>,
    /// 0 <= in_progress <= bounds.calls_max
    in_progress: usize,
    /// The number of calls in all queues.
    waiting: usize,
    /// The virtual time at which the last call began.
    virtual_time: u64,
    ticket_next: u64,
}

#[derive(Debug)]
struct ClassState<W> {
    rules: ClassRules,
    /// The number of waiting calls that is reserved for the class, independently of other classes.
    reserved: usize,
    /// 0 <= in_progress <= rules.calls_max
    in_progress: usize,
    /// The virtual time at which the class's next call may begin.
    start: u64,
    queue: WaitQueue<W>,
}

/// The immediate outcome of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum CallArrival<W> {
    /// The call begins.
    Begins,
    /// The call waits; [`give_up`](ClassScheduler::give_up) takes this ticket. The last call in the queue of a lower
    /// class may have been displaced.
    Waits {
        /// The ticket.
        ticket: u64,
        /// The displaced call, with its class.
        displaced: Option<(usize, W)>,
    },
    /// The call is refused: too many calls are waiting.
    Shed,
}

/// The outcome of a waiting call.
#[derive(Debug, PartialEq, Eq)]
pub enum CallOutcome<W> {
    /// The call begins.
    Begins(W),
    /// The call has waited longer than its class permits. The number is that of the class.
    TooLate(usize, W),
}

impl<W> ClassScheduler<W> {
    /// A scheduler without calls, within these bounds. Classes are numbered in the order of `rules`.
    pub fn new(bounds: CallBounds, rules: &[ClassRules]) -> ClassScheduler<W> {
        let weights: u64 = rules
            .iter()
            .map(|rules| u64::from(rules.weight.max(1)))
            .sum();
        let class = |rules: &ClassRules| {
            // The product may exceed 64 bits.
            let share = bounds.waiting_max as u128 * u128::from(rules.weight.max(1));
            ClassState {
                rules: *rules,
                reserved: (share / u128::from(weights.max(1))) as usize,
                in_progress: 0,
                start: 0,
                queue: WaitQueue::default(),
            }
        };
        ClassScheduler {
            bounds,
            classes: rules.iter().map(class).collect(),
            in_progress: 0,
            waiting: 0,
            virtual_time: 0,
            ticket_next: 0,
        }
    }

    /// Handles the arrival of a call of a class.
    pub fn arrive(&mut self, class: usize, waiter: W, now_ms: u64) -> CallArrival<W> {
        if self.has_room(class) {
            self.begin(class);
            return CallArrival::Begins;
        }
        let Some(displaced) = self.make_room(class) else {
            return CallArrival::Shed;
        };
        let ticket = self.ticket_next;
        self.ticket_next += 1;
        let class_state = &mut self.classes[class];
        let deadline_ms = now_ms.saturating_add(class_state.rules.deadline_ms);
        class_state.queue.push(ticket, deadline_ms, waiter);
        self.waiting += 1;
        CallArrival::Waits { ticket, displaced }
    }

    /// Handles the end of a call of a class.
    pub fn end_call(&mut self, class: usize) {
        self.in_progress -= 1;
        self.classes[class].in_progress -= 1;
    }

    /// Removes a waiting call. False if its outcome was returned before.
    pub fn give_up(&mut self, class: usize, ticket: u64) -> bool {
        let is_removed = self.classes[class].queue.remove(ticket);
        // If the call has begun or was displaced in the meantime, `waiting` no longer counts it.
        self.waiting -= usize::from(is_removed);
        is_removed
    }

    /// The outcome of the next waiting call; `None` if no outcome is due.
    pub fn next(&mut self, now_ms: u64) -> Option<CallOutcome<W>> {
        for (number, class) in self.classes.iter_mut().enumerate() {
            // All calls of a class have the same deadline, so the first call in its queue is late first.
            let is_late = class
                .queue
                .first_ms()
                .is_some_and(|due_ms| due_ms <= now_ms);
            if is_late && let Some(waiter) = class.queue.take_first() {
                self.waiting -= 1;
                return Some(CallOutcome::TooLate(number, waiter));
            }
        }
        let class = self.next_class()?;
        let waiter = self.classes[class].queue.take_first()?;
        self.waiting -= 1;
        self.begin(class);
        Some(CallOutcome::Begins(waiter))
    }

    /// The calls of a class: in progress, and waiting.
    pub fn counts(&self, class: usize) -> (usize, usize) {
        let class = &self.classes[class];
        (class.in_progress, class.queue.len())
    }

    /// Whether a call of a class may begin.
    fn has_room(&self, class: usize) -> bool {
        let class = &self.classes[class];
        self.in_progress < self.bounds.calls_max && class.in_progress < class.rules.calls_max
    }

    /// The class to serve next, if a class has a waiting call and a free slot.
    fn next_class(&self) -> Option<usize> {
        let waits = |class: &usize| self.classes[*class].queue.len() > 0 && self.has_room(*class);
        let classes = (0..self.classes.len()).filter(waits);
        // Start-time fair queueing: an idle class starts at the current virtual time, so it saves up no turns.
        classes.min_by_key(|class| self.classes[*class].start.max(self.virtual_time))
    }

    fn begin(&mut self, class: usize) {
        self.in_progress += 1;
        let class = &mut self.classes[class];
        class.in_progress += 1;
        // Virtual time never goes backwards: a class that was idle starts at the current virtual time.
        self.virtual_time = self.virtual_time.max(class.start);
        class.start = self.virtual_time + CALL_COST / u64::from(class.rules.weight.max(1));
    }

    /// Makes room in the queue for a call of a class. Returns the displaced call, if any; `None` if there is no room.
    fn make_room(&mut self, class: usize) -> Option<Option<(usize, W)>> {
        let class_state = &self.classes[class];
        if class_state.queue.len() >= class_state.rules.waiting_max {
            return None;
        }
        if self.waiting < self.bounds.waiting_max {
            return Some(None);
        }
        let is_within_reserve = class_state.queue.len() < class_state.reserved;
        let rank = self.rank(class);
        // Above its reserved length, a queue uses places that other classes did not need so far.
        let can_give = |other: &usize| {
            let queue_len = self.classes[*other].queue.len();
            queue_len > self.classes[*other].reserved
                && (is_within_reserve || self.rank(*other) < rank)
        };
        let classes = (0..self.classes.len()).filter(|other| *other != class);
        let lowest = classes
            .filter(can_give)
            .min_by_key(|other| self.rank(*other))?;
        // The last call of the queue has waited least.
        let waiter = self.classes[lowest].queue.take_last()?;
        self.waiting -= 1;
        Some(Some((lowest, waiter)))
    }

    /// The rank of a class for shedding, lowest first: by weight, then in reverse order of the class number.
    fn rank(&self, class: usize) -> (u32, usize) {
        (self.classes[class].rules.weight, usize::MAX - class)
    }
}

#[cfg(test)]
mod tests;
