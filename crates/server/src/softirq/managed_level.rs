//! The level in front of this server, run by two child processes that start before root is given up. A supervisor
//! restarts the other one, the daemon, which works like `lowroad attach`. Both end when their standard input closes,
//! so they outlive the server by at most their drain timeout. On standard output they report their state and write the
//! access log's lines.

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

use lowroad_child_processes::message::{MessageError, PacketChannel};
use lowroad_child_processes::process::ChildProcess;
use lowroad_config::{AccessLogFormat, Config, SoftirqMode};
use lowroad_engine::panic_policy;
use lowroad_log::{ErrorLogger, LineSink};
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
use crate::level::{LevelHealth, LevelKeeper, ManagedLevel};
use crate::running_server::RunningServer;
use crate::terminal_output;
use lowroad_store::change_feed::{self, ChangeFeed};

/// Maximum segments of a response on a persistent connection. The server sends longer ones at less cost; up to this
/// length avoiding the migration is worth more (docs/performance.md).
const KEPT_PARTS_MAX: usize = 7;
/// Lifetime of a published response without a message from the server.
const LIFETIME_SECS: u64 = 60;
/// Time after which all threads of the server know of a change.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// The level's processes, the channel that ends them when it closes, and the thread that reads their output.
struct LevelSupervisor {
    process: ChildProcess,
    channel: Arc<PacketChannel>,
    health: Arc<LevelHealthState>,
    hearing: JoinHandle<()>,
}

/// Starts the level, if it is configured. It writes its access log lines to `access` and follows `change_feed`.
///
/// # Errors
/// A message for the user, when a named interface can't be used.
pub fn start(
    config: &Config,
    access: Option<(LineSink, AccessLogFormat)>,
    logger: &ErrorLogger,
    changes: &Arc<ChangeFeed>,
) -> Result<ManagedLevel, String> {
    let interface = match &config.server.softirq {
        SoftirqMode::Off => return Ok(ManagedLevel::default()),
        SoftirqMode::Auto => None,
        SoftirqMode::Interface(name) => Some(name.as_str()),
    };
    let health = Arc::new(LevelHealthState::default());
    let ports = ports(config);
    let launched = match ports.is_empty() {
        true => Err("no fixed TCP port to answer on".to_owned()),
        false => launch(LaunchOptions {
            interface,
            ports: &ports,
            access,
            logger,
            health: &health,
            changes,
        }),
    };
    let shown: Arc<dyn LevelHealth> = health.clone();
    match launched {
        Ok(keeper) => Ok(ManagedLevel {
            keeper: Some(Box::new(keeper)),
            health: Some(shown),
            note: None,
        }),
        // With `auto`, a machine that lacks the level's requirements still gets a server.
        Err(problem) if interface.is_none() || ports.is_empty() => {
            let text = format!("unavailable: {problem}");
            health.is_not_here(&text);
            Ok(ManagedLevel {
                keeper: None,
                health: Some(shown),
                note: Some(format!("softirq: {text}")),
            })
        }
        Err(problem) => Err(format!("softirq: {problem}")),
    }
}

fn ports(config: &Config) -> Vec<u16> {
    let sites = config.sites.iter();
    let mut ports: Vec<u16> = sites
        .flat_map(|site| site.listen.iter().map(std::net::SocketAddr::port))
        // The kernel chooses a number for port 0, so it is unknown here.
        .filter(|port| *port != 0)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The interface and ports of a level, and the destinations of its reports.
struct LaunchOptions<'a> {
    interface: Option<&'a str>,
    ports: &'a [u16],
    access: Option<(LineSink, AccessLogFormat)>,
    logger: &'a ErrorLogger,
    health: &'a Arc<LevelHealthState>,
    changes: &'a Arc<ChangeFeed>,
}

fn launch(options: LaunchOptions<'_>) -> Result<LevelSupervisor, String> {
    let LaunchOptions {
        interface,
        ports,
        access,
        logger,
        health,
        changes,
    } = options;
    let format = access.as_ref().map(|(_, format)| *format);
    let command = command(interface, ports, format)?;
    let (mut process, channel) = ChildProcess::spawn_with_channel(command)
        .map_err(|error| format!("starting it: {error}"))?;
    let said = process.take_output().0.expect("it is a pipe");
    let mut hearing = LevelFeedback {
        said: BufReader::with_capacity(64 * 1024, said),
        access,
        logger: logger.clone(),
        health: health.clone(),
        changes: changes.clone(),
    };
    // The daemon reports readiness, or ends after it has written the reason to standard error.
    if !hearing.until_attached() {
        drop(channel);
        // The process has ended: this only collects its status.
        let _ = process.reap();
        return Err("the process ended; its message is above".into());
    }
    let channel = Arc::new(channel);
    let (teller, changes) = (channel.clone(), changes.clone());
    panic_policy::start("softirq", move || tell_changes(&teller, &changes))
        .map_err(|error| format!("starting a thread: {error}"))?;
    let hearing = start_thread("softirq-said", move || hearing.until_the_end())?;
    Ok(LevelSupervisor {
        process,
        channel,
        health: health.clone(),
        hearing,
    })
}

