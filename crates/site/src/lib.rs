//! Sites: selects the site of a request and decides about it (`decision`), writes the response (`responder`), and logs
//! and counts it (`access`, `request_metrics`, `url_sampler`). `explain` and `explain_files` trace the same decision for operators.

#![forbid(unsafe_code)]

pub mod access;
mod access_details;
mod access_filter;
pub mod access_sink;
mod access_upstream;
pub mod answering_rule;
pub mod cache_counters;
pub mod decision;
pub mod explain;
pub mod explain_files;
mod explain_notes;
mod file_switches;
pub mod listeners;
pub mod maintenance;
pub mod request_metrics;
pub mod request_traces;
mod responder;
pub mod sites;
pub mod url_sampler;
pub mod url_table;

#[cfg(feature = "softirq")]
use lowroad_softirq::fetch::recognition::is_from_daemon;

/// In a build without the soft-interrupt level, no request comes from its daemon.
#[cfg(not(feature = "softirq"))]
fn is_from_daemon(_: Option<&[u8]>, _: std::net::IpAddr) -> bool {
    false
}
