//! Creates the handlers of a configuration, and owns the runtime on which they run.

use std::io;
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::RouteTo;
use lowroad_engine::WorkerHandle;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::origin_control::OriginControl;
use lowroad_handler::spool::{BufferingHandler, SpoolAccount, SpoolLimits};
use lowroad_handler::upstream_status::UpstreamReport;
use lowroad_log::ErrorLogger;
use lowroad_request_conditions::FindSwitch;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use rustix::process::{Resource, getrlimit};
/// A handle to the async runtime of a worker's calls.
pub use tokio::runtime::Handle as RuntimeHandle;

use crate::compression_handler::{self, CompressingHandler, CompressionLimits};
use crate::conditions::{self, DependentHandler};
use crate::handler_kinds::{
    self, HandlerKind, LabelledHandler, OpenContext, OpenedKind, RouteContext,
};
use crate::lane_threads::LaneThreads;
use crate::request_dependences;
use crate::routes::{Route, RouteTable};

/// The runtime of all handlers.
pub struct HandlerRuntime {
    lanes: LaneThreads,
    logger: ErrorLogger,
    workers: Vec<WorkerHandle>,
    kinds: Vec<Arc<dyn HandlerKind>>,
    /// The disk space used by spooled bodies of all configurations.
    account: Arc<SpoolAccount>,
    compression_counters: Arc<compression_handler::CompressionCounters>,
}

/// The handlers of a configuration.
pub struct HandlerSet<'p> {
    handler_runtime: &'p HandlerRuntime,
    kinds: OpenedKinds,
    spools: Arc<SpoolLimits>,
    compressors: Arc<CompressionLimits>,
}

/// The opened handler kinds of the configuration in force.
pub struct OpenedKinds(Vec<Box<dyn OpenedKind>>);

impl OpenedKinds {
    /// Counters, by module.
    pub fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        self.0.iter().flat_map(|kind| kind.counts()).collect()
    }
}

impl HandlerRuntime {
    /// Starts the threads on which handlers run, one for each worker.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(logger: ErrorLogger, workers: Vec<WorkerHandle>) -> io::Result<HandlerRuntime> {
        let notice_logger = logger.clone();
        let notice: OperatorNotice =
            Arc::new(move |text, _| notice_logger.warn(format_args!("{text}")));
        Ok(HandlerRuntime {
            lanes: LaneThreads::start(workers.len())?,
            kinds: handler_kinds::built_in(&workers, notice).map_err(io::Error::other)?,
            logger,
            workers,
            account: Arc::new(SpoolAccount::new(temp_files_max())),
            compression_counters: Arc::default(),
        })
    }

    /// The runtime for calls of a worker.
    pub fn runtime(&self, worker: usize) -> RuntimeHandle {
        self.lanes.handle(worker)
    }

    /// Purges stored pages from `store` when their templates change, and reports that to `changes`.
    pub fn drop_changed(&self, store: &Arc<SharedStore>, changes: &Arc<ChangeFeed>) {
        let kinds = self.kinds.iter();
        kinds.for_each(|kind| kind.drop_changed(store, changes));
    }

    /// Cancels all calls in progress.
    pub fn end(&mut self) {
        // The workers' tasks are ended before the lane threads, on which they may have started work.
        self.workers.iter().for_each(|worker| worker.tasks.end());
        self.lanes.end();
        self.kinds.iter().for_each(|kind| kind.end());
    }

    /// Creates the handlers to which the routes of a configuration refer.
    ///
    /// # Errors
    /// A handler cannot be created; the text contains the reason and a remedy.
    pub fn open(&self, config: &config::Config) -> Result<HandlerSet<'_>, String> {
        let runtime = self.runtime(0);
        // Handlers may create timers and sockets, which requires a runtime context.
        let _context = runtime.enter();
        let context = OpenContext {
            workers: self.workers.len(),
            logger: &self.logger,
            runtime: &runtime,
        };
        let kinds = self.kinds.iter().cloned();
        let kinds = kinds.map(|kind| kind.open(config, &context));
        let kinds = OpenedKinds(kinds.collect::<Result<_, _>>()?);
        let logger = self.logger.clone();
        let notice: OperatorNotice = Arc::new(move |text, _| logger.warn(format_args!("{text}")));
        let compressors = CompressionLimits::new(
            config.limits.compressors_max,
            self.compression_counters.clone(),
        );
        Ok(HandlerSet {
            handler_runtime: self,
            compressors: Arc::new(compressors),
            spools: SpoolLimits::open(&config.buffering, self.account.clone(), notice)?,
            kinds,
        })
    }

    /// The key that signs the cookies of sticky sessions, for a process that takes over from this one.
    pub fn session_key(&self) -> Option<Vec<u8>> {
        self.kinds.iter().find_map(|kind| kind.session_key())
    }

    /// Replaces the key by that of the process from which this one takes over, before [`HandlerRuntime::open`].
    pub fn set_session_key(&self, key: &[u8]) {
        self.kinds.iter().for_each(|kind| kind.set_session_key(key));
    }

    /// Lists and changes the servers of origins; `None` in a build without reverse proxy.
    pub fn origin_control(&self) -> Option<&dyn OriginControl> {
        self.kinds.iter().find_map(|kind| kind.origin_control())
    }

    /// Removes state of earlier configurations. Called when this one is in force, after its handlers were opened.
    pub fn config_applied(&self, config: &config::Config) {
        self.kinds
            .iter()
            .for_each(|kind| kind.config_applied(config));
    }

    /// The state of all origin servers.
    pub fn origins(&self) -> UpstreamReport {
        let mut report = UpstreamReport::default();
        for kind in &self.kinds {
            report.append(kind.origins());
        }
        report
    }

    /// The counters of all kinds of handlers, of spooled bodies and of compression.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let spooled = self.account.list();
        let compression = self.compression_counters.list();
        let kinds = self.kinds.iter().flat_map(|kind| kind.counts());
        kinds.chain(spooled).chain(compression).collect()
    }
}

