//! The arguments of `lowroad origin`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

/// `lowroad origin`.
#[derive(Args)]
pub struct OriginArgs {
    /// The operation
    #[command(subcommand)]
    pub command: OriginCommand,
    /// The server's admin socket, if it is not at the default path, or several servers run
    #[arg(long, value_name = "PATH", global = true)]
    pub admin: Option<PathBuf>,
    /// Keep the change after a restart: writes it to the file `changes` of [admin]
    #[arg(long, global = true)]
    pub persist: bool,
}

/// The commands of `lowroad origin`.
#[derive(Subcommand)]
pub enum OriginCommand {
    /// List the servers of all origins with their states
    List,
    /// Show the servers of one origin
    Show {
        /// The origin: its name, or its URL
        #[arg(value_name = "ORIGIN")]
        origin: String,
    },
    /// Send a server only requests of sticky sessions that belong to it; requests in progress go on
    Drain(LeaveArgs),
    /// Send a server no new requests, for maintenance; requests in progress go on
    Down(LeaveArgs),
    /// End drain, down and force: send a server requests while it is healthy
    Ready(ServerArgs),
    /// Send a server requests, even if it fails its health checks
    Force(ServerArgs),
    /// Change the share of requests of a server
    Weight {
        /// The origin: its name, or its URL
        #[arg(value_name = "ORIGIN")]
        origin: String,
        /// The address of the server, as listed
        #[arg(value_name = "ADDRESS")]
        address: String,
        /// The weight, 1 to 1000, or configured
        #[arg(value_name = "WEIGHT", value_parser = weight)]
        weight: WeightArg,
    },
    /// Add a server to an origin
    Add {
        /// The origin: its name
        #[arg(value_name = "ORIGIN")]
        origin: String,
        /// The address: ADDRESS:PORT or unix:/PATH
        #[arg(value_name = "ADDRESS")]
        address: String,
        /// The weight, 1 to 1000
        #[arg(long, value_name = "N", default_value = "1")]
        weight: u32,
        /// Use the server only if the others are unavailable
        #[arg(long)]
        backup: bool,
    },
    /// Remove a server that was added
    Remove {
        /// The origin: its name
        #[arg(value_name = "ORIGIN")]
        origin: String,
        /// The address of the server, as listed
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
}

/// The servers that a command changes.
#[derive(Args)]
pub struct ServerArgs {
    /// The origin: its name, or its URL
    #[arg(value_name = "ORIGIN")]
    pub origin: String,
    /// The address of the server, as listed; may be omitted if there is one
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,
    /// All servers of the origin
    #[arg(long, conflicts_with = "address")]
    pub all: bool,
}

/// The servers that a command takes out of rotation.
#[derive(Args)]
pub struct LeaveArgs {
    /// The servers
    #[command(flatten)]
    pub servers: ServerArgs,
    /// Wait until the servers have no requests, at most this time
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "60s",
        value_parser = wait_time
    )]
    pub wait: Option<Duration>,
}

pub(super) fn wait_time(text: &str) -> Result<Duration, String> {
    // `--wait ADDRESS` seems to be a time, too.
    let ms = lowroad_config::value::duration_ms(text)
        .map_err(|error| format!("write --wait at the end, or with a time: {error}"))?;
    Ok(Duration::from_millis(ms))
}

/// A weight of `lowroad origin weight`; `None`: the configured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightArg(pub Option<u32>);

fn weight(text: &str) -> Result<WeightArg, String> {
    if text == "configured" {
        return Ok(WeightArg(None));
    }
    let weight: Option<u32> = text.parse().ok();
    let weight = weight.filter(|weight| (1..=1000).contains(weight));
    weight
        .map(|weight| WeightArg(Some(weight)))
        .ok_or_else(|| "allowed: 1 to 1000, or configured".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{CliCommand, CommandLine};

    fn wait_of(arguments: &[&str]) -> Result<Option<Duration>, String> {
        let all = ["lowroad", "origin", "drain"].iter().chain(arguments);
        let parsed = CommandLine::try_parse_from(all).map_err(|error| error.to_string())?;
        match parsed.command {
            CliCommand::Origin(OriginArgs {
                command: OriginCommand::Drain(leave),
                ..
            }) => Ok(leave.wait),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn wait_has_a_time_with_or_without_an_equals_sign() {
        let minutes = |count: u64| Ok(Some(Duration::from_secs(60 * count)));
        assert_eq!(wait_of(&["app", "10.0.0.1:80"]), Ok(None));
        assert_eq!(wait_of(&["app", "--wait"]), minutes(1));
        assert_eq!(wait_of(&["app", "--wait=5m"]), minutes(5));
        assert_eq!(wait_of(&["--wait", "5m", "app"]), minutes(5));
        let hint = wait_of(&["--wait", "app"]).expect_err("no time");
        assert!(hint.contains("write --wait at the end"), "{hint}");
    }

    #[test]
    fn weights_are_numbers_or_configured() {
        assert_eq!(weight("configured"), Ok(WeightArg(None)));
        assert_eq!(weight("7"), Ok(WeightArg(Some(7))));
        for bad in ["0", "1001", "-1", "x", ""] {
            assert!(weight(bad).is_err(), "{bad}");
        }
    }
}
