//! Futures that are polled on a worker's own thread, between its connections' events: what only
//! waits for sockets and never computes.
//!
//! A task that is woken on the worker's thread, or by any thread while the worker is awake, costs
//! no system call. It knows nothing of what the futures wait for, nor of timers.
//!
//! A worker that drains gives up its tasks when its connections have ended, unless somebody elsewhere waits for what one of
//! them makes: whoever sees to that holds the worker ([`DrainHold`]).

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::event_count::EventCount;
use crate::mailbox::WorkerNotify as _;

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

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of one worker. Clones lead to the same.
#[derive(Clone)]
pub struct WorkerTasks(Arc<ExecutorState>);

struct ExecutorState {
    table: Mutex<TaskTable>,
    /// How many [`DrainHold`]s there are.
    holds: AtomicUsize,
    /// The worker waits for the last of them.
    is_draining: AtomicBool,
    bell: Arc<EventCount>,
}

#[derive(Default)]
struct TaskTable {
    slots: Slab<TaskSlot>,
    ready: Vec<TaskId>,
    generation: u32,
    ended: bool,
}

/// Names one task for as long as the worker runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TaskId {
    slot: u32,
    generation: u32,
}

struct TaskSlot {
    generation: u32,
    /// It is among those that are ready.
    ready: bool,
    stage: TaskStage,
}

enum TaskStage {
    Waiting(TaskFuture, Waker),
    Polled,
    /// Given up while it was polled.
    GivenUp,
}

struct TaskWaker {
    tasks: WorkerTasks,
    id: TaskId,
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
pub struct DrainHold(Arc<ExecutorState>);

impl Drop for DrainHold {
    fn drop(&mut self) {
        // Either the worker finds none, or this finds it draining.
        if self.0.holds.fetch_sub(1, SeqCst) == 1 && self.0.is_draining.load(SeqCst) {
            self.0.bell.notify();
        }
    }
}

/// A task under way. Dropped, it is given up.
#[must_use = "dropping it gives the task up"]
pub struct TaskHandle {
    tasks: WorkerTasks,
    id: TaskId,
}

impl TaskHandle {
    /// Lets it go on until its end.
    pub fn detach(mut self) {
        self.id.slot = NOWHERE;
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.tasks.give_up(self.id);
    }
}

impl WorkerTasks {
    /// No tasks; the bell is that of the worker who will run them.
    pub fn new(bell: Arc<EventCount>) -> WorkerTasks {
        WorkerTasks(Arc::new(ExecutorState {
            table: Mutex::default(),
            holds: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            bell,
        }))
    }

    /// Begins a task: the worker polls it before it waits again.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> TaskHandle {
        let task = self.add(Box::pin(work));
        self.ready(task.id);
        task
    }

    /// Begins a task and polls it at once. To be called on the worker's thread.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> TaskHandle {
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
        let ids: Vec<TaskId> = table
            .slots
            .iter()
            .map(|(slot, at)| id_of(slot, at))
            .collect();
        drop(table);
        ids.into_iter().for_each(|id| self.give_up(id));
    }

    /// Keeps the worker from its end for the sake of somebody who is not among its connections.
    pub fn hold(&self) -> DrainHold {
        self.0.holds.fetch_add(1, SeqCst);
        DrainHold(self.0.clone())
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

    fn add(&self, work: TaskFuture) -> TaskHandle {
        let mut table = self.lock();
        table.generation = table.generation.wrapping_add(1);
        let generation = table.generation;
        if table.ended {
            drop(table);
            drop(work);
            let slot = NOWHERE;
            let tasks = self.clone();
            let id = TaskId { slot, generation };
            return TaskHandle { tasks, id };
        }
        let place = table.slots.vacant_entry();
        let id = TaskId {
            slot: place.key() as u32,
            generation,
        };
        let tasks = self.clone();
        let waker = Waker::from(Arc::new(TaskWaker { tasks, id }));
        place.insert(TaskSlot {
            generation,
            ready: false,
            stage: TaskStage::Waiting(work, waker),
        });
        drop(table);
        let tasks = self.clone();
        TaskHandle { tasks, id }
    }

    fn ready(&self, id: TaskId) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        if std::mem::replace(&mut slot.ready, true) {
            return;
        }
        table.ready.push(id);
        drop(table);
        self.0.bell.notify();
    }

    fn poll(&self, id: TaskId) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        slot.ready = false;
        let (mut work, waker) = match std::mem::replace(&mut slot.stage, TaskStage::Polled) {
            TaskStage::Waiting(work, waker) => (work, waker),
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
        if over || matches!(slot.stage, TaskStage::GivenUp) {
            table.slots.remove(id.slot as usize);
            drop(table);
            // What it owns may call us when it is dropped.
            drop(work);
        } else {
            slot.stage = TaskStage::Waiting(work, waker);
        }
    }

    fn give_up(&self, id: TaskId) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        match slot.stage {
            // Whoever polls it sees to the rest.
            TaskStage::Polled | TaskStage::GivenUp => slot.stage = TaskStage::GivenUp,
            TaskStage::Waiting(..) => {
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
    fn find(&mut self, id: TaskId) -> Option<&mut TaskSlot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.generation == id.generation).then_some(slot)
    }
}

fn id_of(slot: usize, at: &TaskSlot) -> TaskId {
    TaskId {
        slot: slot as u32,
        generation: at.generation,
    }
}
