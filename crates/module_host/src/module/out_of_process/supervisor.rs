//! Supervises two processes of a module: one that has the calls, and a spare that takes over when it dies. Independent
//! of calls.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_module::MessageLevel;
use tokio::time::{Sleep, sleep};

use super::super::counts::increment;
use super::process::{ModuleProcess, ProcessConnection, run};
use super::restart::{ProcessEnd, RestartPolicy};
use super::{ModuleService, SeparateState};

/// Keeps processes running until the module is no longer used; `first` has the calls.
pub async fn supervise(shared: Arc<SeparateState>, first: ModuleProcess) {
    let mut processes = ProcessTable {
        active: Some(LiveProcess::new(&shared, first)),
        spare: None,
        starting: Some(start(shared.clone())),
        retry: None,
        restart: RestartPolicy::new(),
        shared: shared.clone(),
    };
    loop {
        // Each future is created once and kept in `processes`, so a branch that loses the race continues in the next
        // round.
        tokio::select! {
            () = shared.shutdown.notified() => return,
            dead = wait_for_end(&mut processes.active) => {
                processes.replace_active(&dead);
                reap(dead);
            }
            dead = wait_for_end(&mut processes.spare) => {
                processes.replace_spare(&dead);
                reap(dead);
            }
            started = wait_for_start(&mut processes.starting) => processes.add_started(started),
            () = wait_for_retry(&mut processes.retry) => {
                processes.start_after(Duration::ZERO);
                processes.publish();
            }
        }
    }
}

type ConversationFuture = Pin<Box<dyn Future<Output = ModuleProcess> + Send>>;
type StartFuture = Pin<Box<dyn Future<Output = Result<ModuleProcess, String>> + Send>>;

struct ProcessTable {
    shared: Arc<SeparateState>,
    active: Option<LiveProcess>,
    spare: Option<LiveProcess>,
    /// The next process: starting, or delayed by the back-off.
    starting: Option<StartFuture>,
    retry: Option<Pin<Box<Sleep>>>,
    restart: RestartPolicy,
}

/// A process with its exchange of messages.
struct LiveProcess {
    connection: Arc<ProcessConnection>,
    conversation: ConversationFuture,
    started_at: Instant,
}

/// A dead process.
struct DeadProcess {
    process: ModuleProcess,
    started_at: Instant,
}

impl LiveProcess {
    fn new(shared: &Arc<SeparateState>, process: ModuleProcess) -> LiveProcess {
        LiveProcess {
            connection: process.connection.clone(),
            conversation: Box::pin(run(shared.clone(), process)),
            started_at: Instant::now(),
        }
    }
}

impl ProcessTable {
    /// Moves the calls to the spare, and fails those of the dead process once it can receive no new ones.
    fn replace_active(&mut self, dead: &DeadProcess) {
        // At once: the spare has started already, so calls have no gap.
        self.active = self.spare.take();
        if self.starting.is_none() {
            // A spare may fail only while another process runs: some modules need a resource exclusively.
            self.retry = None;
            self.start_next(end(dead));
        }
        self.publish();
        // Last: calls that the dead process had not begun are repeated, and must find the new one.
        self.close(dead);
    }

    fn replace_spare(&mut self, dead: &DeadProcess) {
        self.start_next(end(dead));
        self.close(dead);
    }

    fn add_started(&mut self, started: Result<ModuleProcess, String>) {
        match started {
            Ok(process) => {
                let live = LiveProcess::new(&self.shared, process);
                match &self.active {
                    // The first one that starts takes the calls; the next becomes the spare.
                    Some(_) => self.spare = Some(live),
                    None => {
                        self.active = Some(live);
                        // It took the place of the active one, so a spare is still missing.
                        self.start_after(Duration::ZERO);
                    }
                }
            }
            Err(problem) => {
                self.shared.identity.log(MessageLevel::Error, &problem);
                self.start_next(ProcessEnd::NotStarted);
            }
        }
        self.publish();
    }

    /// Starts another process after one that ended in this way.
    fn start_next(&mut self, previous_end: ProcessEnd) {
        let delay = self.restart.delay(previous_end);
        self.start_after(delay);
    }

    /// Starts another process, at once or later.
    fn start_after(&mut self, delay: Duration) {
        match delay {
            Duration::ZERO => self.starting = Some(start(self.shared.clone())),
            _ => self.retry = Some(Box::pin(sleep(delay))),
        }
    }

    /// Publishes the process that accepts calls.
    fn publish(&self) {
        let service = match (&self.active, &self.retry) {
            (Some(active), _) => ModuleService::Up(active.connection.clone()),
            // A retry is pending: calls fail at once rather than wait for the back-off.
            (None, Some(_)) => ModuleService::Down,
            (None, None) => ModuleService::Starting,
        };
        self.shared.service.send_replace(service);
    }

    fn close(&self, dead: &DeadProcess) {
        let identity = &self.shared.identity;
        increment(&identity.counts.crashes);
        identity.log(MessageLevel::Error, "its process died; restarting it");
        dead.process.connection.close();
    }
}

fn end(dead: &DeadProcess) -> ProcessEnd {
    match dead.process.connection.has_had_call() {
        true => ProcessEnd::Asked,
        false => ProcessEnd::Unasked(dead.started_at.elapsed()),
    }
}

fn start(shared: Arc<SeparateState>) -> StartFuture {
    Box::pin(async move {
        // Starting blocks: it forks, and waits for the process.
        let started = tokio::task::spawn_blocking(move || ModuleProcess::start(&shared));
        started.await.unwrap_or_else(|error| Err(error.to_string()))
    })
}

/// Waits for the end of a killed process on a blocking thread. It is short, but must not delay the runtime.
fn reap(dead: DeadProcess) {
    tokio::task::spawn_blocking(move || drop(dead.process));
}

/// Waits until this process dies, if there is one.
async fn wait_for_end(live: &mut Option<LiveProcess>) -> DeadProcess {
    // A branch of select! without a process never completes.
    let Some(live_process) = live else {
        // A missing process never ends; `pending` disables the branch of `select!`.
        return pending().await;
    };
    let process = live_process.conversation.as_mut().await;
    let started_at = live_process.started_at;
    *live = None;
    DeadProcess {
        process,
        started_at,
    }
}

async fn wait_for_start(starting: &mut Option<StartFuture>) -> Result<ModuleProcess, String> {
    let Some(start_future) = starting else {
        return pending().await;
    };
    let started = start_future.await;
    *starting = None;
    started
}

async fn wait_for_retry(retry: &mut Option<Pin<Box<Sleep>>>) {
    let Some(wait) = retry else {
        return pending().await;
    };
    wait.as_mut().await;
    *retry = None;
}
