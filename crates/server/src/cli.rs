//! The command line: all commands, and the arguments of those without a file here.

mod serve;
pub mod servers;
#[cfg_attr(not(feature = "softirq"), path = "stubs/softirq_options.rs")]
pub mod softirq;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use lowroad_config::{self as config, Config};
use lowroad_privileges::helper;

use self::serve::{AccelerateArgs, ServeArgs};
use self::servers::{ControlArgs, PurgeArgs, StatusArgs};
use self::softirq::{AttachArgs, DetachArgs, DoctorArgs, TopArgs};
use crate::features;
use crate::image::options as image;
use crate::module_template::ModuleLanguage;

/// A web server that answers every request at the lowest level of the machine that can answer it.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The commands.
#[derive(Subcommand)]
pub enum CliCommand {
    /// Serve a folder, without a configuration file
    Serve(ServeArgs),
    /// Be a cache and a proxy in front of another server, without a configuration file
    Accelerate(AccelerateArgs),
    /// Serve the sites of a configuration file
    Run {
        /// The configuration; read again at SIGHUP
        #[arg(
            short,
            long,
            value_name = "FILE",
            default_value = "/etc/lowroad/lowroad.toml"
        )]
        config: PathBuf,
    },
    /// Say what is wrong with a configuration file
    Check {
        /// The configuration
        #[arg(
            short,
            long,
            value_name = "FILE",
            default_value = "/etc/lowroad/lowroad.toml"
        )]
        config: PathBuf,
    },
    /// Describe the configuration file
    Config {
        /// What to describe
        #[command(subcommand)]
        what: ConfigCommand,
    },
    /// Have the running server read its configuration again, and wait until that is in force
    Reload(ControlArgs),
    /// End the running server as SIGTERM does, and wait until it has answered what is under way
    Stop(ControlArgs),
    /// Begin something of your own
    New {
        /// What to begin
        #[command(subcommand)]
        what: NewArgs,
    },
    /// Make a machine of a site: an image that boots without an operating system
    Image {
        /// What to do with it
        #[command(subcommand)]
        image: ImageCommand,
    },
    /// Be the process of a module with a process of its own; the server starts it
    #[command(hide = true)]
    ModuleHost,
    /// Be the process that starts CGI programs; the server starts it
    #[command(hide = true)]
    Spawner,
    /// Be the process that opens files that only root may open; the server starts it
    #[command(hide = true)]
    RightsHelper {
        /// The configuration
        config: PathBuf,
        /// The server's user
        user: u32,
        /// The server's group
        group: u32,
    },
    /// Speed up the server that listens on a port, without touching it
    Attach(AttachArgs),
    /// Take that off again
    Detach(DetachArgs),
    /// Say which level would answer a URL, and why
    Explain(ExplainArgs),
    /// Say what the running server and the levels in front of ports have counted
    Status(StatusArgs),
    /// Watch the levels in front of ports: answers, hits, connections, hot URLs
    Top(TopArgs),
    /// Remove stored responses from a running server's cache and from the levels in front of ports, at once
    Purge(PurgeArgs),
    /// Write completions for a shell, to be put where it looks for them
    Completions {
        /// Which
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
    /// Say how to have programs of this machine trust its own authority, which signs for `serve --tls`
    Trust,
    /// Say what this machine and its interfaces can do for `attach`, and what to change
    Doctor(DoctorArgs),
}

/// `lowroad config`.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Print the reference of all tables and keys in Markdown
    Docs {
        /// Write the pages into this folder instead
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

/// `lowroad module_template`.
#[derive(Subcommand)]
pub enum NewArgs {
    /// A module: code that answers requests, with a test
    Module {
        /// Its name, and that of its new folder
        #[arg(value_name = "NAME")]
        name: String,
        /// What it is written in
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
    /// The URL, as a browser would ask for it
    #[arg(value_name = "URL")]
    pub url: String,
    /// A field of the request, like 'Accept-Encoding: br'
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// The server's admin socket, if it is not at the default place
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Levels of which network namespace: a path, a process's number or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}

/// Loads a configuration file.
///
/// # Errors
/// All problems of the file, one a line.
pub fn load(file: &Path) -> Result<Config, String> {
    config::load_with(file, features::LACKING, helper::read).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        format!("the configuration can't be used\n{}", lines.join("\n"))
    })
}
