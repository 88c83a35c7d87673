//! The command line: all commands, and the arguments of those without a file here.

mod config;
pub mod deny;
pub mod import;
pub mod log;
pub mod origin;
mod serve;
pub mod servers;
#[cfg_attr(not(feature = "softirq"), path = "stubs/softirq_options.rs")]
pub mod softirq;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use lowroad_config::{Config, ConfigProblem};

pub use self::config::ConfigCommand;
use self::deny::DenyArgs;
use self::import::{CompareArgs, ImportCommand};
use self::log::LogCommand;
use self::origin::OriginArgs;
use self::serve::{AccelerateArgs, ServeArgs};
use self::servers::{
    ControlArgs, DashboardArgs, MaintenanceArgs, PurgeArgs, StatusArgs, TopArgs, UpgradeArgs,
};
use self::softirq::{AttachArgs, DetachArgs, DoctorArgs};
use crate::config_files::ServerFiles;
use crate::features;
use crate::image::options as image;
use crate::module_template::ModuleLanguage;

/// A web server and caching reverse proxy that answers each request at the lowest possible level of the machine.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub struct CommandLine {
    /// The command.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The commands.
#[derive(Subcommand)]
pub enum CliCommand {
    /// Serve a folder, without a configuration file
    Serve(ServeArgs),
    /// Run a caching reverse proxy in front of another server, without a configuration file
    Accelerate(AccelerateArgs),
    /// Serve the sites of a configuration file; SIGHUP reloads it
    Run(ConfigArgs),
    /// Check a configuration file and report its problems
    Check(ConfigArgs),
    /// Show, format, compare and describe configurations
    Config {
        /// What to do
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Translate the configuration of another web server
    Import {
        /// The other server
        #[command(subcommand)]
        command: ImportCommand,
    },
    /// Send the same requests to two servers and print the differences of their responses; exit status 1 if there are any
    Compare(CompareArgs),
    /// Reload the configuration of the running server, and wait until it is in force
    Reload(ControlArgs),
    /// Turn the maintenance mode of the running server's sites on or off: requests get 503
    Maintenance(MaintenanceArgs),
    /// List the servers of the running server's origins; drain them, take them out of service, add some
    Origin(OriginArgs),
    /// Refuse connections of client addresses, while the server runs
    Deny(DenyArgs),
    /// Replace the running server by a new process of the installed program, without a failed request, and wait until it
    /// answers
    Upgrade(UpgradeArgs),
    /// Stop the running server gracefully, as SIGTERM does, and wait until it has ended
    Stop(ControlArgs),
    /// Create something from a template
    New {
        /// What to create
        #[command(subcommand)]
        template: NewArgs,
    },
    /// Build and run bootable images of a site, which need no operating system
    Image {
        /// What to do with it
        #[command(subcommand)]
        image: ImageCommand,
    },
    /// Run as the process of a separate module; started by the server
    #[command(hide = true)]
    ModuleHost,
    /// Run as the process that starts CGI programs; started by the server
    #[command(hide = true)]
    Spawner,
    /// Run as the process that opens files that only root can open; started by the server
    #[command(hide = true)]
    RightsHelper {
        /// The configuration
        config: PathBuf,
        /// The server's user
        user: u32,
        /// The server's group
        group: u32,
    },
    /// Run as the process that starts a new version of the program; started by the server
    #[command(hide = true)]
    Starter,
    /// Answer hot responses in the kernel, in front of the server that listens on a port
    Attach(AttachArgs),
    /// Undo `lowroad attach`
    Detach(DetachArgs),
    /// Show which level would answer a URL, and why
    Explain(ExplainArgs),
    /// Print the counters of the running server and of attached levels
    Status(StatusArgs),
    /// Show the running server in a browser: levels, rates, latency, origins, certificates, errors
    Dashboard(DashboardArgs),
    /// Read a binary access log
    Log {
        /// The operation
        #[command(subcommand)]
        operation: LogCommand,
    },
    /// Watch the running server and attached levels in the terminal: levels, URLs, sites, origins, errors
    Top(TopArgs),
    /// Purge stored responses of running servers and of attached levels, at once
    Purge(PurgeArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    #[command(hide = true)]
    ManPages {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Show how to make programs trust this machine's own authority, which signs for `serve --tls`
    Trust,
    /// Check whether this machine and its interfaces support `attach`, and what to change
    Doctor(DoctorArgs),
}

/// The configuration file of `lowroad run` and `lowroad check`.
#[derive(Args)]
pub struct ConfigArgs {
    /// The configuration, as an option
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/lowroad/lowroad.toml"
    )]
    config: PathBuf,
    /// The configuration; without it, that of --config
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
}

impl ConfigArgs {
    /// The path of the file.
    pub fn into_path(self) -> PathBuf {
        self.file.unwrap_or(self.config)
    }
}

/// `lowroad new`.
#[derive(Subcommand)]
pub enum NewArgs {
    /// A module: code that answers requests, with a test
    Module {
        /// The name of the module and of its new folder
        #[arg(value_name = "NAME")]
        name: String,
        /// The language
        #[arg(long, value_enum, default_value = "rust")]
        language: ModuleLanguage,
    },
}

/// `lowroad image`.
#[derive(Subcommand)]
pub enum ImageCommand {
    /// Build an image of a folder
    Build(image::BuildArgs),
    /// Start an image, or a folder as one
    Run(Box<image::RunArgs>),
}

/// `lowroad explain`.
#[derive(Args)]
pub struct ExplainArgs {
    /// The URL, as a browser would request it
    #[arg(value_name = "URL")]
    pub url: String,
    /// The method of the request; a body is not sent
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// A field of the request, such as 'Accept-Encoding: br'; a Host replaces that of the URL, as with curl
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// The server's admin socket, if it is not at the default path
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// The network namespace of the levels: a path, a process ID, or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}

/// Loads a configuration file.
///
/// # Errors
/// All problems of the file, one a line.
pub fn load(file: &Path) -> Result<Config, String> {
    lowroad_config::load_with(file, features::LACKING, &ServerFiles)
        .map_err(|problems| problem_text(&problems))
}

/// The message with all problems of a configuration, one a line.
pub fn problem_text(problems: &[ConfigProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    format!("the configuration can't be used\n{}", lines.join("\n"))
}
