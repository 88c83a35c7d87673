//! Tasks: futures that a worker polls on its thread, between the events of its connections. They are for waiting on
//! sockets, not for computing.
//!
//! Waking a task costs no system call while its worker is awake.
//!
//! A draining worker cancels its tasks when its connections have ended. Code that needs a task's result nevertheless
//! keeps the worker running with a [`DrainHold`].

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

/// Maximum number of passes over woken tasks per run.
const PASSES_MAX: usize = 4;
/// The slot of a detached task's handle.
const DETACHED: u32 = u32::MAX;

thread_local! {
    static POLLS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is polling a task: then a panic ends only that task.
pub fn is_polling() -> bool {
    POLLS.get()
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of one worker. Clones share them.
#[derive(Clone)]
pub struct WorkerTasks(Arc<ExecutorState>);

struct ExecutorState {
    table: Mutex<TaskTable>,
    /// The number of [`DrainHold`]s.
    holds: AtomicUsize,
    /// The worker drains, and is notified when the last hold is dropped.
    is_draining: AtomicBool,
    event_count: Arc<EventCount>,
}

#[derive(Default)]
struct TaskTable {
    slots: Slab<TaskSlot>,
    ready: Vec<TaskId>,
    generation: u32,
    ended: bool,
}

/// Identifies one task for as long as the worker runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TaskId {
    slot: u32,
    generation: u32,
}

struct TaskSlot {
    generation: u32,
    /// The task is in the list of ready tasks.
    ready: bool,
    stage: TaskStage,
}

enum TaskStage {
    Waiting(TaskFuture, Waker),
    Polled,
    /// Cancelled while it was polled.
    Cancelled,
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

/// Keeps a draining worker running, until the drain timeout at the latest.
#[must_use = "dropping it lets the worker end"]
pub struct DrainHold(Arc<ExecutorState>);

impl Drop for DrainHold {
    fn drop(&mut self) {
        // Sequentially consistent: either the worker sees that there is no hold, or this thread sees that the worker
        // drains.
        if self.0.holds.fetch_sub(1, SeqCst) == 1 && self.0.is_draining.load(SeqCst) {
            self.0.event_count.notify();
        }
    }
}

/// A handle to a running task. Dropping the handle cancels the task.
#[must_use = "dropping it gives the task up"]
pub struct TaskHandle {
    tasks: WorkerTasks,
    id: TaskId,
}

impl TaskHandle {
    /// Lets the task run to its end.
    pub fn detach(mut self) {
        self.id.slot = DETACHED;
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.tasks.cancel(self.id);
    }
}

impl WorkerTasks {
    /// An empty set; `event_count` is the worker's eventcount.
    pub fn new(event_count: Arc<EventCount>) -> WorkerTasks {
        WorkerTasks(Arc::new(ExecutorState {
            table: Mutex::default(),
            holds: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            event_count,
        }))
    }

    /// Starts a task: the worker polls it before its next wait.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> TaskHandle {
        let task = self.add(Box::pin(work));
        self.ready(task.id);
        task
    }

    /// Starts a task and polls it immediately. Called on the worker's thread.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> TaskHandle {
        let task = self.add(Box::pin(work));
        self.poll(task.id);
        task
    }

    /// Polls the ready tasks, then the tasks that they have woken, for a limited number of passes.
    pub fn run(&self) {
        let mut ready = Vec::new();
        // Tasks that wake each other again and again must not keep the worker from its sockets.
        for _ in 0..PASSES_MAX {
            // Both vectors keep their memory.
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

    /// Wakes all tasks: a panic may have lost the list of ready tasks.
    pub(crate) fn wake_all(&self) {
        let mut table = self.lock();
        let TaskTable { slots, ready, .. } = &mut *table;
        ready.clear();
        for (slot, task) in slots.iter_mut() {
            task.ready = true;
            ready.push(TaskId {
                slot: slot as u32,
                generation: task.generation,
            });
        }
        drop(table);
        self.0.event_count.notify();
    }

    /// Cancels all tasks, and later every task that is started.
    pub fn end(&self) {
        let mut table = self.lock();
        // From now on, tasks that destructors start are dropped immediately.
        table.ended = true;
        table.ready.clear();
        let ids: Vec<TaskId> = table
            .slots
            .iter()
            .map(|(slot, task)| id_of(slot, task))
            .collect();
        drop(table);
        ids.into_iter().for_each(|id| self.cancel(id));
    }

    /// Keeps the worker running while the returned value exists.
    pub fn hold(&self) -> DrainHold {
        self.0.holds.fetch_add(1, SeqCst);
        DrainHold(self.0.clone())
    }

    /// Whether there is a hold on the worker.
    pub fn has_holds(&self) -> bool {
        self.0.holds.load(SeqCst) > 0
    }

    /// Starts the drain: the worker is notified when the last hold is dropped.
    pub(crate) fn drain(&self) {
        self.0.is_draining.store(true, SeqCst);
    }

    /// The number of tasks.
    pub fn count(&self) -> usize {
        self.lock().slots.len()
    }

    fn add(&self, work: TaskFuture) -> TaskHandle {
        let mut table = self.lock();
        table.generation = table.generation.wrapping_add(1);
        let generation = table.generation;
        if table.ended {
            // The destructor of `work` runs without the lock, as it may call this module.
            drop(table);
            drop(work);
            let slot = DETACHED;
            let tasks = self.clone();
            let id = TaskId { slot, generation };
            return TaskHandle { tasks, id };
        }
        let vacant = table.slots.vacant_entry();
        let id = TaskId {
            slot: vacant.key() as u32,
            generation,
        };
        let tasks = self.clone();
        let waker = Waker::from(Arc::new(TaskWaker { tasks, id }));
        vacant.insert(TaskSlot {
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
        // A task woken twice is listed once.
        if std::mem::replace(&mut slot.ready, true) {
            return;
        }
        table.ready.push(id);
        drop(table);
        self.0.event_count.notify();
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
        // A panic ends only the task: its future is dropped, which notifies the receivers of its results.
        let outer = POLLS.replace(true);
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        // Not `false`, as a task that is polled may start and poll another.
        POLLS.set(outer);
        let over = !matches!(polled, Ok(Poll::Pending));
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        if over || matches!(slot.stage, TaskStage::Cancelled) {
            table.slots.remove(id.slot as usize);
            drop(table);
            // The destructor runs without the lock, as it may call this module.
            drop(work);
        } else {
            slot.stage = TaskStage::Waiting(work, waker);
        }
    }

    fn cancel(&self, id: TaskId) {
        let mut table = self.lock();
        let Some(slot) = table.find(id) else { return };
        match slot.stage {
            // The polling thread removes the task afterwards.
            TaskStage::Polled | TaskStage::Cancelled => slot.stage = TaskStage::Cancelled,
            TaskStage::Waiting(..) => {
                let slot = table.slots.remove(id.slot as usize);
                drop(table);
                // The destructor runs without the lock, as it may call this module.
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

fn id_of(slot: usize, task: &TaskSlot) -> TaskId {
    TaskId {
        slot: slot as u32,
        generation: task.generation,
    }
}
