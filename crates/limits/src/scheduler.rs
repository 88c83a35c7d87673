//! Who begins, who waits and who is shed.
//!
//! ```text
//!  arrive ─┬─► Begins ───────────────────────────► ended
//!          ├─► Waits ──┬─► next: Begins ─────────► ended
//!          │           ├─► next: TooLate
//!          │           ├─► displaced by another's arrive
//!          │           └─► gave_up
//!          └─► Shed
//! ```
//!
//! After whatever may make room ([`ClassScheduler::ended`], [`ClassScheduler::gave_up`]) the caller asks [`ClassScheduler::next`] until there is
//! nothing; then nobody waits who could begin.
//!
//! Which class is next is said by start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM '96), each call counting as one: a
//! class that begins a call moves on by the inverse of its weight in a virtual time, and who is least far is next. A class
//! that had nothing to do, or was at its own bound, begins at the present: nothing is saved up.

use alloc::vec::Vec;

use crate::queue::WaitQueue;

/// What one call of weight 1 takes of the virtual time. A `u64` of it lasts for 2^44 of them.
const CALL: u64 = 1 << 20;

/// CallBounds of all classes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBounds {
    /// Calls under way at a time; at least 1.
    pub calls_max: usize,
    /// Calls that wait.
    pub waiting_max: usize,
}

/// What is said of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassRules {
    /// Its share beside those of others; 1 to 2^20.
    pub weight: u32,
    /// Calls under way at a time.
    pub calls_max: usize,
    /// Calls that wait.
    pub waiting_max: usize,
    /// How long one may wait.
    pub deadline_ms: u64,
}

/// Says whose turn it is. `W` is how who waits is told.
#[derive(Debug)]
pub struct ClassScheduler<W> {
    bounds: CallBounds,
    classes: Vec<Class<W>>,
    /// 0 <= under_way <= bounds.calls_max
    under_way: usize,
    /// The length of all queues.
    waiting: usize,
    /// The virtual time at which the last call began.
    present: u64,
    ticket_next: u64,
}

#[derive(Debug)]
struct Class<W> {
    rules: ClassRules,
    /// How many may wait for sure, whatever other classes do.
    kept: usize,
    /// 0 <= under_way <= rules.calls_max
    under_way: usize,
    /// The virtual time at which its next call may begin.
    start: u64,
    queue: WaitQueue<W>,
}

/// What comes of a call at once.
#[derive(Debug, PartialEq, Eq)]
pub enum CallArrival<W> {
    /// It begins.
    Begins,
    /// It waits, and [gives up](ClassScheduler::gave_up) by this ticket. Who was last in the queue of a lower class may have lost its
    /// place to it.
    Waits {
        /// The ticket.
        ticket: u64,
        /// Whose place it has, with its class.
        displaced: Option<(usize, W)>,
    },
    /// Too many wait already.
    Shed,
}

/// What has become of a call that waited.
#[derive(Debug, PartialEq, Eq)]
pub enum CallOutcome<W> {
    /// It begins.
    Begins(W),
    /// It has waited longer than its class may; the class.
    TooLate(usize, W),
}

impl<W> ClassScheduler<W> {
    /// Nobody, within these bounds. Classes are numbered in their order.
    pub fn new(bounds: CallBounds, rules: &[ClassRules]) -> ClassScheduler<W> {
        let weights: u64 = rules
            .iter()
            .map(|rules| u64::from(rules.weight.max(1)))
            .sum();
        let class = |rules: &ClassRules| {
            let part = bounds.waiting_max as u128 * u128::from(rules.weight.max(1));
            Class {
                rules: *rules,
                kept: (part / u128::from(weights.max(1))) as usize,
                under_way: 0,
                start: 0,
                queue: WaitQueue::default(),
            }
        };
        ClassScheduler {
            bounds,
            classes: rules.iter().map(class).collect(),
            under_way: 0,
            waiting: 0,
            present: 0,
            ticket_next: 0,
        }
    }

