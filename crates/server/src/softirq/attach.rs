//! `lowroad attach`: attaches a level to ports, and runs the level's daemon until a signal ends it.

pub mod drain;
mod first_page;
mod interface_watch;
mod log;
pub mod origin;
mod placement;
pub mod rules;
mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lowroad_child_processes::message::PacketChannel;
use lowroad_log::{LogDestination, LogWriter};
use lowroad_privileges::capabilities;
use lowroad_site::access::WRITE_DELAY;
use lowroad_softirq::daemon::{AdmissionPolicy, DaemonContext};
use lowroad_softirq::fetch::address_fetcher::OfferLookup;
use lowroad_softirq::layout;
use lowroad_softirq::learner::LearnSettings;
use lowroad_softirq::learner::bypass;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::machine::listeners;
use lowroad_softirq::machine::tcp_settings::TcpSettings;
use lowroad_softirq::programs::folder;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use self::placement::AttachedInterface;
use super::level_view::LevelView;
use super::managed_level::messages::{ATTACHED, HOSTS, NUMBERS, URLS, report_to_server};
use super::managed_level::{self, DaemonFlags};
use super::policy::AttachPolicy;
use super::url_hits::{self, UrlHits};
use super::{level_lock, namespace, worker};
use crate::cli::softirq::{AdmissionArg, AttachArgs, TierArg, WorkerRole};
use crate::terminal_output;

/// Interval between reports of the level's numbers to the server that started it.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The capabilities that a daemon keeps after it has entered its namespace and mounted bpffs: BPF for maps and
/// programs, PERFMON for programs that read packets, NET_ADMIN for interfaces. The user remains root, which owns the
/// pins.
const RETAINED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN);

impl From<AdmissionArg> for AdmissionPolicy {
    fn from(admission: AdmissionArg) -> AdmissionPolicy {
        match admission {
            AdmissionArg::Auto => AdmissionPolicy::Auto,
            AdmissionArg::Known => AdmissionPolicy::Known,
            AdmissionArg::All => AdmissionPolicy::All,
        }
    }
}

/// Attaches a level, runs the level's daemon until a signal, and detaches the level.
///
/// # Errors
/// A message for the user with a remedy.
pub fn attach(args: &AttachArgs) -> Result<(), String> {
    match (args.worker, args.part) {
        (true, None) => return worker::supervise(args),
        (true, Some(WorkerRole::Worker)) => return worker::serve(args),
        (true, Some(WorkerRole::Level)) => end_with_parent()?,
        (false, _) if args.tier == TierArg::None => {
            return Err(
                "--tier none attaches nothing; add --worker to intercept connections".into(),
            );
        }
        (false, _) => {}
    }
    if args.keep {
        return supervisor::supervise(args);
    }
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    let policy = AttachPolicy::from_args(args)?;
    let learning = rules::learn_settings_for(&policy, args);
    // All checks come before the first change to the system.
    check_servers(&args.ports)?;
    placement::check_machine()?;
    placement::check_pins()?;
    let folder = folder::port_folder(args.ports[0]).map_err(|error| error.to_string())?;
    // The level's lock comes before the mount's, because acquiring it may wait until another daemon has drained its
    // connections.
    let lock = level_lock::acquire_after_end(&folder)?;
    let mount_lock = folder::lock_mount().map_err(|error| error.to_string())?;
    folder::mount_pins().map_err(|error| error.to_string())?;
    // CAP_SYS_ADMIN, which was needed to enter a namespace and mount bpffs, is dropped here.
    capabilities::reduce(RETAINED)?;
    for port in &args.ports {
        placement::check_port(*port)?;
    }
    placement::check_ports_free(&args.ports, &folder)?;
    let existed = folder.exists();
    folder::create(&folder).map_err(|error| error.to_string())?;
    drop(mount_lock);
    let messages = Arc::new(DaemonFlags::default());
    listen_for_signals(args.own, &messages.stop).map_err(|error| format!("signals: {error}"))?;
    // The channel is opened before the level is loaded, so that a lack of descriptors does not leave an incomplete
    // level.
    let parent = args.own.then(PacketChannel::to_parent).transpose();
    let parent = parent.map_err(|error| format!("the server's socket: {error}"))?;
    let attached_interfaces = placement::load(args, &folder).inspect_err(|_| {
        // An incomplete new level is removed; a level that already existed continues. If it can't be removed, the error
        // below is reported instead.
        if !existed {
            let _ = folder::remove(&folder);
        }
    })?;
    let level = SoftirqLevel::open(&folder).map_err(|error| error.to_string())?;
    let level = Arc::new(level);
    let inputs = DaemonInputs {
        learning: rules::limit_to_programs(learning, &folder),
        setting_bits: settings(args, &policy),
        offer_lookup: parent
            .map(|parent| managed_level::apply_messages(level.clone(), messages.clone(), parent)),
        messages: &messages,
        lock: &lock,
    };
    // The filter is applied before the programs serve, because they must never answer a denied client.
    policy.clients().apply(&level)?;
    let result = serve(args, &level, attached_interfaces, &inputs);
    if args.own && result.is_err() {
        // The supervisor restarts the daemon, which then takes over the level and its connections.
        return result;
    }
    drain::end(&level, args.drain);
    drain::remove(&folder)?;
    terminal_output::note("detached");
    result
}

