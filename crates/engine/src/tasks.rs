//! Futures that are polled on a worker's own thread, between its connections' events: what only
//! waits for sockets and never computes.
//!
//! A task that is woken on the worker's thread, or by any thread while the worker is awake, costs
//! no system call. It knows nothing of what the futures wait for, nor of timers.
//!
//! A worker that drains gives up its tasks when its connections have ended, unless somebody elsewhere waits for what one of
//! them makes: whoever sees to that holds the worker ([`Hold`]).

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::bell::Bell;
use crate::mailbox::Notify as _;

/// How often tasks that others woke are polled in one run.
const PASSES_MAX: usize = 4;
/// The slot of what is no task.
const NOWHERE: u32 = u32::MAX;

thread_local! {
    static POLLS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread polls a task: a panic ends only that.
pub fn polls() -> bool {
    POLLS.get()
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of one worker. Clones lead to the same.
#[derive(Clone)]
pub struct Tasks(Arc<Shared>);

struct Shared {
    table: Mutex<TaskTable>,
    /// How many [`Hold`]s there are.
    holds: AtomicUsize,
    /// The worker waits for the last of them.
    is_draining: AtomicBool,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct TaskTable {
    slots: Slab<Slot>,
    ready: Vec<Id>,
    generation: u32,
    ended: bool,
}

/// Names one task for as long as the worker runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Id {
    slot: u32,
    generation: u32,
}

struct Slot {
    generation: u32,
    /// It is among those that are ready.
    ready: bool,
    stage: Stage,
}

enum Stage {
    Waiting(Work, Waker),
    Polled,
    /// Given up while it was polled.
    GivenUp,
}

struct TaskWaker {
    tasks: Tasks,
    id: Id,
}

impl std::task::Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.tasks.ready(self.id);
    }
}

/// Keeps a worker from its end while it drains, as long as that may last.
#[must_use = "dropping it lets the worker end"]
pub struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        // Either the worker finds none, or this finds it draining.
        if self.0.holds.fetch_sub(1, SeqCst) == 1 && self.0.is_draining.load(SeqCst) {
            self.0.bell.notify();
        }
    }
}

/// A task under way. Dropped, it is given up.
#[must_use = "dropping it gives the task up"]
pub struct Task {
    tasks: Tasks,
    id: Id,
}

impl Task {
    /// Lets it go on until its end.
    pub fn detach(mut self) {
        self.id.slot = NOWHERE;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.tasks.give_up(self.id);
    }
}

impl Tasks {
    /// No tasks; the bell is that of the worker who will run them.
    pub fn new(bell: Arc<Bell>) -> Tasks {
        Tasks(Arc::new(Shared {
            table: Mutex::default(),
            holds: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            bell,
        }))
    }

    /// Begins a task: the worker polls it before it waits again.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Task {
        let task = self.add(Box::pin(work));
        self.ready(task.id);
        task
    }

    /// Begins a task and polls it at once. To be called on the worker's thread.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> Task {
        let task = self.add(Box::pin(work));
        self.poll(task.id);
        task
    }

    /// Polls those that are ready, and then those that these have woken, a few times.
    pub fn run(&self) {
        let mut ready = Vec::new();
        for _ in 0..PASSES_MAX {
            // The memory of both is used again.
            std::mem::swap(&mut self.lock().ready, &mut ready);
            if ready.is_empty() {
                break;
            }
            for id in ready.drain(..) {
                self.poll(id);
            }
        }
        let mut table = self.lock();
        if table.ready.capacity() == 0 {
            table.ready = ready;
        }
    }

    /// Gives up all tasks, and those that come from now on.
    pub fn end(&self) {
        let mut table = self.lock();
        table.ended = true;
        table.ready.clear();
        let ids: Vec<Id> = table
            .slots
            .iter()
            .map(|(slot, at)| id_of(slot, at))
            .collect();
        drop(table);
        ids.into_iter().for_each(|id| self.give_up(id));
    }

    /// Keeps the worker from its end for the sake of somebody who is not among its connections.
    pub fn hold(&self) -> Hold {
        self.0.holds.fetch_add(1, SeqCst);
        Hold(self.0.clone())
    }

    /// Whether somebody holds the worker.
    pub fn is_held(&self) -> bool {
        self.0.holds.load(SeqCst) > 0
    }

    /// The worker drains: it is notified when nobody holds it any more.
    pub(crate) fn drain(&self) {
        self.0.is_draining.store(true, SeqCst);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().slots.len()
    }

    fn add(&self, work: Work) -> Task {
        let mut table = self.lock();
        table.generation = table.generation.wrapping_add(1);
        let generation = table.generation;
        if table.ended {
            drop(table);
            drop(work);
            let slot = NOWHERE;
            let tasks = self.clone();
            let id = Id { slot, generation };
            return Task { tasks, id };
        }
        let place = table.slots.vacant_entry();
        let id = Id {
            slot: place.key() as u32,
            generation,
        };
        let tasks = self.clone();
        let waker = Waker::from(Arc::new(TaskWaker { tasks, id }));
        place.insert(Slot {
            generation,
            ready: false,
            stage: Stage::Waiting(work, waker),
        });
        drop(table);
        let tasks = self.clone();
        Task { tasks, id }
    }

    fn ready(&self, id: Id) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        if std::mem::replace(&mut slot.ready, true) {
            return;
        }
        table.ready.push(id);
        drop(table);
        self.0.bell.notify();
    }

    fn poll(&self, id: Id) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        slot.ready = false;
        let (mut work, waker) = match std::mem::replace(&mut slot.stage, Stage::Polled) {
            Stage::Waiting(work, waker) => (work, waker),
            stage => {
                slot.stage = stage;
                return;
            }
        };
        drop(table);
        let mut context = Context::from_waker(&waker);
        // A task that panics is over; the worker goes on. What it owned says so when it is dropped.
        let outer = POLLS.replace(true);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        POLLS.set(outer);
        let over = !matches!(polled, Ok(Poll::Pending));
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        if over || matches!(slot.stage, Stage::GivenUp) {
            table.slots.remove(id.slot as usize);
            drop(table);
            // What it owns may call us when it is dropped.
            drop(work);
        } else {
            slot.stage = Stage::Waiting(work, waker);
        }
    }

    fn give_up(&self, id: Id) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        match slot.stage {
            // Whoever polls it sees to the rest.
            Stage::Polled | Stage::GivenUp => slot.stage = Stage::GivenUp,
            Stage::Waiting(..) => {
                let slot = table.slots.remove(id.slot as usize);
                drop(table);
                // What it owns may call us when it is dropped.
                drop(slot);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskTable {
    fn find(&mut self, id: Id) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.generation == id.generation).then_some(slot)
    }
}

fn id_of(slot: usize, at: &Slot) -> Id {
    Id {
        slot: slot as u32,
        generation: at.generation,
    }
}
