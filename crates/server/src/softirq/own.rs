//! The level in front of this very server: a process of its own, started before root is given up, that
//! does what `lowroad attach` does. It ends when its standard input does, so it never outlives the
//! server by more than its drain.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lowroad_config::{Config, Softirq};
use lowroad_softirq::learn::Settings;

/// The process that keeps the level, and the pipe whose end it waits for.
pub struct Keeper {
    process: Child,
    alive: Option<ChildStdin>,
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
    let alive = process.stdin.take();
    let said = process.stdout.take().expect("it is a pipe");
    let mut line = String::new();
    // It says one line when it is ready, or ends and has said why to standard error.
    let ready = BufReader::new(said).read_line(&mut line);
    if !matches!(ready, Ok(1..)) {
        // It has ended: this only collects it.
        let _ = process.wait();
        return Err("the process ended; its reason stands above".into());
    }
    Ok(Keeper { process, alive })
}

impl Keeper {
    /// Ends the level: live connections come up with their next request, so the server must still
    /// accept them.
    pub fn end(mut self) {
        drop(self.alive.take());
        // What it could not do it has said.
        let _ = self.process.wait();
    }
}

/// How the level learns from its own server: nothing is trusted for longer than the server itself
/// trusts its files, and answers are the origin's, without Age.
pub fn learning(published_max: usize) -> Settings {
    Settings {
        published_max,
        ttl_secs: Some(1),
        lifetime_secs_max: 1,
        with_age: false,
        ..Settings::default()
    }
}

/// Sets `stop` when standard input ends.
pub fn end_with_input(stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut nothing = [0; 64];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut nothing), Ok(1..)) {}
        stop.store(true, Ordering::Relaxed);
    });
}
