//! The kinds of handlers (modules, gateways, pages), each of which a build may omit. All implement one trait, so that
//! only the list of built-in kinds depends on cargo features. A configuration that uses a missing kind was refused
//! before, with line and key (`lowroad_config::BuildFeature`).

use std::sync::Arc;

use lowroad_config::{Config, RouteConfig, SymlinkPolicy};
use lowroad_engine::WorkerHandle;
use lowroad_handler::Handler;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::origin_control::OriginControl;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::upstream_status::UpstreamReport;
use lowroad_log::{ErrorLogger, LogLevel};
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use tokio::runtime::Handle;

/// A label for logs and explanations, and the handler.
pub type LabelledHandler = (String, Arc<dyn Handler>);

/// The environment in which the handlers of a configuration are opened.
pub struct OpenContext<'a> {
    /// The number of workers.
    pub workers: usize,
    /// The error log.
    pub logger: &'a ErrorLogger,
    /// A runtime for work that must not block workers.
    pub runtime: &'a Handle,
}

/// A route for which a handler is created.
pub struct RouteContext<'a> {
    /// The configuration of the route.
    pub rules: &'a RouteConfig,
    /// Which symbolic links the site follows.
    pub symlinks: SymlinkPolicy,
    /// The error log.
    pub logger: &'a ErrorLogger,
    /// Spool files for responses with slow clients.
    pub spools: Option<Arc<SpoolLimits>>,
}

impl RouteContext<'_> {
    /// A callback that logs the reports of a handler, preceded by its label if it has one.
    pub fn notice(&self, label: Option<&str>) -> OperatorNotice {
        let (logger, label) = (self.logger.clone(), label.map(|label| format!("{label}: ")));
        Arc::new(move |text, request| {
            let message = format_args!("{}{text}", label.as_deref().unwrap_or_default());
            match request {
                Some(request) => logger.log_request(LogLevel::Warn, message, request),
                None => logger.warn(message),
            }
        })
    }
}

/// A kind of handlers, across all configurations.
pub trait HandlerKind: Send + Sync {
    /// Opens the handlers to which the routes of a configuration refer.
    ///
    /// # Errors
    /// A text for the operator: the failure, its reason and a remedy.
    fn open(
        self: Arc<Self>,
        config: &Config,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn OpenedKind>, String>;

    /// Counters.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The state of origin servers.
    fn origins(&self) -> UpstreamReport {
        UpstreamReport::default()
    }

    /// Lists and changes the servers of origins for operators.
    fn origin_control(&self) -> Option<&dyn OriginControl> {
        None
    }

    /// Forgets state of earlier configurations, when this one is in force.
    fn config_applied(&self, _config: &Config) {}

    /// The key that signs the cookies of sticky sessions, for a process that takes over from this one.
    fn session_key(&self) -> Option<Vec<u8>> {
        None
    }

    /// Replaces the key by that of the process from which this one takes over, before [`HandlerKind::open`].
    fn set_session_key(&self, _key: &[u8]) {}

    /// Purges stored responses from `store` when their sources change, and reports that to `changes`.
    fn drop_changed(&self, _store: &Arc<SharedStore>, _changes: &Arc<ChangeFeed>) {}

    /// Ends the processes that the handlers have started.
    fn end(&self) {}
}

/// A kind of handlers, for one configuration.
pub trait OpenedKind: Send {
    /// The handler of a route; `None` if the route is of another kind.
    fn handler(&self, route: &RouteContext<'_>) -> Option<Result<LabelledHandler, String>>;

    /// Counters, by module.
    fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        Vec::new()
    }
}

/// The kinds of handlers in this build. `notice` receives reports that do not concern a particular route.
///
/// # Errors
/// The system provides no random bytes.
#[allow(unused_variables, reason = "a build may lack the kinds that need them")]
pub fn built_in(
    workers: &[WorkerHandle],
    notice: OperatorNotice,
) -> Result<Vec<Arc<dyn HandlerKind>>, String> {
    Ok(into_vec([
        #[cfg(feature = "modules")]
        Arc::new(crate::modules::ModuleRuntimes::default()),
        #[cfg(feature = "programs")]
        Arc::new(crate::gateway_handlers::GatewayConnections::new(
            workers, notice,
        )?),
        #[cfg(feature = "sql")]
        Arc::new(crate::pages::FormKeys::new()?),
    ]))
}

fn into_vec<const N: usize>(kinds: [Arc<dyn HandlerKind>; N]) -> Vec<Arc<dyn HandlerKind>> {
    kinds.into()
}
