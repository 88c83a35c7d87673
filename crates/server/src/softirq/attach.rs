//! `lowroad attach`: from the command line to a level in front of a port, until a signal ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::{Args, Parser, ValueEnum};
use lowroad_config::value;
use lowroad_log::{Target, Writer};
use lowroad_softirq::asker::Offered;
use lowroad_softirq::daemon::{Admission, Daemon};
use lowroad_softirq::exclude::Excluded;
use lowroad_softirq::layout;
use lowroad_softirq::learn::Settings;
use lowroad_softirq::level::Level;
use lowroad_softirq::listeners;
use lowroad_softirq::load::{self, Sizes};
use lowroad_softirq::rest;
use lowroad_softirq::tcp_settings::TcpSettings;
use lowroad_softirq::{fan_out, folder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use super::own::News;
use super::place::{self, Placed};
use super::{drain, follow, hold, keep, log, look, origin, own, privileges};
use crate::cli::{Cli, Command};
use crate::say;

/// Where the programs may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierWanted {
    /// Native XDP where the interface can, else TC ingress
    Auto,
    /// Native XDP, or not at all
    Xdp,
    /// TC ingress: packets are seen by tcpdump
    Tc,
}

/// Which clients are answered, beside what prefixes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Admit {
    /// Where this machine filters its input (netfilter), whom the kernel has let in within 60 s;
    /// elsewhere everybody
    Auto,
    /// Whom the kernel has let in within 60 s
    Known,
    /// Everybody
    All,
}

impl From<Admit> for Admission {
    fn from(wanted: Admit) -> Admission {
        match wanted {
            Admit::Auto => Admission::Auto,
            Admit::Known => Admission::Known,
            Admit::All => Admission::All,
        }
    }
}

/// `lowroad attach`.
#[derive(Args)]
pub struct Attach {
    /// The ports
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
    /// On which interfaces; all that are up, without lo, if none is named
    #[arg(short, long, value_name = "NAME")]
    pub interface: Vec<String>,
    /// In which network namespace: a path, a process's number or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
    /// Where the programs may run
    #[arg(long, value_enum, default_value = "auto")]
    pub tier: TierWanted,
    /// For so many seconds responses are fresh that do not say [default: a tenth of their age, 5 s at
    /// most; without Last-Modified they are not stored]
    #[arg(long, value_name = "SECONDS")]
    pub ttl: Option<u64>,
    /// Answer requests with cookies too: right if pages do not depend on them
    #[arg(long)]
    pub ignore_cookies: bool,
    /// Answer requests with Cache-Control or Pragma too, such as a browser's reload
    #[arg(long)]
    pub ignore_cache_control: bool,
    /// Leave clients with these addresses to the server and its firewall: ADDRESS[/BITS]
    #[arg(long, value_name = "PREFIX")]
    pub deny: Vec<String>,
    /// Answer only clients with these addresses, and leave all others to the server: ADDRESS[/BITS]
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<String>,
    /// Whether a client must be known to the kernel: where this machine filters its input, always, never
    #[arg(long, value_enum, default_value = "auto")]
    pub admit: Admit,
    /// Leave paths that begin so to the server, beside those like /server-status that are always left
    /// to it: what it answers to few must not be everybody's
    #[arg(long, value_name = "PREFIX")]
    pub exclude: Vec<String>,
    /// Connections that have a place at the same time
    #[arg(long, value_name = "N", default_value_t = Sizes::default().connections)]
    pub connections: u32,
    /// Memory for responses: 1M to 512M
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = memory)]
    pub memory: u32,
    /// After so many seconds without a segment a connection's place may be taken
    #[arg(long, value_name = "SECONDS", default_value_t = 75)]
    pub idle: u32,
    /// Seconds that connections get at the end, to ask for something or to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub drain: u32,
    /// In front of the server that started this
    #[arg(long, hide = true)]
    pub own: bool,
    /// Only start the daemon, and start it again when it dies
    #[arg(long, hide = true, requires = "own")]
    pub keep: bool,
    /// Write an access log of these answers to standard output: combined or json
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "combined",
          value_parser = ["combined", "json"])]
    pub log: Option<String>,
}