    /// A call of a class comes.
    pub fn arrive(&mut self, class: usize, waiter: W, now_ms: u64) -> CallArrival<W> {
        if self.has_room(class) {
            self.begin(class);
            return CallArrival::Begins;
        }
        let Some(displaced) = self.make_place(class) else {
            return CallArrival::Shed;
        };
        let ticket = self.ticket_next;
        self.ticket_next += 1;
        let at = &mut self.classes[class];
        let deadline_ms = now_ms.saturating_add(at.rules.deadline_ms);
        at.queue.push(ticket, deadline_ms, waiter);
        self.waiting += 1;
        CallArrival::Waits { ticket, displaced }
    }

    /// A call of a class is over.
    pub fn ended(&mut self, class: usize) {
        self.under_way -= 1;
        self.classes[class].under_way -= 1;
    }

    /// Nobody waits by this ticket any more. False if it was told already what became of it.
    pub fn gave_up(&mut self, class: usize, ticket: u64) -> bool {
        let is_gone = self.classes[class].queue.remove(ticket);
        self.waiting -= usize::from(is_gone);
        is_gone
    }

    /// What becomes of those who wait, until it is nothing.
    pub fn next(&mut self, now_ms: u64) -> Option<CallOutcome<W>> {
        for (number, class) in self.classes.iter_mut().enumerate() {
            // All of a class may wait equally long, so the first is late first.
            let is_late = class
                .queue
                .first_ms()
                .is_some_and(|due_ms| due_ms <= now_ms);
            if is_late && let Some(waiter) = class.queue.take_first() {
                self.waiting -= 1;
                return Some(CallOutcome::TooLate(number, waiter));
            }
        }
        let class = self.turn()?;
        let waiter = self.classes[class].queue.take_first()?;
        self.waiting -= 1;
        self.begin(class);
        Some(CallOutcome::Begins(waiter))
    }

    /// Calls under way of a class, and how many wait.
    pub fn numbers(&self, class: usize) -> (usize, usize) {
        let class = &self.classes[class];
        (class.under_way, class.queue.len())
    }

    /// Whether a call of a class may begin.
    fn has_room(&self, class: usize) -> bool {
        let class = &self.classes[class];
        self.under_way < self.bounds.calls_max && class.under_way < class.rules.calls_max
    }

    /// The class of those who wait for room that is there.
    fn turn(&self) -> Option<usize> {
        let waits = |class: &usize| self.classes[*class].queue.len() > 0 && self.has_room(*class);
        let classes = (0..self.classes.len()).filter(waits);
        classes.min_by_key(|class| self.classes[*class].start.max(self.present))
    }

    fn begin(&mut self, class: usize) {
        self.under_way += 1;
        let class = &mut self.classes[class];
        class.under_way += 1;
        self.present = self.present.max(class.start);
        class.start = self.present + CALL / u64::from(class.rules.weight.max(1));
    }

    /// A place in the queue for a call of a class, and who loses it; `None` if there is none.
    fn make_place(&mut self, class: usize) -> Option<Option<(usize, W)>> {
        let at = &self.classes[class];
        if at.queue.len() >= at.rules.waiting_max {
            return None;
        }
        if self.waiting < self.bounds.waiting_max {
            return Some(None);
        }
        let is_kept = at.queue.len() < at.kept;
        let rank = self.rank(class);
        // Beyond what is kept for them, classes have places that nobody needed until now.
        let gives = |other: &usize| {
            let queue_len = self.classes[*other].queue.len();
            queue_len > self.classes[*other].kept && (is_kept || self.rank(*other) < rank)
        };
        let classes = (0..self.classes.len()).filter(|other| *other != class);
        let lowest = classes
            .filter(gives)
            .min_by_key(|other| self.rank(*other))?;
        let waiter = self.classes[lowest].queue.take_last()?;
        self.waiting -= 1;
        Some(Some((lowest, waiter)))
    }

    /// Lower classes are shed first: those of less weight, or later in their order.
    fn rank(&self, class: usize) -> (u32, usize) {
        (self.classes[class].rules.weight, usize::MAX - class)
    }
}

#[cfg(test)]
mod tests;
