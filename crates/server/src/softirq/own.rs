//! The level in front of this very server: processes of its own, started before root is given up. One
//! (`keep`) starts the other again if it dies, which does what `lowroad attach` does. They end when their
//! standard input does, so they never outlive the server by more than their drain. On their standard
//! output they tell what becomes of them, and write the access log's lines.

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

/// Segments of an answer on a connection that stays open: longer ones the server sends for less, and
/// these are worth that their connection does not go up (docs/performance.md).
const KEPT_PARTS_MAX: usize = 7;
/// How long answers are trusted without a word from the server.
const LIFETIME_SECS: u64 = 60;
/// A change is known everywhere in the server after this time.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// The processes that keep the level, the channel whose end they wait for, and the thread that reads their output.
struct Keeper {
    process: ChildProcess,
    channel: Arc<Channel>,
    health: Arc<Health>,
    hearing: JoinHandle<()>,
}

/// Starts it, if it is wanted. Its lines of the access log go into `access`; it is told of `changes`.
///
/// # Errors
/// A text for the user, when an interface was named and can't be used.
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
    // It says so when it is ready, or ends and has said why to standard error.
    if !hearing.until_attached() {
        drop(channel);
        // It has ended: this only collects it.
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

/// Passes changes on, each a second time too: what was answered just before it was known everywhere
/// may have been fetched after the first.
fn tell_changes(channel: &Channel, changes: &Changes) {
    changes.listen();
    loop {
        changes.wait();
        let word = match changes.take() {
            changes::News::None => continue,
            changes::News::Purged(patterns) => Word::Purged(patterns),
            changes::News::All if changes.is_brief() => Word::Brief,
            changes::News::All => Word::Changed,
        };
        let mut left = 2;
        while left > 0 {
            match offers::send(channel, &word) {
                Ok(()) => left -= 1,
                Err(
                    MessageError::NotReady | MessageError::System(Errno::NOBUFS | Errno::NOMEM),
                ) => {}
                // The thread that reads their output says that they are gone.
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
        // Other threads hold the channel too.
        self.channel.close();
        // Until both processes have closed it: the daemon may be alone by now. A panic of the thread
        // has been reported already, and what the processes could not do they have said.
        let _ = self.hearing.join();
        let _ = self.process.reap();
    }
}

/// How the level learns from its own server, which tells of changes: answers are the origin's, without
/// Age, and trusted for a while. `room`: bounds of what is published.
pub fn learning(room: Settings) -> Settings {
    Settings {
        ttl_secs: Some(LIFETIME_SECS),
        lifetime_secs_max: LIFETIME_SECS,
        with_age: false,
        kept_parts_max: KEPT_PARTS_MAX,
        ..room
    }
}

/// What the server says.
#[derive(Default)]
pub struct News {
    /// Nothing is to be trusted for long.
    pub brief: AtomicBool,
    /// How often a purge was counted for a change.
    pub changes: AtomicU32,
    /// It has ended.
    pub stop: Arc<AtomicBool>,
}

/// Does what the server says. By what is returned, the server is asked for its answers.
pub fn follow(level: Arc<Level>, news: Arc<News>, server: Channel) -> Offered {
    let questions = Arc::new(Questions::new(server));
    let hears = questions.clone();
    thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Some(word) = hears.next_word(&mut buffer) {
            if word == Word::Brief {
                news.brief.store(true, Ordering::Relaxed);
            }
            news.changes
                .fetch_add(publish::COUNTS_PER_PURGE, Ordering::Relaxed);
            let mut gone = publish::published(&level);
            if let Word::Purged(patterns) = &word {
                gone.retain(|one| is_meant(patterns, one));
            }
            if let Err(error) = publish::purge(&level, &gone) {
                say::note(error);
                break;
            }
        }
        news.stop.store(true, Ordering::Relaxed);
    });
    Arc::new(move |local, head| questions.ask(local, head))
}

/// Whether one of these patterns means a response; what can't be read may mean any.
fn is_meant(patterns: &str, one: &Published) -> bool {
    let Some(key) = Key::read(&one.key) else {
        return true;
    };
    patterns.lines().any(|text| {
        let pattern = Pattern::parse(text);
        pattern.map_or(true, |pattern| pattern::is_meant(&pattern, &key))
    })
}
