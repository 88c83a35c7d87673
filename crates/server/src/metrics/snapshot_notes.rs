//! Texts that dashboards show in addition to the metrics: reasons of failures, and the latest errors and warnings.

use lowroad_log::LoggedMessage;
use serde_json::{Value, json};

use super::certificates;
use super::hot_urls::{HotUrls, QueryValues};
use super::upstreams::ServerLabels;
use crate::running_server::RunningServer;

/// The notes of one moment.
#[derive(Default)]
pub struct SnapshotNotes {
    /// State, health and latest failure of each upstream server.
    upstreams: Vec<Value>,
    /// The certificates: names, last valid second, next renewal, and the error of the last one.
    certificates: Vec<Value>,
    /// The URLs with the most requests.
    urls: HotUrls,
    /// The last errors and warnings, oldest first.
    errors: Vec<LoggedMessage>,
}

impl SnapshotNotes {
    /// The notes of the running server.
    pub fn new(running: &RunningServer, query_values: QueryValues) -> SnapshotNotes {
        let servers = running.handler_runtime.origins().servers;
        let upstreams = servers.iter().map(|server| {
            let labels = ServerLabels::new(server);
            let health = server.member.as_ref().map(|member| &member.health);
            json!({
                "origin": labels.origin,
                "server": labels.server,
                "state": server.mode.as_str(),
                "health": health,
                "latest_failure": server.latest_failure.as_ref().map(|it| &it.reason),
                "latest_failure_s": server.latest_failure.as_ref().map(|it| it.unix_s),
            })
        });
        let certificates = certificates::list(running).into_iter().map(|it| {
            json!({
                "names": it.names,
                "source": it.source,
                "not_after_s": it.not_after_s,
                "renewal_s": it.renewal_s,
                "last_error": it.last_error,
            })
        });
        SnapshotNotes {
            upstreams: upstreams.collect(),
            certificates: certificates.collect(),
            urls: HotUrls::new(running, query_values),
            errors: running.logger.latest(),
        }
    }

    /// Adds the notes to a snapshot.
    pub fn add_to(self, snapshot: &mut Value) {
        let errors = self.errors.into_iter().map(|message| {
            json!({
                "time_ms": message.unix_ms,
                "level": message.level.as_str(),
                "message": message.text,
            })
        });
        snapshot["upstreams"] = Value::Array(self.upstreams);
        snapshot["certificates"] = Value::Array(self.certificates);
        snapshot["urls"] = self.urls.to_json();
        snapshot["errors"] = Value::Array(errors.collect());
    }
}
