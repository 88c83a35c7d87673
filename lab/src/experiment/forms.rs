//! SPECweb99-like dynamic runs: before a run, the server creates new ads and empties its log of POSTed forms; after the
//! run, the log must contain the forms that the clients sent.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use super::bench::MeasurementJob;
use super::fetch::get;
use crate::load::LoadResult;
use crate::peers::fronts::has_front;
use crate::workload::specweb99::{DEFAULT_CONNECTIONS, PostLog, fetch_target, reset_target};

const SCRIPT: &str = "/specweb99.php";

/// Whether a job has dynamic requests of SPECweb99.
pub fn is_dynamic(job: &MeasurementJob) -> bool {
    let share = job.settings.get("dynamic").map(String::as_str);
    job.workload == "specweb99" && share != Some("0")
}

/// Whether a job has pages generated from a database.
pub fn has_pages(job: &MeasurementJob) -> bool {
    let share = job.settings.get("dynamic").map(String::as_str);
    job.workload == "bare" && !matches!(share, None | Some("0"))
}

/// Whether a job has dynamic requests that its server answers.
pub fn has_forms(job: &MeasurementJob) -> bool {
    let peer = &job.server.peer;
    is_dynamic(job) && (peer.ends_with("-php") || has_front(peer))
}

/// Resets the server's ads and log.
///
/// # Errors
/// The reset failed.
pub fn begin(address: SocketAddr, job: &MeasurementJob) -> Result<(), String> {
    let users = job.settings.get("connections");
    let users = users.and_then(|text| text.parse().ok());
    let run_s = (job.warmup_s + job.duration_s).ceil() as u64 + 1;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |duration| duration.as_secs());
    let target = reset_target(
        job.settings.get("script").map_or(SCRIPT, String::as_str),
        users.unwrap_or(DEFAULT_CONNECTIONS),
        run_s,
        (now_s % 360) as u32,
    );
    get(address, &target).map(drop)
}

/// Checks that the server has logged the forms that it answered.
///
/// # Errors
/// Forms are missing, or the log is malformed.
pub fn check(
    address: SocketAddr,
    job: &MeasurementJob,
    outcome: &LoadResult,
) -> Result<(), String> {
    let script = job.settings.get("script").map_or(SCRIPT, String::as_str);
    let log = PostLog::parse(&get(address, &fetch_target(script))?)?;
    let posts = outcome.classes.iter().filter(|class| class.name == "POST");
    // The log includes the forms of the warm-up, so the number of sent forms is no upper bound.
    log.compare(posts.map(|class| class.requests).sum(), u64::MAX)
}
