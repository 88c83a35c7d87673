//! The arguments of commands for running servers: `reload`, `stop`, `dashboard`, `purge` and `status`. `purge` and
//! `status` also act on attached softirq levels.

use std::path::PathBuf;

use clap::Args;

/// `lowroad purge`.
#[derive(Args)]
pub struct PurgeArgs {
    /// What to purge: a URL, a URL with * at its end for all with that prefix, host:NAME, tag:NAME, group:NAME, or `all`
    #[arg(value_name = "URL")]
    pub what: String,
    /// Only make responses stale: they can be validated, and served where stale responses are allowed
    #[arg(long)]
    pub soft: bool,
    /// Only responses to requests at this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The server's admin socket, if it is not at the default path
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// The network namespace of the levels and servers: a path, a process ID, or a name of
    /// `ip netns`
    #[cfg(feature = "softirq")]
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}

/// `lowroad reload` and `lowroad stop`.
#[derive(Args)]
pub struct ControlArgs {
    /// The server's admin socket, if it is not at the default path, or several servers run
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
}

/// `lowroad dashboard`.
#[derive(Args)]
pub struct DashboardArgs {
    /// The server's admin socket, if it is not at the default place, or several servers run
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Only show: refuse to purge
    #[arg(long)]
    pub read_only: bool,
}

/// `lowroad status`.
#[derive(Args)]
pub struct StatusArgs {
    #[cfg_attr(
        feature = "softirq",
        doc = "The server's admin socket, if it is not at the default path; levels are not shown then"
    )]
    #[cfg_attr(
        not(feature = "softirq"),
        doc = "The server's admin socket, if it is not at the default path"
    )]
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Only attached levels, not the server
    #[cfg(feature = "softirq")]
    #[arg(long)]
    pub softirq: bool,
    #[cfg_attr(
        feature = "softirq",
        doc = "Print JSON: all metrics of the server, and the attached levels"
    )]
    #[cfg_attr(
        not(feature = "softirq"),
        doc = "Print all metrics of the server as JSON"
    )]
    #[arg(long)]
    pub json: bool,
    /// Measure the run times of the levels' programs for a second
    #[cfg(feature = "softirq")]
    #[arg(long)]
    pub stats: bool,
    /// The network namespace of the levels: a path, a process ID, or a name of `ip netns`
    #[cfg(feature = "softirq")]
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}
