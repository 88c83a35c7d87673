//! Texts that dashboards show in addition to the metrics: reasons of failures, and the latest errors and warnings.

use lowroad_log::LoggedMessage;
use serde_json::{Value, json};

use super::hot_urls::HotUrls;
use super::upstreams::ServerLabels;
use crate::running_server::RunningServer;

/// The notes of one moment.
#[derive(Default)]
pub struct SnapshotNotes {
    /// Health and latest failure of each upstream server.
    upstreams: Vec<Value>,
    /// Certificates with a failed last renewal.
    certificates: Vec<Value>,
    /// The URLs with the most requests.
    urls: HotUrls,
    /// The last errors and warnings, oldest first.
    errors: Vec<LoggedMessage>,
}

impl SnapshotNotes {
    /// The notes of the running server.
    pub fn new(running: &RunningServer) -> SnapshotNotes {
        let servers = running.handler_runtime.origins().servers;
        let upstreams = servers.iter().map(|server| {
            let labels = ServerLabels::new(server);
            let health = server.member.as_ref().map(|member| &member.health);
            json!({
                "origin": labels.origin,
                "server": labels.server,
                "health": health,
                "latest_failure": server.latest_failure,
            })
        });
        let certificates = running.tls.certificates();
        let failed = certificates.iter().filter_map(|it| {
            let error = it.last_error.as_ref()?;
            Some(json!({"names": it.names, "source": it.source, "last_error": error}))
        });
        SnapshotNotes {
            upstreams: upstreams.collect(),
            certificates: failed.collect(),
            urls: HotUrls::new(running),
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
