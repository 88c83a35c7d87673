//! Creates the handlers of a configuration, and owns the runtime on which they work.

use std::io;
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::RouteTo;
use lowroad_engine::WorkerHandle;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::spool::{BufferingHandler, SpoolAccount, SpoolLimits};
use lowroad_handler::upstream_status::UpstreamReport;
use lowroad_log::ErrorLogger;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;

use crate::compression_handler::{self, CompressingHandler, CompressionLimits};
use crate::conditions::{self, VaryingHandler};
use crate::handler_kinds::{
    self, HandlerKind, LabelledHandler, OpenContext, OpenedKind, RouteContext,
};
use crate::lane_threads::LaneThreads;
use crate::routes::{Route, RouteTable};

/// The runtime of handlers.
pub struct HandlerRuntime {
    lanes: LaneThreads,
    logger: ErrorLogger,
    workers: Vec<WorkerHandle>,
    kinds: Vec<Arc<dyn HandlerKind>>,
    /// The account of spooled bodies, for all configurations.
    account: Arc<SpoolAccount>,
    compression_counters: Arc<compression_handler::CompressionCounters>,
}

/// The handlers of one configuration.
pub struct HandlerSet<'p> {
    handler_runtime: &'p HandlerRuntime,
    kinds: OpenedKinds,
    spools: Arc<SpoolLimits>,
    compressors: Arc<CompressionLimits>,
}

/// The kinds of handlers of a configuration in force.
pub struct OpenedKinds(Vec<Box<dyn OpenedKind>>);

impl OpenedKinds {
    /// Counters, by module.
    pub fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        self.0.iter().flat_map(|kind| kind.counts()).collect()
    }
}

impl HandlerRuntime {
    /// Starts the threads on which handlers run, one for each of these workers.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(logger: ErrorLogger, workers: Vec<WorkerHandle>) -> io::Result<HandlerRuntime> {
        let notice_logger = logger.clone();
        let notice: OperatorNotice =
            Arc::new(move |text| notice_logger.warn(format_args!("{text}")));
        Ok(HandlerRuntime {
            lanes: LaneThreads::start(workers.len())?,
            kinds: handler_kinds::built_in(&workers, notice).map_err(io::Error::other)?,
            logger,
            workers,
            account: Arc::new(SpoolAccount::new(temp_files_max())),
            compression_counters: Arc::default(),
        })
    }

    /// The runtime for a worker's calls.
    pub fn runtime(&self, worker: usize) -> Handle {
        self.lanes.handle(worker)
    }

    /// Deletes stored pages from this store when their templates change, and reports that to `change_feed`.
    pub fn drop_changed(&self, store: &Arc<SharedStore>, changes: &Arc<ChangeFeed>) {
        let kinds = self.kinds.iter();
        kinds.for_each(|kind| kind.drop_changed(store, changes));
    }

    /// Cancels all running calls.
    pub fn end(&mut self) {
        // Before the lane threads, on which the workers' tasks may have started work.
        self.workers.iter().for_each(|worker| worker.tasks.end());
        self.lanes.end();
        self.kinds.iter().for_each(|kind| kind.end());
    }

    /// Creates the handlers that a configuration's routes name.
    ///
    /// # Errors
    /// A handler can't be created; the text gives the reason and the remedy.
    pub fn open(&self, config: &config::Config) -> Result<HandlerSet<'_>, String> {
        let runtime = self.runtime(0);
        // Handlers may create timers and sockets, which need a runtime.
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
        let notice: OperatorNotice = Arc::new(move |text| logger.warn(format_args!("{text}")));
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

    /// The servers of origins.
    pub fn origins(&self) -> UpstreamReport {
        let mut report = UpstreamReport::default();
        for kind in &self.kinds {
            report.append(kind.origins());
        }
        report
    }

    /// The counters by kind: WebAssembly modules, pages, spooled bodies and compression.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let spooled = self.account.list();
        let compression = self.compression_counters.list();
        let kinds = self.kinds.iter().flat_map(|kind| kind.counts());
        kinds.chain(spooled).chain(compression).collect()
    }
}

impl HandlerSet<'_> {
    /// The routes of a site.
    ///
    /// # Errors
    /// As for `HandlerRuntime::open`.
    pub fn routes(&self, site: &config::SiteConfig) -> Result<RouteTable, String> {
        let vary = conditions::vary(&site.routes);
        let depends_on_reports = conditions::depend_on_reports(&site.routes);
        let routes = site.routes.iter().map(|rules| {
            let (label, mut handler) = self.handler(rules, site.symlinks)?;
            // All routes of the site: a cache must know the fields that chose among them.
            if let Some(vary) = vary.clone() {
                let inner = handler;
                handler = Arc::new(VaryingHandler { inner, vary });
            }
            let needs_length = matches!(rules.to, RouteTo::Cgi(_) | RouteTo::FastCgi(_));
            // CGI needs CONTENT_LENGTH before the body (RFC 3875 §4.1.2), so a chunked body is buffered.
            if !rules.request_buffering && needs_length {
                handler = Arc::new(BufferingHandler::without_length(
                    handler,
                    self.spools.clone(),
                ));
            }
            if rules.request_buffering {
                handler = Arc::new(BufferingHandler::new(handler, self.spools.clone()));
            }
            let handler =
                CompressingHandler::wrap(handler, rules, &site.compress, &self.compressors);
            let spools = rules.response_buffering.then(|| self.spools.clone());
            let mut route = Route::new(rules, label, handler, spools);
            // Reports of proxies are not part of any key.
            route.never_stores |= depends_on_reports;
            Ok(route)
        });
        let routes = routes.collect::<Result<_, String>>()?;
        Ok(RouteTable::new(routes, &site.routes))
    }

    /// The kinds of handlers, once all routes are created.
    pub fn kinds(self) -> OpenedKinds {
        self.kinds
    }

    /// A route's handler and its label.
    fn handler(
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

/// The maximum number of bodies in files: a quarter of the descriptors, since connections need most of them.
fn temp_files_max() -> u64 {
    // Connections need the larger part of the descriptors.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}
