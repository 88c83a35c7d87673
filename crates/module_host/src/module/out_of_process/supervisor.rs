//! Supervises two processes of a module: the active one, which has the calls, and a spare one, which takes over when
//! the active process dies. This module is independent of calls.

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

/// Keeps two processes running until the module is no longer used; `first` is the active one.
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
        // Every future is created once and stored in `processes`, so a branch that does not complete continues in the
        // next round.
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

type MessageLoopFuture = Pin<Box<dyn Future<Output = ModuleProcess> + Send>>;
type StartFuture = Pin<Box<dyn Future<Output = Result<ModuleProcess, String>> + Send>>;

struct ProcessTable {
    shared: Arc<SeparateState>,
    active: Option<LiveProcess>,
    spare: Option<LiveProcess>,
    /// The start of the next process, unless it is delayed by `retry`.
    starting: Option<StartFuture>,
    retry: Option<Pin<Box<Sleep>>>,
    restart: RestartPolicy,
}

/// A running process, with the future that exchanges its messages.
struct LiveProcess {
    connection: Arc<ProcessConnection>,
    message_loop: MessageLoopFuture,
    started_at: Instant,
}

/// A process that has died.
struct DeadProcess {
    process: ModuleProcess,
    started_at: Instant,
}

impl LiveProcess {
    fn new(shared: &Arc<SeparateState>, process: ModuleProcess) -> LiveProcess {
        LiveProcess {
            connection: process.connection.clone(),
            message_loop: Box::pin(run(shared.clone(), process)),
            started_at: Instant::now(),
        }
    }
}

impl ProcessTable {
    /// Makes the spare process the active one, then fails the calls of the dead process.
    fn replace_active(&mut self, dead: &DeadProcess) {
        // The spare has started already, so new calls need not wait.
        self.active = self.spare.take();
        if self.starting.is_none() {
            // The next start is not delayed: a spare may have failed only because the other process was running, for
            // modules that need exclusive access to a resource.
            self.retry = None;
            self.start_next(end(dead));
        }
        self.publish();
        // The dead process is closed last: calls that it had not begun are then repeated, and must find the new
        // process.
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
                    // The first process to start becomes the active process, the next one the spare.
                    Some(_) => self.spare = Some(live),
                    None => {
                        self.active = Some(live);
                        // The spare is still missing.
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

    /// Starts another process, after a process that ended in this way.
    fn start_next(&mut self, previous_end: ProcessEnd) {
        let delay = self.restart.delay(previous_end);
        self.start_after(delay);
    }

    /// Starts another process after a delay.
    fn start_after(&mut self, delay: Duration) {
        match delay {
            Duration::ZERO => self.starting = Some(start(self.shared.clone())),
            _ => self.retry = Some(Box::pin(sleep(delay))),
        }
    }

    /// Publishes which process accepts calls.
    fn publish(&self) {
        let service = match (&self.active, &self.retry) {
            (Some(active), _) => ModuleService::Up(active.connection.clone()),
            // A retry is scheduled: calls fail immediately instead of waiting for the back-off.
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
        true => ProcessEnd::AfterFirstCall,
        false => ProcessEnd::BeforeFirstCall(dead.started_at.elapsed()),
    }
}

fn start(shared: Arc<SeparateState>) -> StartFuture {
    Box::pin(async move {
        // Starting blocks: it forks, and waits for the process.
        let started = tokio::task::spawn_blocking(move || ModuleProcess::start(&shared));
        started.await.unwrap_or_else(|error| Err(error.to_string()))
    })
}

/// Collects the exit status on a blocking thread, since waiting, although short, must not delay the runtime.
fn reap(dead: DeadProcess) {
    tokio::task::spawn_blocking(move || drop(dead.process));
}

/// Waits until the process dies.
async fn wait_for_end(live: &mut Option<LiveProcess>) -> DeadProcess {
    let Some(live_process) = live else {
        // Without a process, this future never completes, which disables the branch of `select!`.
        return pending().await;
    };
    let process = live_process.message_loop.as_mut().await;
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
