//! The arguments of `lowroad import` and `lowroad compare`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `lowroad import`.
#[derive(Subcommand)]
pub enum ImportCommand {
    /// Translate a configuration of nginx; exit status 3 if directives are left to translate by hand
    Nginx(ImportArgs),
    /// Translate a Caddyfile; exit status 3 if directives are left to translate by hand
    Caddy(CaddyImportArgs),
}

/// The arguments of a translation.
#[derive(Args)]
pub struct ImportArgs {
    /// The configuration; its includes are read, too
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The output
    #[command(flatten)]
    pub output: OutputArgs,
    /// The folder of relative roots, nginx' prefix [default: /usr/share/nginx for /etc/nginx]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}

/// The arguments of the translation of a Caddyfile.
#[derive(Args)]
pub struct CaddyImportArgs {
    /// The Caddyfile; its imports are read, too
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where a translation goes.
#[derive(Args)]
pub struct OutputArgs {
    /// Write the configuration to this file instead of standard output; the report goes to standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the output file
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// `lowroad compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// The requests: lines of METHOD and URL, or an access log in the combined or extended format; - is standard input
    #[arg(value_name = "FILE")]
    pub requests: PathBuf,
    /// The server with the expected responses: http://HOST:PORT, or https:// without verification of its certificate
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// The server to compare: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// The Host of requests that have none [default: that of --from]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// A further field of the requests, such as 'Accept-Encoding: gzip'
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// A further field of the responses that is not compared
    #[arg(long, value_name = "NAME")]
    pub ignore: Vec<String>,
    /// Requests a second
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Requests at most; equal ones are sent once
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub count: usize,
    /// Also send requests of a log with other methods than GET and HEAD, without their bodies
    #[arg(long)]
    pub all_methods: bool,
}
