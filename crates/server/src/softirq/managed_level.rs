//! The level in front of this server, run by two child processes that start before root is given up: a supervisor, and
//! the daemon, which works like `lowroad attach` and which the supervisor restarts. Each process ends when its standard
//! input closes, so neither outlives the server by more than its drain timeout. They write state reports and access log
//! lines to standard output, which the server reads.

mod denials;
pub mod feedback;
pub mod health;
pub mod messages;
mod offers;

use std::io::BufReader;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode};
use lowroad_child_processes::process::ChildProcess;
use lowroad_config::{AccessLogConfig, Config, SoftirqMode};
use lowroad_engine::panic_policy;
use lowroad_log::{ErrorLogger, LineSink};
use lowroad_site::access_sink::AccessSink;
use lowroad_softirq::fetch::address_fetcher::OfferLookup;
use lowroad_softirq::key::RequestKey;
use lowroad_softirq::learner::LearnSettings;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher::{self, PublishedResponse};
use lowroad_softirq::pattern::{self, RequestPattern};
use rustix::io::Errno;

use self::feedback::LevelFeedback;
use self::health::LevelHealthState;
use self::offers::{OfferRequests, ToDaemon};
use crate::level::{LevelHealth, LevelProcesses, LevelStart, ManagedLevel};
use crate::log_writers;
use crate::running_server::RunningServer;
use crate::terminal_output;
use lowroad_store::change_feed::{self, ChangeFeed};

/// Maximum segments of a response on connections that stay open. The server sends longer responses at less cost; for
/// responses of up to this length, avoiding the migration saves more (docs/performance.md).
const KEEP_ALIVE_SEGMENTS_MAX: usize = 7;
/// Lifetime of a published response that the server does not invalidate.
const LIFETIME_SECS: u64 = 60;
/// Time after which all threads of the server have noticed a change.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// The level's processes, the channel to the daemon (closing it ends the processes), and the thread that reads their
/// output.
struct LevelSupervisor {
    process: ChildProcess,
    channel: Arc<PacketChannel>,
    health: Arc<LevelHealthState>,
    reader: JoinHandle<()>,
}

/// Starts the level, if it is configured. The level's access log lines go to `access`, and its responses follow
/// `changes`. With [`LevelStart::Later`], problems with the interface are only logged.
///
/// # Errors
/// An interface that the configuration names can't be used: a message for the user.
pub fn start(
    config: &Config,
    access: Vec<(LineSink, AccessLogConfig)>,
    logger: &ErrorLogger,
    changes: &Arc<ChangeFeed>,
    when: LevelStart,
) -> Result<ManagedLevel, String> {
    let interface = match &config.server.softirq {
        SoftirqMode::Off => return Ok(ManagedLevel::default()),
        SoftirqMode::Auto => None,
        SoftirqMode::Interface(name) => Some(name.as_str()),
    };
    let health = Arc::new(LevelHealthState::default());
    let ports = ports(config);
    let result = match ports.is_empty() {
        true => Err("no fixed TCP port to answer on".to_owned()),
        false => launch(LaunchOptions {
            interface,
            ports: &ports,
            access,
            logger,
            health: &health,
            changes,
            when,
        }),
    };
    let level_health: Arc<dyn LevelHealth> = health.clone();
    match result {
        Ok(supervisor) => Ok(ManagedLevel {
            processes: Some(Box::new(supervisor)),
            health: Some(level_health),
            startup_warning: None,
        }),
        // With `softirq = "auto"`, the server also runs on a machine that does not meet the level's requirements.
        Err(problem) if interface.is_none() || ports.is_empty() => {
            let text = format!("unavailable: {problem}");
            health.record_unavailable(&text);
            Ok(ManagedLevel {
                processes: None,
                health: Some(level_health),
                startup_warning: Some(format!("softirq: {text}")),
            })
        }
        Err(problem) => Err(format!("softirq: {problem}")),
    }
}

