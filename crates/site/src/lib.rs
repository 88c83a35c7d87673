//! Sites: which one a request is for, and the decision about it (`answer`), from top to bottom; the response (`respond`),
//! its line in the log (`access`), and the same decision as a trace for operators (`explain`, `cause`).

#![forbid(unsafe_code)]

pub mod access;
pub mod answer;
pub mod cache_counters;
pub mod cause;
pub mod explain;
pub mod listeners;
mod respond;
pub mod sites;

#[cfg(feature = "softirq")]
use lowroad_softirq::fetch::recognition::is_from_daemon;

/// No soft-interrupt level is built in.
#[cfg(not(feature = "softirq"))]
fn is_from_daemon(_: Option<&[u8]>, _: std::net::IpAddr) -> bool {
    false
}
