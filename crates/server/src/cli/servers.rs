//! The arguments of commands for running servers: `reload`, `stop`, `purge` and `status`. The last two also concern the
//! softirq levels, where these are built in.

use std::path::PathBuf;

use clap::Args;

/// `lowroad purge`.
#[derive(Args)]
pub struct PurgeArgs {
    /// What: a URL, a URL with * at its end for all that begin so, host:NAME, tag:NAME, group:NAME, or `all`
    #[arg(value_name = "URL")]
    pub what: String,
    /// Only make it stale: it may still be used where stale responses may, and be validated
    #[arg(long)]
    pub soft: bool,
    /// Only what was asked at this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The server's admin socket, if it is not at the default place
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Levels and servers of which network namespace: a path, a process's number or a name of
    /// `ip netns`
    #[cfg(feature = "softirq")]
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}

/// `lowroad reload` and `lowroad stop`.
#[derive(Args)]
pub struct ControlArgs {
    /// The server's admin socket, if it is not at the default place, or several servers run
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
}

/// `lowroad status`.
#[derive(Args)]
pub struct StatusArgs {
    #[cfg_attr(
        feature = "softirq",
        doc = "The server's admin socket, if it is not at the default place; levels are not shown then"
    )]
    #[cfg_attr(
        not(feature = "softirq"),
        doc = "The server's admin socket, if it is not at the default place"
    )]
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Only the levels in front of ports, not the server
    #[cfg(feature = "softirq")]
    #[arg(long)]
    pub softirq: bool,
    /// Only the levels, as JSON
    #[cfg(feature = "softirq")]
    #[arg(long)]
    pub json: bool,
    /// Let the kernel count for a second how long the levels' programs run
    #[cfg(feature = "softirq")]
    #[arg(long)]
    pub stats: bool,
    /// Levels of which network namespace: a path, a process's number or a name of `ip netns`
    #[cfg(feature = "softirq")]
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}