fn ports(config: &Config) -> Vec<u16> {
    let sites = config.sites.iter();
    let mut ports: Vec<u16> = sites
        .flat_map(|site| site.listen.iter().map(std::net::SocketAddr::port))
        // Port 0 is left out: the kernel chooses the actual port, which is not known yet.
        .filter(|port| *port != 0)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The interface and ports of a level, and the receivers of its reports.
struct LaunchOptions<'a> {
    interface: Option<&'a str>,
    ports: &'a [u16],
    access: Vec<(LineSink, AccessLogConfig)>,
    logger: &'a ErrorLogger,
    health: &'a Arc<LevelHealthState>,
    changes: &'a Arc<ChangeFeed>,
    when: LevelStart,
}

fn launch(options: LaunchOptions<'_>) -> Result<LevelSupervisor, String> {
    let LaunchOptions {
        interface,
        ports,
        access,
        logger,
        health,
        changes,
        when,
    } = options;
    let mut command = command(interface, ports, !access.is_empty())?;
    if when == LevelStart::Later {
        command.arg("--later");
    }
    let (mut process, channel) = ChildProcess::spawn_with_channel(command)
        .map_err(|error| format!("starting it: {error}"))?;
    let output = process.take_output().0.expect("it is a pipe");
    let mut feedback = LevelFeedback {
        output: BufReader::with_capacity(64 * 1024, output),
        access: access
            .into_iter()
            .map(|(sink, log)| AccessSink::new(sink, log))
            .collect(),
        hostname: log_writers::hostname(),
        logger: logger.clone(),
        health: health.clone(),
        changes: changes.clone(),
    };
    // The daemon either reports readiness, or ends after it has written the reason to standard error.
    if when == LevelStart::Now && !feedback.wait_until_attached() {
        drop(channel);
        // The process has already ended, so this does not block.
        let _ = process.reap();
        return Err("the process ended; its message is above".into());
    }
    let channel = Arc::new(channel);
    let (report_channel, changes) = (channel.clone(), changes.clone());
    panic_policy::start("softirq", move || report_changes(&report_channel, &changes))
        .map_err(|error| format!("starting a thread: {error}"))?;
    let (denial_channel, denial_health) = (channel.clone(), health.clone());
    panic_policy::start("softirq-deny", move || {
        denials::report(&denial_channel, denial_health.denials());
    })
    .map_err(|error| format!("starting a thread: {error}"))?;
    let reader = start_thread("softirq-said", move || feedback.forward_output())?;
    Ok(LevelSupervisor {
        process,
        channel,
        health: health.clone(),
        reader,
    })
}

fn command(interface: Option<&str>, ports: &[u16], is_logged: bool) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(["attach", "--own", "--keep", "--drain", "2"]);
    if let Some(name) = interface {
        command.args(["--interface", name]);
    }
    if is_logged {
        // Records, from which the server makes the entries of each log.
        command.arg("--log=binary");
    }
    command.args(ports.iter().map(ToString::to_string));
    command.stdout(Stdio::piped());
    Ok(command)
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let result = thread::Builder::new().name(name.into()).spawn(run);
    result.map_err(|error| format!("starting a thread: {error}"))
}

/// Reports changes to the daemon. Each is reported again after a pause: the daemon may have fetched a response after
/// the first report from a thread that did not know of the change yet.
fn report_changes(channel: &PacketChannel, changes: &ChangeFeed) {
    changes.listen();
    loop {
        changes.wait();
        let message = match changes.take() {
            change_feed::Invalidation::None => continue,
            change_feed::Invalidation::Purged(patterns) => ToDaemon::Purged(patterns),
            // Not all changes can be observed, so the daemon must shorten lifetimes.
            change_feed::Invalidation::All if changes.is_short_lived() => ToDaemon::Brief,
            change_feed::Invalidation::All => ToDaemon::Changed,
        };
        let mut remaining = 2;
        // If the channel is full, the message is retried after the pause: a lost change would leave stale responses
        // published.
        while remaining > 0 {
            match offers::send(channel, &message) {
                Ok(()) => remaining -= 1,
                Err(
                    MessageError::NotReady | MessageError::System(Errno::NOBUFS | Errno::NOMEM),
                ) => {}
                // The channel is closed. The thread that reads the processes' output reports their end.
                Err(_) => return,
            }
            thread::sleep(SETTLE_TIME);
        }
    }
}