fn command(
    interface: Option<&str>,
    ports: &[u16],
    format: Option<AccessLogFormat>,
) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(["attach", "--own", "--keep", "--drain", "2"]);
    if let Some(name) = interface {
        command.args(["--interface", name]);
    }
    match format {
        Some(AccessLogFormat::Combined) => command.arg("--log=combined"),
        Some(AccessLogFormat::Extended) => command.arg("--log=extended"),
        Some(AccessLogFormat::Json) => command.arg("--log=json"),
        None => &mut command,
    };
    command.args(ports.iter().map(ToString::to_string));
    command.stdout(Stdio::piped());
    Ok(command)
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let started = thread::Builder::new().name(name.into()).spawn(run);
    started.map_err(|error| format!("starting a thread: {error}"))
}

/// Reports changes to the daemon, each twice with a pause: a response made just before all threads knew of the change
/// may have been fetched after the first report.
fn tell_changes(channel: &PacketChannel, changes: &ChangeFeed) {
    changes.listen();
    loop {
        changes.wait();
        let word = match changes.take() {
            change_feed::Invalidation::None => continue,
            change_feed::Invalidation::Purged(patterns) => ToDaemon::Purged(patterns),
            // Some changes can't be observed, so the daemon must shorten lifetimes.
            change_feed::Invalidation::All if changes.is_brief() => ToDaemon::Brief,
            change_feed::Invalidation::All => ToDaemon::Changed,
        };
        let mut left = 2;
        // A full channel is retried after the pause: a lost change would leave stale responses published.
        while left > 0 {
            match offers::send(channel, &word) {
                Ok(()) => left -= 1,
                Err(
                    MessageError::NotReady | MessageError::System(Errno::NOBUFS | Errno::NOMEM),
                ) => {}
                // The thread that reads the processes' output reports their end.
                Err(_) => return,
            }
            thread::sleep(SETTLE_TIME);
        }
    }
}

impl LevelKeeper for LevelSupervisor {
    fn answer(&self, running: Arc<Mutex<RunningServer>>) -> std::io::Result<()> {
        let channel = self.channel.clone();
        panic_policy::start("softirq-asks", move || offers::answer(&channel, &running))
    }

    fn end(mut self: Box<Self>) {
        self.health.is_to_end();
        // Other threads hold the channel, too, so dropping it would not close it.
        self.channel.close();
        // Joins when both processes have closed their output; the daemon may run without its supervisor by now. The
        // panic hook has reported a panic of the thread, and the processes have reported their errors.
        let _ = self.hearing.join();
        let _ = self.process.reap();
    }
}

/// The daemon's rules in front of the server that started it, which reports changes: responses have the origin's fields, no Age,
/// and a fixed lifetime. `room` bounds the published responses.
pub fn learning(room: LearnSettings) -> LearnSettings {
    LearnSettings {
        ttl_secs: Some(LIFETIME_SECS),
        lifetime_secs_max: LIFETIME_SECS,
        with_age: false,
        kept_parts_max: KEPT_PARTS_MAX,
        ..room
    }
}

/// The server's messages to the daemon.
#[derive(Default)]
pub struct DaemonMessage {
    /// Lifetimes must be short, because not all changes are reported.
    pub brief: AtomicBool,
    /// Number of purges that changes caused.
    pub changes: AtomicU32,
    /// The server has ended.
    pub stop: Arc<AtomicBool>,
}

/// Applies the server's messages on a thread. Returns the function that requests responses from the server.
pub fn follow(
    level: Arc<SoftirqLevel>,
    news: Arc<DaemonMessage>,
    server: PacketChannel,
) -> OfferLookup {
    let questions = Arc::new(OfferRequests::new(server));
    let hears = questions.clone();
    thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Some(word) = hears.next_word(&mut buffer) {
            // Set before the purge below, so that later responses get the short lifetime.
            if word == ToDaemon::Brief {
                news.brief.store(true, Ordering::Relaxed);
            }
            news.changes
                .fetch_add(publisher::COUNTS_PER_PURGE, Ordering::Relaxed);
            let mut gone = publisher::published(&level);
            if let ToDaemon::Purged(patterns) = &word {
                gone.retain(|one| is_meant(patterns, one));
            }
            // Without a purge the level could answer with outdated responses, so the daemon ends.
            if let Err(error) = publisher::purge(&level, &gone) {
                terminal_output::note(error);
                break;
            }
        }
        news.stop.store(true, Ordering::Relaxed);
    });
    Arc::new(move |local, head| questions.ask(local, head))
}

/// Whether one of these patterns matches a response. Malformed keys and patterns match, so that no purge is missed.
fn is_meant(patterns: &str, one: &PublishedResponse) -> bool {
    let Some(key) = RequestKey::read(&one.key) else {
        return true;
    };
    patterns.lines().any(|text| {
        let pattern = RequestPattern::parse(text);
        pattern.map_or(true, |pattern| pattern::is_meant(&pattern, &key))
    })
}
