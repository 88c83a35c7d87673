//! The softirq level in a build without it. Commands that concern servers, too, query only servers.

use lowroad_config::Feature;
use lowroad_response_cache::purge::{Meant, NOTHING_MEANT};

use crate::cli::Explain;
use crate::cli::servers::{Purge, Status};
use crate::cli::softirq::{Attach, Detach, Doctor, Top};
use crate::{admin, features, say};

/// The level in front of this server.
pub mod own {
    use std::sync::Arc;

    use lowroad_config::{Config, Feature, Format, Softirq};
    use lowroad_log::{Logger, Sink};
    use lowroad_store::changes::Changes;

    use crate::features;
    use crate::level::ManagedLevel;

    /// Refuses the level if it is configured.
    pub fn start(
        config: &Config,
        _: Option<(Sink, Format)>,
        _: &Logger,
        _: &Arc<Changes>,
    ) -> Result<ManagedLevel, String> {
        match &config.server.softirq {
            Softirq::Off => Ok(ManagedLevel::default()),
            _ => features::need(Feature::Softirq, "softirq").map(|()| ManagedLevel::default()),
        }
    }
}

/// `lowroad explain`.
pub fn explain(args: &Explain) -> Result<(), String> {
    match args.netns {
        Some(_) => lacking("--netns"),
        None => admin::ask_to_explain(args, admin::EVERY_SERVER),
    }
}

/// `lowroad status`.
pub fn status(args: &Status) -> Result<(), String> {
    admin::ask_status(args.admin.as_deref())
}

/// `lowroad purge`.
pub fn purge(args: &Purge) -> Result<(), String> {
    let _: Meant = args.what.parse()?;
    let servers = admin::ask_to_purge(args, admin::EVERY_SERVER);
    if servers.is_empty() {
        return Err(format!(
            "{}: no server that may be asked was found",
            args.what
        ));
    }
    match servers.iter().all(|server| server.is_unmatched) {
        true => say::out(NOTHING_MEANT),
        false => say::out("purged at once\n"),
    }
}

/// `lowroad attach`.
pub fn attach(_: &Attach) -> Result<(), String> {
    lacking("lowroad attach")
}

/// `lowroad detach`.
pub fn detach(_: &Detach) -> Result<(), String> {
    lacking("lowroad detach")
}

/// `lowroad doctor`.
pub fn doctor(_: &Doctor) -> Result<(), String> {
    lacking("lowroad doctor")
}

/// `lowroad top`.
pub fn top(_: &Top) -> Result<(), String> {
    lacking("lowroad top")
}

fn lacking(what: &str) -> Result<(), String> {
    features::need(Feature::Softirq, what)
}
