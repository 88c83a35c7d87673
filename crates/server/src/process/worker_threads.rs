//! The threads that handle requests.
//!
//! A panic of a worker costs its connections and nothing else: a new thread continues with the worker's driver, mailbox
//! and tasks (`lowroad_engine::recovery`). The process ends only if the panic may have left the store inconsistent.
//! See docs/decisions/0079-a-panic-costs-a-worker-its-connections.md.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use lowroad_config::{AccessLogConfig, Config};
use lowroad_engine::IoDriver;
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::panic_policy::{self, PanicReport};
use lowroad_engine::recovery::{PanicConsequences, PanicPause};
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::{MailboxMessage, Worker};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_handler::interim_responses::PostInterim;
use lowroad_log::{ErrorLogger, LineSink};
use lowroad_privileges::thread_filter::ThreadFilter;
use lowroad_response_cache::calls::HandlerCalls;
use lowroad_response_cache::handler_outcome::{HandlerOutcome, OutcomeSender, OutcomeWaiter};
use lowroad_routes::route_builder::RuntimeHandle;
use lowroad_site::access::{LogWorker, WorkerAccessLog};
use lowroad_site::decision::SiteService;
use lowroad_site::listeners::{NewDatagrams, NewSockets};
use lowroad_site::request_traces::WorkerTracer;
use lowroad_store::SharedStore;

use crate::events::MainEvent;
use crate::limits;
use crate::log_writers::{self, LogWriters};
use crate::running_server::{RunningServer, WorkerBox};
use crate::terminal_output;
use crate::traces::TraceExport;

