//! The command line. `serve` is a configuration of one site written as options; the values are
//! read as in the file.

#[cfg_attr(not(feature = "softirq"), path = "without/softirq_options.rs")]
pub mod softirq;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use lowroad_config::{self as config, Config, Feature, value};

use crate::features;
use crate::image::options as image;
use crate::new::Language;
use crate::programs::modules;
use crate::say;

use self::softirq::{Attach, Detach, Doctor, Purge, Status, Top};

/// A web server that answers every request at the lowest level of the machine that can answer it.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Serve a folder, without a configuration file
    Serve(Serve),
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
    /// Begin something of your own
    New {
        /// What to begin
        #[command(subcommand)]
        what: New,
    },
    /// Make a machine of a site: an image that boots without an operating system
    Image {
        /// What to do with it
        #[command(subcommand)]
        image: Image,
    },
    /// Be the process of a module with a process of its own; the server starts it
    #[command(hide = true)]
    ModuleHost,
    /// Speed up the server that listens on a port, without touching it
    Attach(Attach),
    /// Take that off again
    Detach(Detach),
    /// Say which level would answer a URL, and why
    Explain(Explain),
    /// Say what the running server and the levels in front of ports have counted
    Status(Status),
    /// Watch the levels in front of ports: answers, hits, connections, hot URLs
    Top(Top),
    /// Take responses out of the levels in front of ports, at once
    Purge(Purge),
    /// Say what this machine and its interfaces can do for `attach`, and what to change
    Doctor(Doctor),
}

/// `lowroad new`.
#[derive(Subcommand)]
pub enum New {
    /// A module: code that answers requests, with a test
    Module {
        /// Its name, and that of its new folder
        #[arg(value_name = "NAME")]
        name: String,
        /// What it is written in
        #[arg(long, value_enum, default_value = "rust")]
        language: Language,
    },
}

/// `lowroad image`.
#[derive(Subcommand)]
pub enum Image {
    /// Build an image of a folder
    Build(image::Build),
    /// Start an image, or a folder as one
    Run(Box<image::Run>),
}

/// `lowroad serve`.
#[derive(Args)]
pub struct Serve {
    /// The folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Where to listen: ADDR:PORT, or PORT for this machine alone, or *:PORT for everybody
    #[arg(
        short,
        long,
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:8080"
    )]
    listen: Vec<String>,
    /// List folders that have no index.html
    #[arg(long)]
    listing: bool,
    /// Serve names that begin with a dot, too
    #[arg(long)]
    hidden: bool,
    /// Write an access log to standard output: combined or json
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "combined",
          value_parser = ["combined", "json"])]
    log: Option<String>,
    /// Event loops, each a thread; 0 for one per CPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Bind each event loop to a CPU
    #[arg(long)]
    affinity: bool,
    /// Connections accepted per wake-up: one, all, or a number
    #[arg(long, value_name = "N", default_value = "32")]
    accept: String,
    /// Memory for stored responses; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    cache: String,
    /// Answer hot small responses in the kernel's soft interrupt: auto, off, or an interface
    #[arg(long, value_name = "WHERE", default_value = "off")]
    softirq: String,
    /// Become this user after the start as root [default: nobody, if it can read DIR]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// `lowroad explain`.
#[derive(Args)]
pub struct Explain {
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

impl Serve {
    /// The configuration that the options stand for.
    ///
    /// # Errors
    /// A text that names the option, its value and what is allowed.
    pub fn config(&self) -> Result<Config, String> {
        let mut site = config::site_for_folder(self.dir.clone());
        site.listen = self
            .listen
            .iter()
            .map(|text| address(text))
            .collect::<Result<_, _>>()?;
        site.listing = self.listing;
        site.hidden = self.hidden;
        if self.dir.join("404.html").is_file() {
            site.error_pages.insert(404, "/404.html".into());
        }
        let mut config = Config {
            sites: vec![site],
            ..Config::default()
        };
        config.server.workers = self.workers;
        config.server.affinity = self.affinity;
        config.server.accept = value::accept(&self.accept).map_err(|allowed| {
            format!(
                "--accept {}: not understood (allowed: {allowed})",
                self.accept
            )
        })?;
        config.server.cache_len_max = value::size(&self.cache).map_err(|allowed| {
            format!(
                "--cache {}: not understood (allowed: {allowed})",
                self.cache
            )
        })?;
        config.server.cache_object_len_max =
            config::Server::cache_object_default(config.server.cache_len_max);
        config.server.softirq = value::softirq(&self.softirq).map_err(|refused| {
            format!(
                "--softirq {}: not understood (allowed: {refused})",
                self.softirq
            )
        })?;
        if config.server.softirq != config::Softirq::Off {
            features::need(Feature::Softirq, &format!("--softirq {}", self.softirq))?;
        }
        config.server.user.clone_from(&self.user);
        config.log.access = self.log.as_deref().map(|format| config::AccessLog {
            path: config::LogTarget::Stdout,
            format: if format == "json" {
                config::Format::Json
            } else {
                config::Format::Combined
            },
        });
        Ok(config)
    }
}

/// Loads a configuration file.
///
/// # Errors
/// All that is wrong with it, a line each.
pub fn load(file: &Path) -> Result<Config, String> {
    config::load(file, features::LACKING).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        format!("the configuration can't be used\n{}", lines.join("\n"))
    })
}

/// Says what is wrong with a configuration file, or that nothing is.
///
/// # Errors
/// All that is wrong with it, a line each.
pub fn check(file: &Path) -> Result<(), String> {
    let config = load(file)?;
    modules::check(&config)?;
    let count = config.sites.len();
    let sites = if count == 1 { "site" } else { "sites" };
    say::out(format_args!(
        "{}: {count} {sites}, nothing wrong\n",
        file.display()
    ))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    value::address(text)
        .map_err(|allowed| format!("--listen {text}: not understood (allowed: {allowed})"))
}