/// Makes this process end with its parent, which waits for it and collects its exit status.
fn end_with_parent() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("the parent's end: {error}"))
}

fn listen_for_signals(is_managed: bool, stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    let ignored = Arc::new(AtomicBool::new(false));
    // Signals to reopen logs may be sent to the server's whole process group; their default action would end this
    // process.
    let hangup = if is_managed { &ignored } else { stop };
    for (signal, flag) in [
        (SIGINT, stop),
        (SIGTERM, stop),
        (SIGQUIT, stop),
        (SIGHUP, hangup),
        (SIGUSR1, &ignored),
    ] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(())
}

/// The daemon's rules, and the messages from other processes.
struct DaemonInputs<'a> {
    learning: LearnSettings,
    /// The settings for the programs, as bits.
    setting_bits: u32,
    /// Requests responses from the server that started this daemon, without an HTTP connection.
    offer_lookup: Option<OfferLookup>,
    messages: &'a DaemonFlags,
    /// The level's lock, through which this process announces its end to other processes.
    lock: &'a level_lock::LevelLock,
}

/// Checks that a server listens on each port.
fn check_servers(ports: &[u16]) -> Result<(), String> {
    for port in ports {
        let addresses = listeners::addresses(*port)
            .map_err(|error| format!("can't find the listener of port {port}: {error}"))?;
        listeners::describe_servers(*port, &addresses)?;
    }
    Ok(())
}

