//! The export of traces: a thread sends the workers' spans to an OpenTelemetry collector.

mod collector_client;
mod collector_stream;
mod exporter;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lowroad_config::TracesConfig;
use lowroad_engine::panic_policy;
use lowroad_log::ErrorLogger;
use lowroad_site::request_traces::WorkerTracer;
use lowroad_traces::otlp::ExportResource;
use lowroad_traces::request_trace::TracePolicy;
use lowroad_traces::{SpanQueue, SpanReceiver};

use collector_client::CollectorClient;
use exporter::Exporter;

use crate::secret_file;

/// Pending spans are exported within this time at the end of the server.
const FLUSH_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// Additional time in which the exporter's thread must end.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// The traces of a server, ready to be exported.
pub struct TraceExport {
    policy: TracePolicy,
    receiver: SpanReceiver,
    client: CollectorClient,
    resource: ExportResource,
    flush_timeout: Duration,
}

/// The exporter's thread.
pub struct TraceExportHandle {
    queue: Arc<SpanQueue>,
    exporter: Arc<exporter::ExporterControl>,
    ended: Receiver<()>,
    flush_timeout: Duration,
}

impl TraceExport {
    /// Prepares the export, if it is configured. Reads the files of fields and certificates, with root's rights if the
    /// process has them.
    ///
    /// # Errors
    /// A file can't be used: a message with a remedy.
    pub fn open(config: Option<&TracesConfig>) -> Result<Option<TraceExport>, String> {
        let Some(config) = config else {
            return Ok(None);
        };
        let mut headers = config.headers.clone();
        for (name, file) in &config.header_files {
            let value = read_header_file(file).map_err(|error| {
                format!("[traces.header_files] {name}: {}: {error}", file.display())
            })?;
            headers.push((name.clone(), value));
        }
        let (queue, receiver) = SpanQueue::new(config.queue_len_max);
        queue.rate().set_millionths(config.sample_millionths);
        let timeout = Duration::from_millis(config.timeout_ms);
        Ok(Some(TraceExport {
            policy: TracePolicy {
                accepts_parent: config.accept_parent,
            },
            receiver,
            client: CollectorClient::new(config, &headers, timeout)?,
            resource: resource(config),
            flush_timeout: timeout.min(FLUSH_TIMEOUT_MAX),
        }))
    }

    /// The queue of spans.
    pub fn queue(&self) -> &Arc<SpanQueue> {
        self.receiver.queue()
    }

    /// A tracer for a worker.
    pub fn tracer(&self) -> WorkerTracer {
        // The keys of a new state are random.
        let seed = [0_u8, 1].map(|index| RandomState::new().hash_one(index));
        WorkerTracer::new(self.policy, seed, self.queue().clone())
    }

    /// Starts the exporter's thread.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(self, logger: ErrorLogger) -> io::Result<TraceExportHandle> {
        let queue = self.queue().clone();
        let control = Arc::<exporter::ExporterControl>::default();
        let exporter = Mutex::new(Exporter::new(
            self.receiver,
            self.client,
            self.resource,
            logger,
            control.clone(),
            self.flush_timeout,
        ));
        let (end_sender, ended) = channel();
        let flush_timeout = self.flush_timeout;
        panic_policy::start("traces", move || {
            // After a panic the exporter is valid: at most one batch was lost.
            let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
            exporter.run();
            // The main thread may have stopped waiting.
            let _ = end_sender.send(());
        })?;
        Ok(TraceExportHandle {
            queue,
            exporter: control,
            ended,
            flush_timeout,
        })
    }
}

impl TraceExportHandle {
    /// Exports the pending spans, within a limited time.
    pub fn end(self) {
        self.exporter.request_end();
        self.queue.wake_exporter();
        // An export in progress may take its whole timeout, so the wait has its own; late spans are lost.
        let _ = self.ended.recv_timeout(self.flush_timeout + EXIT_GRACE);
    }
}

/// The value of a field: the only line of a file.
fn read_header_file(file: &Path) -> Result<String, String> {
    let bytes = secret_file::read(file).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let value = text.trim();
    let is_value_byte = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if value.is_empty() || !value.bytes().all(is_value_byte) {
        return Err("must contain the value of the field on one line, in ASCII".into());
    }
    Ok(value.to_owned())
}

/// The attributes of this server.
fn resource(config: &TracesConfig) -> ExportResource {
    let mut attributes = vec![("service.name".to_owned(), config.service_name.clone())];
    let given = config.resource.iter();
    attributes.extend(given.filter(|(name, _)| name != "service.name").cloned());
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    for (name, value) in [
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("host.name", host),
    ] {
        if !attributes.iter().any(|(given, _)| given == name) {
            attributes.push((name.to_owned(), value));
        }
    }
    ExportResource::new(&attributes, "lowroad", env!("CARGO_PKG_VERSION"))
}