/// Attaches, works until a signal, and detaches.
///
/// # Errors
/// A text for the user: what can't be had, and what would change it.
pub fn attach(args: &Attach) -> Result<(), String> {
    if args.keep {
        return keep::keep(args);
    }
    if let Some(namespace) = &args.netns {
        place::enter_namespace(namespace)?;
    }
    let learning = learning(args)?;
    let clients = place::clients(args)?;
    check_servers(&args.ports)?;
    place::check_machine()?;
    place::check_pins()?;
    let mounting = folder::lock_mount().map_err(|error| error.to_string())?;
    folder::mount_pins().map_err(|error| error.to_string())?;
    privileges::reduce()?;
    let folder = folder::of_port(args.ports[0]).map_err(|error| error.to_string())?;
    for port in &args.ports {
        place::check_port(*port)?;
    }
    let _held = hold::hold(&folder)?;
    place::check_ports_free(&args.ports, &folder)?;
    let was_there = folder.exists();
    folder::make(&folder).map_err(|error| error.to_string())?;
    drop(mounting);
    let news = Arc::new(News::default());
    hear_signals(args.own, &news.stop).map_err(|error| format!("signals: {error}"))?;
    let placed = place::load(args, &folder).inspect_err(|_| {
        // Half a level is worse than none, but one that was there works on. What can't be removed is
        // said by the error that follows.
        if !was_there {
            let _ = folder::remove(&folder);
        }
    })?;
    let level = Level::open(&folder).map_err(|error| error.to_string())?;
    let level = Arc::new(level);
    let server = Server {
        offered: args.own.then(|| own::follow(level.clone(), news.clone())),
        news: &news,
    };
    clients.choose(&level)?;
    let learning = Settings {
        kept_parts_max: fan_out::kept_parts_max(&folder).min(learning.kept_parts_max),
        ..learning
    };
    let done = serve(args, &level, learning, placed, &server);
    if args.own && done.is_err() {
        // It is started again, and takes over.
        return done;
    }
    drain::end(&level, args.drain);
    drain::remove(&folder)?;
    say::note("detached");
    done
}

fn hear_signals(own: bool, stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    let nothing = Arc::new(AtomicBool::new(false));
    // Those that reopen logs are for the server, and would end this.
    let hangup = if own { &nothing } else { stop };
    for (signal, flag) in [
        (SIGINT, stop),
        (SIGTERM, stop),
        (SIGQUIT, stop),
        (SIGHUP, hangup),
        (SIGUSR1, &nothing),
    ] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(())
}

/// What others tell the daemon while it works.
struct Server<'a> {
    /// What our own server answers without a connection.
    offered: Option<Offered>,
    news: &'a News,
}

/// Somebody listens on each port.
fn check_servers(ports: &[u16]) -> Result<(), String> {
    for port in ports {
        let addresses = listeners::addresses(*port)
            .map_err(|error| format!("who listens on port {port}: {error}"))?;
        listeners::who_is_asked(*port, &addresses)?;
    }
    Ok(())
}

