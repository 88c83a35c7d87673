//! The level in front of this very server: a process of its own, started before root is given up, that
//! does what `lowroad attach` does. It ends when its standard input does, so it never outlives the
//! server by more than its drain.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lowroad_config::{Config, Softirq};
use lowroad_softirq::learn::Settings;
use lowroad_softirq::level::Level;
use lowroad_softirq::publish;

use crate::changes;

/// How long answers are trusted without a word from the server.
const LIFETIME_SECS: u64 = 60;
/// The server's words: something has changed; that, and from now on not all changes will be told.
const CHANGED: u8 = b'c';
const BRIEF: u8 = b'b';
/// A change is known everywhere in the server after this time.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// The process that keeps the level, and the pipe whose end it waits for.
pub struct Keeper {
    process: Child,
    news: Arc<Mutex<Option<ChildStdin>>>,
}

/// Starts it, if it is wanted. What is said instead, if it is not there, comes second.
///
/// # Errors
/// A text for the user, when an interface was named and can't be used.
pub fn start(config: &Config) -> Result<(Option<Keeper>, Option<String>), String> {
    let interface = match &config.server.softirq {
        Softirq::Off => return Ok((None, None)),
        Softirq::Auto => None,
        Softirq::Interface(name) => Some(name.as_str()),
    };
    let ports = ports(config);
    if ports.is_empty() {
        return Ok((None, Some("softirq: no fixed TCP port to answer on".into())));
    }
    match launch(interface, &ports) {
        Ok(keeper) => Ok((Some(keeper), None)),
        Err(problem) if interface.is_none() => {
            Ok((None, Some(format!("softirq: not here: {problem}"))))
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

fn launch(interface: Option<&str>, ports: &[u16]) -> Result<Keeper, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.arg("attach").arg("--own").args(["--drain", "2"]);
    if let Some(name) = interface {
        command.args(["--interface", name]);
    }
    command.args(ports.iter().map(ToString::to_string));
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("starting it: {error}"))?;
    let news = process.stdin.take().expect("it is a pipe");
    let said = process.stdout.take().expect("it is a pipe");
    let mut line = String::new();
    // It says one line when it is ready, or ends and has said why to standard error.
    let ready = BufReader::new(said).read_line(&mut line);
    if !matches!(ready, Ok(1..)) {
        // It has ended: this only collects it.
        let _ = process.wait();
        return Err("the process ended; its reason stands above".into());
    }
    let news = Arc::new(Mutex::new(Some(news)));
    let teller = news.clone();
    thread::Builder::new()
        .name("softirq".into())
        .spawn(move || tell_changes(&teller))
        .map_err(|error| format!("starting a thread: {error}"))?;
    Ok(Keeper { process, news })
}

/// Passes changes on, each a second time too: what was answered just before it was known everywhere
/// may have been fetched after the first.
fn tell_changes(news: &Mutex<Option<ChildStdin>>) {
    changes::listen();
    loop {
        changes::wait();
        for _ in 0..2 {
            let word = if changes::is_brief() { BRIEF } else { CHANGED };
            let mut news = news.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(pipe) = news.as_mut() else { return };
            if pipe.write_all(&[word]).is_err() {
                eprintln!("lowroad: the process of the softirq level is gone; it answers no more");
                return;
            }
            drop(news);
            thread::sleep(SETTLE_TIME);
        }
    }
}

impl Keeper {
    /// Ends the level: live connections come up with their next request, so the server must still
    /// accept them.
    pub fn end(mut self) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        drop(news.take());
        drop(news);
        // What it could not do it has said.
        let _ = self.process.wait();
    }
}

/// How the level learns from its own server, which tells of changes: answers are the origin's, without
/// Age, and trusted for a while.
pub fn learning(published_max: usize) -> Settings {
    Settings {
        published_max,
        ttl_secs: Some(LIFETIME_SECS),
        lifetime_secs_max: LIFETIME_SECS,
        with_age: false,
        ..Settings::default()
    }
}

/// Does what the server says on standard input, and sets `stop` when that ends.
pub fn follow(level: Arc<Level>, brief: Arc<AtomicBool>, stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut word = [0];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut word), Ok(1)) {
            if word[0] == BRIEF {
                brief.store(true, Ordering::Relaxed);
            }
            if let Err(error) = publish::purge(&level, &publish::published(&level)) {
                eprintln!("lowroad: {error}");
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
