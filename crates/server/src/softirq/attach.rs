//! `lowroad attach`: from the command line to a level in front of a port, until a signal ends it.

pub mod drain;
mod follow;
mod keep;
mod log;
mod look;
pub mod origin;
mod place;
pub mod rules;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lowroad_children::message::Channel;
use lowroad_log::{Target, Writer};
use lowroad_privileges::capabilities;
use lowroad_site::access::WRITE_DELAY;
use lowroad_softirq::daemon::{Admission, Daemon};
use lowroad_softirq::fetch::asker::Offered;
use lowroad_softirq::layout;
use lowroad_softirq::learn::Settings;
use lowroad_softirq::learn::rest;
use lowroad_softirq::level::Level;
use lowroad_softirq::machine::listeners;
use lowroad_softirq::machine::tcp_settings::TcpSettings;
use lowroad_softirq::programs::folder;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use self::place::Placed;
use super::own::words::{ATTACHED, say_to_server};
use super::own::{self, News};
use super::policy::AttachPolicy;
use super::{hold, namespace, worker};
use crate::cli::softirq::{Admit, Attach, Part, TierWanted};
use crate::say;

/// What a process of the level keeps once it has entered its namespace and the file system for pins is mounted: maps and
/// programs; reading packets from them; interfaces. The pins are files of uid 0.
const KEPT: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN);

impl From<Admit> for Admission {
    fn from(wanted: Admit) -> Admission {
        match wanted {
            Admit::Auto => Admission::Auto,
            Admit::Known => Admission::Known,
            Admit::All => Admission::All,
        }
    }
}

/// Attaches, works until a signal, and detaches.
///
/// # Errors
/// A text for the user: what can't be had, and what would change it.
pub fn attach(args: &Attach) -> Result<(), String> {
    match (args.worker, args.part) {
        (true, None) => return worker::keep(args),
        (true, Some(Part::Worker)) => return worker::serve(args),
        (true, Some(Part::Level)) => end_with_parent()?,
        (false, _) if args.tier == TierWanted::None => {
            return Err("--tier none attaches nothing; with --worker it intercepts".into());
        }
        (false, _) => {}
    }
    if args.keep {
        return keep::keep(args);
    }
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    let policy = AttachPolicy::of(args)?;
    let learning = rules::learning_by(&policy, args);
    check_servers(&args.ports)?;
    place::check_machine()?;
    place::check_pins()?;
    let folder = folder::of_port(args.ports[0]).map_err(|error| error.to_string())?;
    // Before locking the mount: this may wait until the connections of another process end.
    let held = hold::hold_after_end(&folder)?;
    let mounting = folder::lock_mount().map_err(|error| error.to_string())?;
    folder::mount_pins().map_err(|error| error.to_string())?;
    capabilities::reduce(KEPT)?;
    for port in &args.ports {
        place::check_port(*port)?;
    }
    place::check_ports_free(&args.ports, &folder)?;
    let was_there = folder.exists();
    folder::make(&folder).map_err(|error| error.to_string())?;
    drop(mounting);
    let news = Arc::new(News::default());
    hear_signals(args.own, &news.stop).map_err(|error| format!("signals: {error}"))?;
    let parent = args.own.then(Channel::to_parent).transpose();
    let parent = parent.map_err(|error| format!("the server's socket: {error}"))?;
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
        offered: parent.map(|parent| own::follow(level.clone(), news.clone(), parent)),
        news: &news,
        held: &held,
    };
    policy.clients().choose(&level)?;
    let learning = rules::behind(learning, &folder);
    let bits = settings(args, &policy);
    let done = serve(args, &level, (learning, bits), placed, &server);
    if args.own && done.is_err() {
        // It is started again, and takes over.
        return done;
    }
    drain::end(&level, args.drain);
    drain::remove(&folder)?;
    say::note("detached");
    done
}

/// Whoever has started this one waits for its end; if that is gone, nobody does.
fn end_with_parent() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("the parent's end: {error}"))
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
    /// Signals the end of this process to others.
    held: &'a hold::Held,
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
    (learning, bits): (Settings, u32),
    placed: Vec<Placed>,
    server: &Server<'_>,
) -> Result<(), String> {
    // A daemon that was killed may have found a filter, which is looked for again soon.
    let was_admitting = level.control().settings & layout::SETTING_ADMIT;
    level
        .prepare(bits | was_admitting, args.idle, place::least_mtu(&placed))
        .map_err(|error| error.to_string())?;
    level.set_ports(&args.ports);
    let writer = match args.log {
        Some(_) => Some(
            Writer::open_delayed(&Target::Stdout, WRITE_DELAY)
                .map_err(|error| format!("the log: {error}"))?,
        ),
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
        // Before joining the threads, which may wait for the server.
        server.held.begin_end(args.drain);
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
        say_to_server(ATTACHED, &text);
        return;
    }
    // Whoever does not read it does not need it.
    let _ = say::out(format_args!("{text}\n"));
    // Whoever waits for our readiness is told; where nobody does, that is fine.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// The bits of the programs' settings. In front of a Lowroad server the level gives the same answers as that server.
fn settings(args: &Attach, policy: &AttachPolicy) -> u32 {
    let when = |wanted, bit| if wanted { bit } else { 0 };
    layout::SETTING_LEARN
        | TcpSettings::read().bits()
        | policy.setting_bits()
        | when(args.log.is_some(), layout::SETTING_LOG)
        | when(args.own, layout::SETTING_IGNORE_COOKIES)
        | when(args.own, layout::SETTING_IGNORE_CACHE_CONTROL)
}
