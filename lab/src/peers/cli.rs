//! The command `peers`: lists and installs the servers that can be measured.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::bail;

use super::table::CheckedSettings;
use super::{PeerDescription, PeerOptions, PeerPlace, install, keeper, life, programs, table};

/// List, install or start the servers to compare with
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PeersArgs {
    /// Run servers for the lab that started this process
    #[arg(long, hide = true)]
    keeper: bool,
    #[command(subcommand)]
    command: Option<PeersCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum PeersCommand {
    /// List them, with their settings (without any command: without)
    List,
    /// Install Debian's packages, without starting their services
    Install {
        /// The servers [default: all]
        names: Vec<String>,
    },
    /// Print the configuration that would be used
    Config(StartArgs),
    /// Start one, and end it with Ctrl-C
    Start(StartArgs),
}

#[derive(Debug, clap::Args)]
struct StartArgs {
    /// The server: see `lowroad-lab peers`
    name: String,
    /// The folder to serve
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Number of its processes or threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// CPUs to pin it to
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Run it in its own network namespace (needs root)
    #[arg(long)]
    namespace: bool,
    /// A setting: see `lowroad-lab peers list`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &PeersArgs) -> anyhow::Result<ExitCode> {
    if args.keeper {
        return Ok(keeper::run());
    }
    match &args.command {
        None => print(&list(false)),
        Some(PeersCommand::List) => print(&list(true)),
        Some(PeersCommand::Install { names }) => install::install(names)?,
        Some(PeersCommand::Config(start)) => config(start)?,
        Some(PeersCommand::Start(start)) => run_one(start)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn list(with_settings: bool) -> String {
    let mut text = String::new();
    for peer in table::all() {
        let line = format!(
            "{:<20} {:<28} {}\n",
            peer.name,
            state(peer),
            peer.description
        );
        text.push_str(&line);
        for setting in peer.settings.iter().filter(|_| with_settings) {
            let default = format!("{}={}", setting.name, setting.default);
            text.push_str(&format!("    {default:<24} {}\n", setting.description));
        }
    }
    text
}

/// Prints a text. The reader may close the pipe early, as `head` does, which is not an error.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn state(peer: &PeerDescription) -> String {
    if peer.unavailable.is_some() {
        return "does not exist yet".into();
    }
    if !programs::installed(peer) {
        return match peer.name {
            name if programs::is_lowroad(name) => "not built".into(),
            _ => "not installed".into(),
        };
    }
    programs::version(peer, programs::lowroad("").ok().as_deref())
}

fn options(start: &StartArgs) -> PeerOptions {
    PeerOptions {
        root: start.root.clone(),
        workers: start.workers,
        cpus: start.cpus.clone(),
        place: if start.namespace {
            PeerPlace::Namespace
        } else {
            PeerPlace::Loopback
        },
        settings: start.settings.iter().cloned().collect::<BTreeMap<_, _>>(),
    }
}

fn config(start: &StartArgs) -> anyhow::Result<()> {
    let (peer, options) = (table::named(&start.name)?, options(start));
    let settings = CheckedSettings::new(peer, &options.settings)?;
    let text = life::preview(peer, &options, &settings).map_err(anyhow::Error::msg)?;
    print(&text);
    Ok(())
}

fn run_one(start: &StartArgs) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut running = super::start(&start.name, &options(start))?;
    let socket = match &running.socket {
        Some(socket) => format!("socket {}\n", socket.display()),
        None => String::new(),
    };
    print(&format!(
        "{}: {}\n{socket}http://{}/, Ctrl-C ends\n",
        start.name, running.version, running.address
    ));
    while !stop.load(Relaxed) {
        if let Some(text) = running.ended() {
            bail!("{} has ended: {text}", start.name);
        }
        // Signals end the wait early; a server that has exited is noticed within this time.
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(())
}