fn serve(
    args: &Attach,
    level: &Arc<Level>,
    learning: Settings,
    placed: Vec<Placed>,
    server: &Server<'_>,
) -> Result<(), String> {
    // A daemon that was killed may have found a filter, which is looked for again soon.
    let was_admitting = level.control().settings & layout::SETTING_ADMIT;
    level
        .prepare(
            settings(args) | was_admitting,
            args.idle,
            place::least_mtu(&placed),
        )
        .map_err(|error| error.to_string())?;
    level.set_ports(&args.ports);
    let writer = match args.log {
        Some(_) => {
            Some(Writer::open(&Target::Stdout).map_err(|error| format!("the log: {error}"))?)
        }
        None => None,
    };
    let mut lines = log::Lines::new(args.log.as_deref(), writer.as_ref().map(Writer::sink));
    let connect = origin::connector(level.clone());
    let seen = look::Look {
        ports: &args.ports,
        learning: learning.clone(),
        connect: connect.clone(),
    };
    let daemon = Daemon {
        level,
        learning,
        rest: rest::Rules::default(),
        connect,
        is_own: args.own,
        offered: server.offered.clone(),
        admission: args.admit.into(),
        answered: Box::new(move |event| lines.write(event)),
        note: Box::new(|text| say::note(text)),
        brief: &server.news.brief,
        changes: &server.news.changes,
        stop: &server.news.stop,
    };
    placed.iter().for_each(say::note);
    say_ready(args);
    level.set_mode(layout::MODE_SERVE);
    // Set when the daemon has ended, whatever the reason.
    let over = &AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let follower = thread::Builder::new().name("interfaces".into());
        follower
            .spawn_scoped(scope, move || follow::follow(args, level, placed, over))
            .map_err(|error| format!("starting a thread: {error}"))?;
        if !args.own {
            let looker = thread::Builder::new().name("look".into());
            looker
                .spawn_scoped(scope, move || seen.look(over))
                .map_err(|error| format!("starting a thread: {error}"))?;
        }
        let done = daemon.run().map_err(|error| error.to_string());
        over.store(true, Ordering::Relaxed);
        done
    });
    if let Some(writer) = writer {
        if writer.lost() > 0 {
            say::note(format_args!("{} lines of the log were lost", writer.lost()));
        }
        writer.close();
    }
    done
}

/// Says that it answers from now on.
fn say_ready(args: &Attach) {
    let ports: Vec<String> = args.ports.iter().map(ToString::to_string).collect();
    let text = format!("attached to port {}", ports.join(", "));
    if args.own {
        // The service is the server, which has a readiness of its own.
        own::say_to_server(own::ATTACHED, &text);
        return;
    }
    say::note("connections have no TCP timestamps from now on, see docs/softirq.md");
    // Whoever does not read it does not need it.
    let _ = say::out(format_args!("{text}\n"));
    // Whoever waits for our readiness is told; where nobody does, that is fine.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// By which rules the daemon of this number learns.
pub fn learning_of(pid: u32) -> Option<Settings> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
    match Cli::try_parse_from(words.iter().map(|word| &**word)) {
        Ok(Cli {
            command: Command::Attach(attach),
        }) => learning(&attach).ok(),
        _ => None,
    }
}

fn learning(args: &Attach) -> Result<Settings, String> {
    let sizes = place::sizes(args);
    // What was left a moment ago is not free yet.
    let most = |all: u32| all - all / 16;
    let room = Settings {
        published_max: lowroad_softirq::width::index(most(sizes.response_places())),
        published_bytes_max: most(sizes.store_len()).into(),
        ..Settings::default()
    };
    if args.own {
        return Ok(own::learning(room));
    }
    let excluded =
        Excluded::and_well_known(&args.exclude).map_err(|error| format!("--exclude {error}"))?;
    Ok(Settings {
        ttl_secs: args.ttl,
        excluded,
        ..room
    })
}

fn memory(text: &str) -> Result<u32, String> {
    let size = value::size(text).map_err(|error| error.to_string())?;
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    match (load::MEMORY_MIN..=load::MEMORY_MAX).contains(&size) {
        true => Ok(size),
        false => Err("from 1M to 512M".to_owned()),
    }
}

fn settings(args: &Attach) -> u32 {
    let when = |wanted, bit| if wanted { bit } else { 0 };
    layout::SETTING_LEARN
        | TcpSettings::read().bits()
        | when(args.log.is_some(), layout::SETTING_LOG)
        | when(
            args.ignore_cookies || args.own,
            layout::SETTING_IGNORE_COOKIES,
        )
        | when(
            args.ignore_cache_control || args.own,
            layout::SETTING_IGNORE_CACHE_CONTROL,
        )
        | when(
            !args.deny.is_empty() || !args.allow.is_empty(),
            layout::SETTING_DENY,
        )
}
