//! The softirq level's commands in a build without the feature. Commands that also concern servers query only servers.

use lowroad_config::BuildFeature;
use lowroad_response_cache::purge::{self, PurgeTarget};

use crate::cli::ExplainArgs;
use crate::cli::servers::{PurgeArgs, StatusArgs, TopArgs};
use crate::cli::softirq::{AttachArgs, DetachArgs, DoctorArgs};
use crate::{admin, features, terminal_output};

/// The level in front of this server.
pub mod managed_level {
    use std::sync::Arc;

    use lowroad_config::{AccessLogConfig, BuildFeature, Config, SoftirqMode};
    use lowroad_log::{ErrorLogger, LineSink};
    use lowroad_store::change_feed::ChangeFeed;

    use crate::features;
    use crate::level::{LevelStart, ManagedLevel};

    /// Returns an error if the level is configured.
    pub fn start(
        config: &Config,
        _: Vec<(LineSink, AccessLogConfig)>,
        _: &ErrorLogger,
        _: &Arc<ChangeFeed>,
        _: LevelStart,
    ) -> Result<ManagedLevel, String> {
        match &config.server.softirq {
            SoftirqMode::Off => Ok(ManagedLevel::default()),
            _ => features::need(BuildFeature::Softirq, "softirq").map(|()| ManagedLevel::default()),
        }
    }
}

/// `lowroad explain`.
pub fn explain(args: &ExplainArgs) -> Result<(), String> {
    match args.netns {
        Some(_) => unavailable("--netns"),
        None => admin::print_explanation(args, admin::EVERY_SERVER),
    }
}

/// `lowroad status`.
pub fn status(args: &StatusArgs) -> Result<(), String> {
    let admin = args.admin.as_deref();
    if args.json {
        let value = serde_json::json!({"servers": admin::status_values(admin)?});
        return terminal_output::json(&value);
    }
    admin::print_status(admin)
}

/// The levels for the dashboard: this build has none.
pub fn level_values() -> Option<Vec<serde_json::Value>> {
    None
}

/// `lowroad purge`.
pub fn purge(args: &PurgeArgs) -> Result<(), String> {
    let _: PurgeTarget = args.what.parse()?;
    let servers =
        admin::request_purge(args, admin::EVERY_SERVER).map_err(admin::PurgeFailure::into_text)?;
    terminal_output::out(format_args!("{}\n", purge::summary(&servers, args.soft)))
}

/// `lowroad attach`.
pub fn attach(_: &AttachArgs) -> Result<(), String> {
    unavailable("lowroad attach")
}

/// `lowroad detach`.
pub fn detach(_: &DetachArgs) -> Result<(), String> {
    unavailable("lowroad detach")
}

/// `lowroad doctor`.
pub fn doctor(_: &DoctorArgs) -> Result<(), String> {
    unavailable("lowroad doctor")
}

/// The pages about levels: this build has none.
pub struct LevelPages;

impl LevelPages {
    /// Returns an error.
    pub fn open(_: &TopArgs) -> Result<LevelPages, String> {
        unavailable("the fast path").map(|()| LevelPages)
    }

    /// Never called, because there are no pages.
    pub fn next_page(&mut self, _: usize) -> Result<String, String> {
        unavailable("the fast path").map(|()| String::new())
    }
}

fn unavailable(command: &str) -> Result<(), String> {
    features::need(BuildFeature::Softirq, command)
}
