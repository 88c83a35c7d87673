//! The arguments of commands for running servers: `reload`, `stop`, `dashboard`, `top`, `purge` and `status`. The last
//! three also act on attached softirq levels.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::origin::wait_time;

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

/// `lowroad upgrade`.
#[derive(Args)]
pub struct UpgradeArgs {
    /// The server
    #[command(flatten)]
    pub server: ControlArgs,
    /// Wait until the processes before the new one have ended, at most this time
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "60s",
        value_parser = wait_time
    )]
    pub wait: Option<Duration>,
}

/// `lowroad reload` and `lowroad stop`, and a part of `lowroad upgrade`.
#[derive(Args)]
pub struct ControlArgs {
    /// The server's admin socket, if it is not at the default path, or several servers run
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
}

/// `lowroad maintenance`.
#[derive(Args)]
pub struct MaintenanceArgs {
    /// Whether requests get 503
    pub mode: MaintenanceSwitch,
    /// Only this site: its first name
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// The server's admin socket, if it is not at the default path, or several servers run
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
}

/// The modes of `lowroad maintenance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MaintenanceSwitch {
    /// Answer with 503
    On,
    /// Answer requests normally
    Off,
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

/// `lowroad top`.
#[derive(Args)]
pub struct TopArgs {
    /// Seconds between two samples; those of a server come each second
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// End after this many samples [default: never on a terminal, else 1]
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,
    /// Print one report as text, also on a terminal
    #[arg(long)]
    pub once: bool,
    #[cfg_attr(
        feature = "softirq",
        doc = "The server's admin socket, if it is not at the default path, or several servers run; levels in the kernel are not shown then"
    )]
    #[cfg_attr(
        not(feature = "softirq"),
        doc = "The server's admin socket, if it is not at the default path, or several servers run"
    )]
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Do not measure the run times of the levels' programs, which costs each run some nanoseconds
    #[cfg(feature = "softirq")]
    #[arg(long)]
    pub no_stats: bool,
    /// Only the level of this port, not the server
    #[cfg(feature = "softirq")]
    #[arg(short, long, value_name = "PORT", conflicts_with = "admin")]
    pub port: Option<u16>,
    /// Only the levels of this network namespace, not the server: a path, a process ID, or a name of `ip netns`
    #[cfg(feature = "softirq")]
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "admin")]
    pub netns: Option<String>,
}

impl TopArgs {
    /// Whether only levels in the kernel are shown.
    #[cfg(feature = "softirq")]
    pub fn is_for_levels(&self) -> bool {
        self.port.is_some() || self.netns.is_some()
    }

    /// Whether only levels in the kernel are shown: this build has none.
    #[cfg(not(feature = "softirq"))]
    pub fn is_for_levels(&self) -> bool {
        false
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (0.05..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "allowed: seconds, from 0.05 to 3600".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "x", "nan", "inf", "1e9"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