/// The number of workers.
pub fn count(config: &Config) -> usize {
    match config.server.workers {
        // `available_parallelism` respects CPU affinity and cgroup quotas, unlike the machine's number of processors.
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Creates the event loops of this number of workers.
///
/// # Errors
/// No descriptor is available.
pub fn drivers(count: usize, helpers: &HelperPool) -> io::Result<Vec<EpollDriver>> {
    (0..count)
        .map(|_| EpollDriver::new(helpers.clone()))
        .collect()
}

/// The objects of the process that workers use.
pub struct WorkerStart<'a> {
    pub logs: &'a LogWriters,
    pub traces: Option<&'a TraceExport>,
    /// The system calls that workers can't make.
    pub thread_filter: Option<Arc<ThreadFilter>>,
    pub events: &'a Sender<MainEvent>,
}

/// Starts a worker on each driver.
///
/// # Errors
/// No thread is available.
pub fn start(
    running: &mut RunningServer,
    drivers: Vec<EpollDriver>,
    start: WorkerStart<'_>,
) -> io::Result<()> {
    let settings = limits::settings(&running.config, &running.listeners, running.fd_limit);
    let settings = Arc::new(settings);
    let (count, hostname) = (drivers.len(), Arc::<str>::from(log_writers::hostname()));
    for (number, driver) in drivers.into_iter().enumerate() {
        let parameters = WorkerParameters {
            number,
            settings: settings.clone(),
            logs: start.logs.access_sinks(),
            log_worker: LogWorker {
                number,
                count,
                hostname: hostname.clone(),
            },
            count,
            tracer: start.traces.map(TraceExport::tracer),
            thread_filter: start.thread_filter.clone(),
        };
        start_one(running, parameters, driver, start.events.clone())?;
    }
    Ok(())
}

/// The parameters of a worker.
struct WorkerParameters {
    number: usize,
    settings: Arc<WorkerSettings>,
    logs: Vec<(LineSink, AccessLogConfig)>,
    log_worker: LogWorker,
    count: usize,
    tracer: Option<WorkerTracer>,
    thread_filter: Option<Arc<ThreadFilter>>,
}

fn start_one(
    running: &mut RunningServer,
    parameters: WorkerParameters,
    driver: EpollDriver,
    events: Sender<MainEvent>,
) -> io::Result<()> {
    let mailbox: WorkerBox = WorkerMailbox::new(driver.waker());
    let outcome_mailbox = mailbox.clone();
    let post: OutcomeSender = Arc::new(move |id, outcome: HandlerOutcome| {
        outcome_mailbox.post(MailboxMessage::Outcome(id, outcome))
    });
    let interim_mailbox = mailbox.clone();
    let post_interim: PostInterim = Arc::new(move |id, interim| {
        interim_mailbox.post(MailboxMessage::Interim(id, Box::new(interim)))
    });
    let scopes = running.sites.scopes.clone();
    let log = WorkerAccessLog::new(parameters.logs, scopes, parameters.log_worker);
    let runtime = running.handler_runtime.runtime(parameters.number);
    let calls = HandlerCalls {
        worker: parameters.number,
        runtime: runtime.clone(),
        worker_handle: driver.worker_handle().clone(),
        post,
        post_interim,
        store: running.store.clone(),
        fetcher: running.fetcher.clone(),
        changes: running.changes.clone(),
        records_tries: false,
        last_site: RefCell::default(),
    };
    let web = SiteService::new(running.sites.clone(), calls, running.logger.clone(), log);
    let web = web
        .with_tracer(parameters.tracer)
        .with_worker_count(parameters.count);
    let (counters, cache_counters) = (Arc::new(WorkerCounters::default()), web.cache_counters());
    let (request_metrics, urls) = (web.request_metrics(), web.urls());
    let admission = running.admission.clone();
    let worker = Worker::new(
        driver,
        web,
        mailbox.clone(),
        parameters.settings,
        admission,
        counters.clone(),
    );
    let thread = WorkerThread {
        number: parameters.number,
        cpu: running.config.server.affinity.then_some(parameters.number),
        thread_filter: parameters.thread_filter,
        runtime,
        store: running.store.clone(),
        fetcher: running.fetcher.clone(),
        logger: running.logger.clone(),
        events,
    };
    running.workers.push(mailbox);
    running.counters.push(counters);
    running.cache_counters.push(cache_counters);
    running.request_metrics.push(request_metrics);
    running.urls.push(urls);
    thread.start(worker)
}

/// The parameters of a worker's thread, and of the threads that replace it.
struct WorkerThread {
    number: usize,
    /// The processor to which the thread is pinned.
    cpu: Option<usize>,
    /// The filter of the first thread, which the threads that replace it inherit.
    thread_filter: Option<Arc<ThreadFilter>>,
    runtime: RuntimeHandle,
    store: Arc<SharedStore>,
    fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    logger: ErrorLogger,
    events: Sender<MainEvent>,
}

impl WorkerThread {
    /// Runs the worker on a new thread: after a panic, values that belong to the old thread may be incomplete.
    ///
    /// # Errors
    /// No thread is available.
    fn start(mut self, mut worker: Worker<EpollDriver, SiteService>) -> io::Result<()> {
        let builder = thread::Builder::new().name(format!("worker-{}", self.number));
        builder.spawn(move || {
            if let Some(cpu) = self.cpu {
                // Pinning is an optimization: if it fails, the kernel schedules the worker.
                let _ = lowroad_engine::worker::pin_to_cpu(cpu);
            }
            if let Some(Err(error)) = self.thread_filter.take().map(|filter| filter.apply()) {
                self.logger
                    .warn(format_args!("a worker keeps all system calls: {error}"));
            }
            // Futures that start on this worker are spawned on `runtime`.
            let runtime = self.runtime.clone();
            let _lane = runtime.enter();
            match panic_policy::recover(|| worker.run()) {
                // The main thread may have stopped waiting after the drain timeout.
                Ok(()) => drop(self.events.send(MainEvent::WorkerEnded)),
                Err(report) => self.replace(worker, &report),
            }
        })?;
        Ok(())
    }

    /// Continues on a new thread after a panic. If that is impossible, the process ends, because its supervisor restarts
    /// it with all workers.
    fn replace(self, mut worker: Worker<EpollDriver, SiteService>, report: &PanicReport) {
        let (number, text) = (self.number, &report.text);
        if self.store.is_poisoned() || self.fetcher.in_flight().is_poisoned() {
            abort(number, &format!("{text}; stored responses may be damaged"));
        }
        let Ok(consequences) = panic_policy::recover(|| worker.recover()) else {
            abort(number, &format!("{text}, and again while it recovered"));
        };
        let PanicConsequences { connections, pause } = consequences;
        let pause = match pause {
            PanicPause::None => "it accepts connections",
            PanicPause::Ms(ms) => &*format!("it accepts connections again in {ms} ms"),
            PanicPause::SharedListeners => "no pause, as a new process shares its listeners",
            PanicPause::LastWorker => "no pause, as no other worker accepts connections",
        };
        self.logger.error(format_args!(
            "worker {number} has panicked and was replaced: {text}; {connections} connections were closed, {pause}"
        ));
        let backtrace = report.backtrace();
        self.logger
            .error(format_args!("worker {number} was in: {backtrace}"));
        if let Err(error) = self.start(worker) {
            abort(number, &format!("{text}, and can't be replaced: {error}"));
        }
    }
}

/// Ends the process after a panic of a worker. The message goes to standard error, as the error log's thread would not
/// write it any more.
fn abort(number: usize, reason: &str) -> ! {
    terminal_output::note(format!(
        "worker {number} has panicked: {reason}; ending the process"
    ));
    std::process::abort();
}

/// Passes each worker its sockets.
pub fn listen(running: &RunningServer, new_sockets: NewSockets) {
    let peers: Arc<[WorkerBox]> = running.workers.clone().into();
    for (worker, sockets) in running.workers.iter().zip(new_sockets) {
        for (id, listener) in sockets {
            worker.post(MailboxMessage::Listen(id, listener));
        }
        worker.post(MailboxMessage::Peers(peers.clone()));
    }
}

/// Passes each worker its datagram sockets.
pub fn listen_datagrams(running: &RunningServer, new_datagrams: NewDatagrams) {
    for (worker, sockets) in running.workers.iter().zip(new_datagrams) {
        for (id, socket) in sockets {
            worker.post(MailboxMessage::ListenDatagrams(id, socket));
        }
    }
}
