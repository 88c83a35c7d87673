//! The arguments of `lowroad config`.

use std::path::PathBuf;

use clap::Subcommand;

/// `lowroad config`.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Print the reference of all tables and keys in Markdown
    Docs {
        /// Write the pages into this folder instead
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Print all values in force, with defaults, each with its file and line; secrets are hidden
    Show {
        /// The configuration
        #[arg(value_name = "FILE", default_value = "/etc/lowroad/lowroad.toml")]
        file: PathBuf,
        /// Print JSON: the values, and their origins by path
        #[arg(long)]
        json: bool,
    },
    /// Print a file with even spacing; comments and the order of keys are kept
    Format {
        /// The file, without those that it includes
        #[arg(value_name = "FILE", default_value = "/etc/lowroad/lowroad.toml")]
        file: PathBuf,
        /// Only report whether the file would change
        #[arg(long, conflicts_with = "write")]
        check: bool,
        /// Change the file
        #[arg(long)]
        write: bool,
    },
    /// Compare the values in force of the running server with those of a file, or of two files; the exit status is 3 if
    /// they differ
    Diff {
        /// The file, or both files [default: the file of the running server]
        #[arg(value_name = "FILE", num_args = 0..=2)]
        files: Vec<PathBuf>,
        /// The server's admin socket, if it is not at the default path, or several servers run
        #[arg(long, value_name = "PATH")]
        admin: Option<PathBuf>,
    },
    /// Print a JSON Schema (2020-12), by which editors check configuration files
    Schema,
}
