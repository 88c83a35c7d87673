//! The threads that handle requests.

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
use lowroad_engine::panic_policy;
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::{MailboxMessage, Worker};
use lowroad_handler::interim_responses::PostInterim;
use lowroad_log::LineSink;
use lowroad_response_cache::calls::HandlerCalls;
use lowroad_response_cache::handler_outcome::{HandlerOutcome, OutcomeSender};
use lowroad_site::access::{LogWorker, WorkerAccessLog};
use lowroad_site::decision::SiteService;
use lowroad_site::listeners::NewSockets;
use lowroad_site::request_traces::WorkerTracer;

use crate::events::MainEvent;
use crate::limits;
use crate::log_writers::{self, LogWriters};
use crate::running_server::{RunningServer, WorkerBox};
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

/// Starts a worker on each driver.
///
/// # Errors
/// No thread is available.
pub fn start(
    running: &mut RunningServer,
    drivers: Vec<EpollDriver>,
    logs: &LogWriters,
    traces: Option<&TraceExport>,
    events: &Sender<MainEvent>,
) -> io::Result<()> {
    let settings = limits::settings(&running.config, &running.listeners, running.fd_limit);
    let settings = Arc::new(settings);
    let (count, hostname) = (drivers.len(), Arc::<str>::from(log_writers::hostname()));
    for (number, driver) in drivers.into_iter().enumerate() {
        let parameters = WorkerParameters {
            number,
            settings: settings.clone(),
            logs: logs.access_sinks(),
            log_worker: LogWorker {
                number,
                count,
                hostname: hostname.clone(),
            },
            tracer: traces.map(TraceExport::tracer),
        };
        start_one(running, parameters, driver, events.clone())?;
    }
    Ok(())
}

/// The parameters of a worker.
struct WorkerParameters {
    number: usize,
    settings: Arc<WorkerSettings>,
    logs: Vec<(LineSink, AccessLogConfig)>,
    log_worker: LogWorker,
    tracer: Option<WorkerTracer>,
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
    let web = web.with_tracer(parameters.tracer);
    let (counters, cache_counters) = (Arc::new(WorkerCounters::default()), web.cache_counters());
    let (request_metrics, urls) = (web.request_metrics(), web.urls());
    let admission = running.admission.clone();
    let mut worker = Worker::new(
        driver,
        web,
        mailbox.clone(),
        parameters.settings,
        admission,
        counters.clone(),
    );
    running.workers.push(mailbox);
    running.counters.push(counters);
    running.cache_counters.push(cache_counters);
    running.request_metrics.push(request_metrics);
    running.urls.push(urls);
    let cpu = running.config.server.affinity.then_some(parameters.number);
    thread::Builder::new()
        .name(format!("worker-{}", parameters.number))
        .spawn(move || {
            if let Some(cpu) = cpu {
                // Pinning is an optimization: if it fails, the kernel schedules the worker.
                let _ = lowroad_engine::worker::pin_to_cpu(cpu);
            }
            // Futures that start on this worker are spawned on `runtime`.
            let _lane = runtime.enter();
            // A panic here ends the process: the server must not continue without one of its workers.
            panic_policy::vital(|| worker.run());
            // The main thread may have stopped waiting after the drain timeout.
            let _ = events.send(MainEvent::WorkerEnded);
        })?;
    Ok(())
}

/// Passes each worker its listening sockets.
pub fn listen(running: &RunningServer, new_sockets: NewSockets) {
    for (worker, sockets) in running.workers.iter().zip(new_sockets) {
        for (id, listener) in sockets {
            worker.post(MailboxMessage::Listen(id, listener));
        }
    }
}