fn serve(
    args: &AttachArgs,
    level: &Arc<SoftirqLevel>,
    attached_interfaces: Vec<AttachedInterface>,
    inputs: &DaemonInputs<'_>,
) -> Result<(), String> {
    // A previous daemon may have found a packet filter, so admission stays on until this daemon has checked for one.
    let was_admitting = level.control().settings & layout::SETTING_ADMIT;
    level
        .prepare(
            inputs.setting_bits | was_admitting,
            args.idle,
            placement::least_mtu(&attached_interfaces),
        )
        .map_err(|error| error.to_string())?;
    level.set_ports(&args.ports);
    let writer = match args.log {
        Some(_) => Some(
            LogWriter::open_delayed(&LogDestination::Stdout, WRITE_DELAY)
                .map_err(|error| format!("the log: {error}"))?,
        ),
        None => None,
    };
    let mut lines = log::LineWriter::new(args.log.as_deref(), writer.as_ref().map(LogWriter::sink));
    let connect = origin::connector(level.clone());
    let query = first_page::LevelQuery {
        ports: &args.ports,
        learning: inputs.learning.clone(),
        connect: connect.clone(),
    };
    let daemon = DaemonContext {
        level,
        learning: inputs.learning.clone(),
        bypass_rules: bypass::LevelBypassRules::default(),
        connect,
        is_lowroad: args.own,
        offer_lookup: inputs.offer_lookup.clone(),
        admission: args.admit.into(),
        on_answer: Box::new(move |event| lines.write(event)),
        notify: Box::new(|text| terminal_output::note(text)),
        short_lifetimes: &inputs.messages.brief,
        server_purges: &inputs.messages.changes,
        stop: &inputs.messages.stop,
    };
    // Maps, ports and settings are complete, so the programs may answer from here on.
    attached_interfaces.iter().for_each(terminal_output::note);
    report_ready(args);
    level.set_mode(layout::MODE_SERVE);
    // `has_ended` is set when the daemon has ended for any reason; it ends the other threads.
    let has_ended = &AtomicBool::new(false);
    let result = thread::scope(|scope| {
        let follower = thread::Builder::new().name("interfaces".into());
        follower
            .spawn_scoped(scope, move || {
                interface_watch::follow(args, level, attached_interfaces, has_ended)
            })
            .map_err(|error| format!("starting a thread: {error}"))?;
        if args.own {
            let reporter = thread::Builder::new().name("numbers".into());
            reporter
                .spawn_scoped(scope, move || report_numbers(level, has_ended))
                .map_err(|error| format!("starting a thread: {error}"))?;
        }
        // The first-page check is for operators of other servers; Lowroad's own pages need no check.
        if !args.own {
            let checker = thread::Builder::new().name("look".into());
            checker
                .spawn_scoped(scope, move || query.check(has_ended))
                .map_err(|error| format!("starting a thread: {error}"))?;
        }
        let result = daemon.run().map_err(|error| error.to_string());
        // The end is announced before the threads are joined, since the threads may wait for a response of the server.
        inputs.lock.announce_end(args.drain);
        has_ended.store(true, Ordering::Relaxed);
        result
    });
    if let Some(writer) = writer {
        if writer.lost() > 0 {
            terminal_output::note(format_args!("{} lines of the log were lost", writer.lost()));
        }
        writer.close();
    }
    result
}

/// Reports the level's numbers and hits by URL to the server each second until the daemon ends.
fn report_numbers(level: &SoftirqLevel, has_ended: &AtomicBool) {
    let mut url_hits = UrlHits::default();
    while !has_ended.load(Ordering::Relaxed) {
        // If the numbers can't be read, the server's metrics keep the previous ones.
        if let Ok(view) = LevelView::new(level) {
            report_to_server(NUMBERS, &view.report().to_line());
        }
        let current = level.slot_hits();
        let hits = url_hits.since_previous(current, level.freed_hits.take());
        if !hits.is_empty() {
            report_to_server(URLS, &url_hits::to_line(&hits));
            let hosts = url_hits::hits_by_host(&hits);
            report_to_server(HOSTS, &url_hits::to_line(&hosts));
        }
        thread::sleep(REPORT_INTERVAL);
    }
}

/// Reports that the level answers requests from now on.
fn report_ready(args: &AttachArgs) {
    let ports: Vec<String> = args.ports.iter().map(ToString::to_string).collect();
    let text = format!("attached to port {}", ports.join(", "));
    if args.own {
        // The service manager supervises the server, which reports its own readiness.
        report_to_server(ATTACHED, &text);
        return;
    }
    // The daemon also runs if standard output is closed.
    let _ = terminal_output::out(format_args!("{text}\n"));
    // The call fails without a service manager, because there is no socket to notify.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// The bits of the programs' settings. In front of a Lowroad server, the level must respond as that server would.
fn settings(args: &AttachArgs, policy: &AttachPolicy) -> u32 {
    let bit_if = |is_set, bit| if is_set { bit } else { 0 };
    layout::SETTING_LEARN
        | TcpSettings::read().bits()
        | policy.setting_bits()
        | bit_if(args.log.is_some(), layout::SETTING_LOG)
        | bit_if(args.own, layout::SETTING_IGNORE_COOKIES)
        | bit_if(args.own, layout::SETTING_IGNORE_CACHE_CONTROL)
}
