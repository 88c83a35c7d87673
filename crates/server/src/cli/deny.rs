//! The arguments of `lowroad deny`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `lowroad deny`.
#[derive(Args)]
pub struct DenyArgs {
    /// The operation
    #[command(subcommand)]
    pub command: DenyCommand,
    /// The server's admin socket, if it is not at the default path, or several servers run
    #[arg(long, value_name = "PATH", global = true)]
    pub admin: Option<PathBuf>,
    /// Keep the change after a restart: writes it to the file `changes` of [admin]
    #[arg(long, global = true)]
    pub persist: bool,
}

/// The commands of `lowroad deny`.
#[derive(Subcommand)]
pub enum DenyCommand {
    /// List the denied addresses
    List,
    /// Deny addresses: their connections are refused, and open ones are closed
    Add {
        /// The addresses: ADDRESS or ADDRESS/BITS, IPv4 or IPv6
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// How long, such as 10m; otherwise until they are removed
        #[arg(long = "for", value_name = "TIME")]
        duration: Option<String>,
    },
    /// Accept addresses again
    Remove {
        /// The addresses or prefixes, as listed
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
    },
}
