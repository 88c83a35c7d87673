//! Sites: choosing the site of a request and deciding its answer (`decision`), writing the response (`responder`),
//! logging and counting it (`access`, `request_metrics`), and the same decision as a trace for operators (`explain`, `explain_files`).

#![forbid(unsafe_code)]

pub mod access;
mod access_sink;
pub mod cache_counters;
pub mod decision;
pub mod explain;
pub mod explain_files;
pub mod listeners;
pub mod request_metrics;
mod responder;
pub mod sites;

#[cfg(feature = "softirq")]
use lowroad_softirq::fetch::recognition::is_from_daemon;

/// Without the soft-interrupt level, no request comes from its daemon.
#[cfg(not(feature = "softirq"))]
fn is_from_daemon(_: Option<&[u8]>, _: std::net::IpAddr) -> bool {
    false
}