impl LevelProcesses for LevelSupervisor {
    fn start_answering(&self, running: Arc<Mutex<RunningServer>>) -> std::io::Result<()> {
        let channel = self.channel.clone();
        panic_policy::start("softirq-asks", move || {
            offers::serve_requests(&channel, &running)
        })
    }

    fn attach_later(&self) -> Box<dyn FnOnce() + Send> {
        let channel = self.channel.clone();
        Box::new(move || {
            // If the supervisor has ended, the thread that reads its output reports that.
            let _ = channel.send(messages::ATTACH, &[], SendMode::Wait);
        })
    }

    fn end(mut self: Box<Self>) {
        self.health.record_ending();
        // The channel is closed explicitly, because other threads also hold it.
        self.channel.close();
        // The thread ends when both processes have closed their output, even if the daemon has lost its supervisor.
        // Errors are ignored: the panic hook has reported a panic of the thread, and the processes have printed their
        // errors.
        let _ = self.reader.join();
        let _ = self.process.reap();
    }
}

/// The daemon's rules in front of the server that started it. Because that server reports changes, responses have the
/// origin's fields without Age, and a fixed lifetime. `bounds` limits the published responses.
pub fn learning(bounds: LearnSettings) -> LearnSettings {
    LearnSettings {
        ttl_secs: Some(LIFETIME_SECS),
        lifetime_secs_max: LIFETIME_SECS,
        with_age: false,
        keep_alive_parts_max: KEEP_ALIVE_SEGMENTS_MAX,
        ..bounds
    }
}

/// The state that the server's messages set for the daemon.
#[derive(Default)]
pub struct DaemonFlags {
    /// Lifetimes must be short, because the server can't report all changes.
    pub brief: AtomicBool,
    /// Counts purges that were caused by reported changes.
    pub changes: AtomicU32,
    /// The server has ended.
    pub stop: Arc<AtomicBool>,
}

/// Starts a thread that applies the server's messages. Returns a function that requests a response from the server.
pub fn apply_messages(
    level: Arc<SoftirqLevel>,
    messages: Arc<DaemonFlags>,
    server: PacketChannel,
) -> OfferLookup {
    let requests = Arc::new(OfferRequests::new(server));
    let receiver = requests.clone();
    thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Some(message) = receiver.next_message(&mut buffer) {
            if let ToDaemon::Denied(prefixes) = &message {
                // Without them, denied clients are passed to the server, which refuses them.
                if let Err(error) = level.set_dropped_clients(prefixes) {
                    terminal_output::note(error);
                }
                continue;
            }
            // The flag is set before the purge below, so that responses stored after the purge get the short lifetime.
            if message == ToDaemon::Brief {
                messages.brief.store(true, Ordering::Relaxed);
            }
            messages
                .changes
                .fetch_add(publisher::COUNTS_PER_PURGE, Ordering::Relaxed);
            let mut purged = publisher::published(&level);
            if let ToDaemon::Purged(patterns) = &message {
                purged.retain(|response| matches_any(patterns, response));
            }
            // If the purge fails, the level might send outdated responses, so the daemon ends.
            if let Err(error) = publisher::purge(&level, &purged) {
                terminal_output::note(error);
                break;
            }
        }
        messages.stop.store(true, Ordering::Relaxed);
    });
    Arc::new(move |local, head| requests.request(local, head))
}

/// Whether a response matches one of these patterns. Malformed keys and patterns count as matches, so that no purge is
/// missed.
fn matches_any(patterns: &str, response: &PublishedResponse) -> bool {
    let Some(key) = RequestKey::read(&response.key) else {
        return true;
    };
    patterns.lines().any(|text| {
        let pattern = RequestPattern::parse(text);
        pattern.map_or(true, |pattern| pattern::matches_pattern(&pattern, &key))
    })
}
