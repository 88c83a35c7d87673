//! The arguments of the softirq level's commands: `attach`, `detach` and `doctor`.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use lowroad_config::value;
use lowroad_softirq::programs::sizes::{MEMORY_MAX, MEMORY_MIN, MapSizes};

/// Where the programs may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierArg {
    /// Native XDP where the interface can, else TC ingress
    Auto,
    /// Native XDP only
    Xdp,
    /// TC ingress: packets are seen by tcpdump
    Tc,
    /// None: with --worker, only intercept connections
    None,
}

/// A process of `attach --worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkerRole {
    /// The server that intercepts.
    Worker,
    /// The level below the socket.
    Level,
}

impl WorkerRole {
    /// The value on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WorkerRole::Worker => "worker",
            WorkerRole::Level => "level",
        }
    }
}

/// Which clients are answered, in addition to prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdmissionArg {
    /// If this machine filters its input (netfilter), clients that the kernel has accepted within 60 s;
    /// otherwise all
    Auto,
    /// Clients that the kernel has accepted within 60 s
    Known,
    /// All clients
    All,
}

/// `lowroad attach`.
#[derive(Args)]
pub struct AttachArgs {
    /// The ports
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
    /// The interfaces [default: all that are up, except lo]
    #[arg(short, long, value_name = "NAME")]
    pub interface: Vec<String>,
    /// The network namespace: a path, a process ID, or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
    /// Where the programs run
    #[arg(long, value_enum, default_value = "auto")]
    pub tier: TierArg,
    /// Freshness lifetime in seconds of responses that give none [default: a tenth of their age, 5 s at
    /// most; without Last-Modified they are not stored]
    #[arg(long, value_name = "SECONDS")]
    pub ttl: Option<u64>,
    /// Also answer requests with cookies: correct if pages do not depend on them
    #[arg(long)]
    pub ignore_cookies: bool,
    /// Also answer requests with Cache-Control or Pragma, such as a browser's reload
    #[arg(long)]
    pub ignore_cache_control: bool,
    /// Leave clients with these addresses to the server and its firewall: ADDRESS[/BITS]
    #[arg(long, value_name = "PREFIX")]
    pub deny: Vec<String>,
    /// Answer only clients with these addresses, and leave all others to the server: ADDRESS[/BITS]
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<String>,
    /// Whether the kernel must have accepted a client: if this machine filters its input, always, never
    #[arg(long, value_enum, default_value = "auto")]
    pub admit: AdmissionArg,
    /// Leave paths with this prefix to the server, in addition to those like /server-status that are always
    /// left to it: restricted pages must not be stored
    #[arg(long, value_name = "PREFIX")]
    pub exclude: Vec<String>,
    /// Connections at the same time
    #[arg(long, value_name = "N", default_value_t = MapSizes::default().connections)]
    pub connections: u32,
    /// Memory for responses: 1M to 512M
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = memory)]
    pub memory: u32,
    /// Seconds without a segment after which a connection's slot may be reused
    #[arg(long, value_name = "SECONDS", default_value_t = 75)]
    pub idle: u32,
    /// Seconds that connections get at the end, to send a last request or to close
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub drain: u32,
    /// Attach in front of the server that started this process
    #[arg(long, hide = true)]
    pub own: bool,
    /// Only start the daemon, and restart it when it dies
    #[arg(long, hide = true, requires = "own")]
    pub keep: bool,
    /// Attach at the request of the server
    #[arg(long, hide = true, requires = "keep")]
    pub later: bool,
    /// Write an access log of these responses to standard output: combined, extended (with the cache status) or json
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "combined",
          value_parser = log_formats())]
    pub log: Option<String>,
    /// Also intercept new connections to the port with workers, which store larger responses; the server that
    /// listens there is their origin, unchanged, and gets its port back at once if they die
    #[arg(long)]
    pub worker: bool,
    /// Memory of these workers for stored responses; 0 for none [default: 256M, or a quarter of the memory if less]
    #[arg(long, value_name = "SIZE", requires = "worker", value_parser = size)]
    pub cache: Option<u64>,
    /// Run only this process of those that --worker starts
    #[arg(long, hide = true, requires = "worker", value_enum)]
    pub part: Option<WorkerRole>,
}

/// `lowroad detach`.
#[derive(Args)]
pub struct DetachArgs {
    /// The ports; others that were attached together with them stay
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
    /// The network namespace: a path, a process ID, or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
    /// Seconds that connections get, to send a last request or to close
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub drain: u32,
}

/// `lowroad doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// The interfaces [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub interface: Vec<String>,
    /// Also check the server that listens on this port
    #[arg(short, long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Attach empty programs and detach them: resets some network cards
    #[arg(long = "try")]
    pub try_it: bool,
    /// The network namespace: a path, a process ID, or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
}

/// The values of `--log`. The last one, which users don't see, is passed by a server that starts the level in front of
/// itself.
fn log_formats() -> [PossibleValue; 4] {
    let binary = PossibleValue::new("binary").hide(true);
    let formats = ["combined", "extended", "json"].map(PossibleValue::new);
    let [combined, extended, json] = formats;
    [combined, extended, json, binary]
}

fn size(text: &str) -> Result<u64, String> {
    value::size(text).map_err(|error| error.to_string())
}

fn memory(text: &str) -> Result<u32, String> {
    let size = value::size(text).map_err(|error| error.to_string())?;
    // A size of more than 32 bits exceeds the limit below in any case.
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    match (MEMORY_MIN..=MEMORY_MAX).contains(&size) {
        true => Ok(size),
        false => Err("from 1M to 512M".to_owned()),
    }
}
