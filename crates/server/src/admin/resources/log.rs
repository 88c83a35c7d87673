//! `/v1/log`: the level of the error log, and the share of requests with recorded traces.

use lowroad_http::status::StatusCode;
use lowroad_log::LogLevel;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{changed, reply, tag};
use crate::admin::call::AdminCall;
use crate::admin::persistence::ChangePersistence;
use crate::admin::problem::AdminProblem;
use crate::admin::service::{AdminOutcome, AdminReply};
use crate::running_server::RunningServer;

/// The body of `PATCH /v1/log`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogPatch {
    level: Option<String>,
    /// 0 to 1.
    trace_sample: Option<f64>,
    #[serde(default)]
    persist: bool,
}

/// `GET /v1/log`
pub fn show(running: &RunningServer) -> AdminReply {
    let settings = settings(running);
    reply(&settings, &settings)
}

/// `PATCH /v1/log`
///
/// # Errors
/// The body is malformed, traces are not configured, or the condition does not hold.
pub fn change(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let patch: LogPatch = call.json()?;
    if patch.level.is_none() && patch.trace_sample.is_none() {
        return Err(AdminProblem::bad_request(
            "the body changes nothing: set level, trace_sample or both",
        ));
    }
    // All parts are checked before the first is applied.
    let level = patch.level.as_deref().map(level).transpose()?;
    let millionths = patch.trace_sample.map(millionths).transpose()?;
    // Traces can't be turned on here: their exporter is started with the server.
    let rate = running.traces.as_ref().map(|queue| queue.rate());
    if millionths.is_some() && rate.is_none() {
        return Err(AdminProblem::new(
            StatusCode::CONFLICT,
            "the configuration has no [traces]",
        ));
    }
    let before = settings(running);
    // The caller holds the server's lock, so the tag is that of the settings that are changed.
    call.check_match(&tag(&before))?;
    let persistence = ChangePersistence::begin(running, patch.persist)?;
    // From here on, only the write of the file can fail.
    if let Some(level) = level {
        running.logger.set_level(level);
    }
    if let (Some(rate), Some(millionths)) = (rate, millionths) {
        rate.set_millionths(millionths);
    }
    let saved = persistence.finish(|saved| {
        saved.log_level = patch.level.or(saved.log_level.take());
        saved.trace_sample = patch.trace_sample.or(saved.trace_sample);
    });
    let after = settings(running);
    saved.reply(changed(before, after.clone(), &after))
}

fn level(name: &str) -> Result<LogLevel, AdminProblem> {
    LogLevel::from_name(name).ok_or_else(|| {
        let names = LogLevel::ALL.map(LogLevel::as_str).join(", ");
        AdminProblem::bad_request(format!("level {name:?}: the levels are {names}"))
    })
}

fn millionths(share: f64) -> Result<u32, AdminProblem> {
    // Also refuses NaN, which is in no range.
    match (0.0..=1.0).contains(&share) {
        true => Ok((share * 1e6).round() as u32),
        false => Err(AdminProblem::bad_request(format!(
            "trace_sample {share}: allowed are 0 to 1"
        ))),
    }
}

fn settings(running: &RunningServer) -> Value {
    let millionths = running.traces.as_ref().map(|it| it.rate().millionths());
    json!({
        "level": running.logger.level().as_str(),
        "trace_sample": millionths.map(|millionths| f64::from(millionths) / 1e6),
    })
}
