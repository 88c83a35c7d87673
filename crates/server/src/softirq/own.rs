//! The level in front of this server, run by two child processes that start before root is given up. A supervisor
//! restarts the other one, the daemon, which works like `lowroad attach`. Both end when their standard input closes,
//! so they outlive the server by at most their drain timeout. On standard output they report their state and write the
//! access log's lines.

pub mod health;
pub mod heard;
mod offers;
pub mod words;

use std::io::BufReader;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lowroad_children::message::{Channel, MessageError};
use lowroad_children::process::ChildProcess;
use lowroad_config::{Config, Format, Softirq};
use lowroad_engine::background;
use lowroad_log::{Logger, Sink};
use lowroad_softirq::fetch::asker::Offered;
use lowroad_softirq::key::Key;
use lowroad_softirq::learn::Settings;
use lowroad_softirq::level::Level;
use lowroad_softirq::level::publish::{self, Published};
use lowroad_softirq::pattern::{self, Pattern};
use rustix::io::Errno;

use self::health::Health;
use self::heard::Hearing;
use self::offers::{Questions, Word};
use crate::level::{LevelHealth, LevelKeeper, ManagedLevel};
use crate::running::Running;
use crate::say;
use lowroad_store::changes::{self, Changes};

/// Maximum segments of a response on a persistent connection. The server sends longer ones at less cost; up to this
/// length avoiding the migration is worth more (docs/performance.md).
const KEPT_PARTS_MAX: usize = 7;
/// Lifetime of a published response without a message from the server.
const LIFETIME_SECS: u64 = 60;
/// Time after which all threads of the server know of a change.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// The level's processes, the channel that ends them when it closes, and the thread that reads their output.
struct Keeper {
    process: ChildProcess,
    channel: Arc<Channel>,
    health: Arc<Health>,
    hearing: JoinHandle<()>,
}

/// Starts the level, if it is configured. It writes its access log lines to `access` and follows `changes`.
///
/// # Errors
/// A message for the user, when a named interface can't be used.
pub fn start(
    config: &Config,
    access: Option<(Sink, Format)>,
    logger: &Logger,
    changes: &Arc<Changes>,
) -> Result<ManagedLevel, String> {
    let interface = match &config.server.softirq {
        Softirq::Off => return Ok(ManagedLevel::default()),
        Softirq::Auto => None,
        Softirq::Interface(name) => Some(name.as_str()),
    };
    let health = Arc::new(Health::default());
    let ports = ports(config);
    let launched = match ports.is_empty() {
        true => Err("no fixed TCP port to answer on".to_owned()),
        false => launch(interface, &ports, access, logger, (&health, changes)),
    };
    let described = health.clone();
    let shown: LevelHealth = Arc::new(move || described.text());
    match launched {
        Ok(keeper) => Ok(ManagedLevel {
            keeper: Some(Box::new(keeper)),
            health: Some(shown),
            note: None,
        }),
        // With `auto`, a machine that lacks the level's requirements still gets a server.
        Err(problem) if interface.is_none() || ports.is_empty() => {
            let text = format!("not here: {problem}");
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

fn launch(
    interface: Option<&str>,
    ports: &[u16],
    access: Option<(Sink, Format)>,
    logger: &Logger,
    (health, changes): (&Arc<Health>, &Arc<Changes>),
) -> Result<Keeper, String> {
    let format = access.as_ref().map(|(_, format)| *format);
    let command = command(interface, ports, format)?;
    let (mut process, channel) = ChildProcess::spawn_with_channel(command)
        .map_err(|error| format!("starting it: {error}"))?;
    let said = process.take_output().0.expect("it is a pipe");
    let mut hearing = Hearing {
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
        return Err("the process ended; its reason stands above".into());
    }
    let channel = Arc::new(channel);
    let (teller, changes) = (channel.clone(), changes.clone());
    background::start("softirq", move || tell_changes(&teller, &changes))
        .map_err(|error| format!("starting a thread: {error}"))?;
    let hearing = start_thread("softirq-said", move || hearing.until_the_end())?;
    Ok(Keeper {
        process,
        channel,
        health: health.clone(),
        hearing,
    })
}

fn command(
    interface: Option<&str>,
    ports: &[u16],
    format: Option<Format>,
) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(["attach", "--own", "--keep", "--drain", "2"]);
    if let Some(name) = interface {
        command.args(["--interface", name]);
    }
    match format {
        Some(Format::Combined) => command.arg("--log=combined"),
        Some(Format::Extended) => command.arg("--log=extended"),
        Some(Format::Json) => command.arg("--log=json"),
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
fn tell_changes(channel: &Channel, changes: &Changes) {
    changes.listen();
    loop {
        changes.wait();
        let word = match changes.take() {
            changes::News::None => continue,
            changes::News::Purged(patterns) => Word::Purged(patterns),
            // Some changes can't be observed, so the daemon must shorten lifetimes.
            changes::News::All if changes.is_brief() => Word::Brief,
            changes::News::All => Word::Changed,
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

impl LevelKeeper for Keeper {
    fn answer(&self, running: Arc<Mutex<Running>>) -> std::io::Result<()> {
        let channel = self.channel.clone();
        background::start("softirq-asks", move || offers::answer(&channel, &running))
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

/// The daemon's rules in front of its own server, which reports changes: responses have the origin's fields, no Age,
/// and a fixed lifetime. `room` bounds the published responses.
pub fn learning(room: Settings) -> Settings {
    Settings {
        ttl_secs: Some(LIFETIME_SECS),
        lifetime_secs_max: LIFETIME_SECS,
        with_age: false,
        kept_parts_max: KEPT_PARTS_MAX,
        ..room
    }
}

/// The server's messages to the daemon.
#[derive(Default)]
pub struct News {
    /// Lifetimes must be short, because not all changes are reported.
    pub brief: AtomicBool,
    /// Number of purges that changes caused.
    pub changes: AtomicU32,
    /// The server has ended.
    pub stop: Arc<AtomicBool>,
}

/// Applies the server's messages on a thread. Returns the function that requests responses from the server.
pub fn follow(level: Arc<Level>, news: Arc<News>, server: Channel) -> Offered {
    let questions = Arc::new(Questions::new(server));
    let hears = questions.clone();
    thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Some(word) = hears.next_word(&mut buffer) {
            // Set before the purge below, so that later responses get the short lifetime.
            if word == Word::Brief {
                news.brief.store(true, Ordering::Relaxed);
            }
            news.changes
                .fetch_add(publish::COUNTS_PER_PURGE, Ordering::Relaxed);
            let mut gone = publish::published(&level);
            if let Word::Purged(patterns) = &word {
                gone.retain(|one| is_meant(patterns, one));
            }
            // Without a purge the level could answer with outdated responses, so the daemon ends.
            if let Err(error) = publish::purge(&level, &gone) {
                say::note(error);
                break;
            }
        }
        news.stop.store(true, Ordering::Relaxed);
    });
    Arc::new(move |local, head| questions.ask(local, head))
}

/// Whether one of these patterns matches a response. Malformed keys and patterns match, so that no purge is missed.
fn is_meant(patterns: &str, one: &Published) -> bool {
    let Some(key) = Key::read(&one.key) else {
        return true;
    };
    patterns.lines().any(|text| {
        let pattern = Pattern::parse(text);
        pattern.map_or(true, |pattern| pattern::is_meant(&pattern, &key))
    })
}