impl HandlerSet<'_> {
    /// Creates the routes of a site. `find_switch` finds the switch of a file in a condition.
    ///
    /// # Errors
    /// As for `HandlerRuntime::open`.
    pub fn routes(
        &self,
        site: &config::SiteConfig,
        find_switch: FindSwitch<'_>,
    ) -> Result<RouteTable, String> {
        let protected_fields: Arc<[Box<str>]> = site.protected_fields().map(Box::from).collect();
        let selection = conditions::selection(&site.routes);
        let routes = site.routes.iter().map(|rules| {
            let (label, mut handler) = self.handler(rules, site.symlinks)?;
            // All routes of the site have the dependence of their selection: each of them must describe it to caches.
            let mut dependence = request_dependences::dependence(rules);
            dependence.add(&selection);
            let is_private = dependence.is_private;
            if !dependence.is_empty() {
                handler = Arc::new(DependentHandler {
                    inner: handler,
                    dependence: Arc::new(dependence),
                });
            }
            let needs_length = matches!(rules.to, RouteTo::Cgi(_) | RouteTo::FastCgi(_));
            // CGI requires CONTENT_LENGTH before the body (RFC 3875 §4.1.2), so a chunked body is buffered.
            if !rules.buffers_requests() && needs_length {
                handler = Arc::new(BufferingHandler::without_length(
                    handler,
                    self.spools.clone(),
                ));
            }
            if rules.buffers_requests() {
                handler = Arc::new(BufferingHandler::new(handler, self.spools.clone()));
            }
            let handler =
                CompressingHandler::wrap(handler, rules, &site.compress, &self.compressors);
            let spools = rules.response_buffering.then(|| self.spools.clone());
            let mut route = Route::new(rules, label, handler, spools, find_switch);
            // The stored response of one route could be sent for a request to another.
            route.never_stores |= is_private;
            route.protected_fields = protected_fields.clone();
            Ok(route)
        });
        let routes = routes.collect::<Result<_, String>>()?;
        Ok(RouteTable::new(routes, &site.routes))
    }

    /// The worker that runs the tasks of all workers.
    pub(crate) fn first_worker(&self) -> &WorkerHandle {
        &self.handler_runtime.workers[0]
    }

    /// The opened handler kinds; called after all routes were created.
    pub fn kinds(self) -> OpenedKinds {
        self.kinds
    }

    /// Creates the handler of a route, and its label.
    pub(crate) fn handler(
        &self,
        rules: &config::RouteConfig,
        symlinks: config::SymlinkPolicy,
    ) -> Result<LabelledHandler, String> {
        let route = RouteContext {
            rules,
            symlinks,
            logger: &self.handler_runtime.logger,
            spools: rules.response_buffering.then(|| self.spools.clone()),
        };
        let mut found = self.kinds.0.iter().filter_map(|kind| kind.handler(&route));
        let missing_kind = || Err("a route whose handler this build lacks".into());
        found.next().unwrap_or_else(missing_kind)
    }
}

/// The maximum number of bodies in files: a quarter of the descriptor limit.
fn temp_files_max() -> u64 {
    // Most descriptors are needed for connections.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}
