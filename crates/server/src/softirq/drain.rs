//! How a level ends: new connections go to the kernel at once, live ones with their next request, and
//! what is idle then is let go. `lowroad detach` does it for a daemon that lives, and for one that is dead.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lowroad_softirq::folder;
use lowroad_softirq::layout;
use lowroad_softirq::level::Level;
use rustix::process::{Pid, Signal, kill_process};

use super::place;

/// `lowroad detach`.
#[derive(Args)]
pub struct Detach {
    /// The port, the first of those that were attached to
    #[arg(value_name = "PORT")]
    pub port: u16,
    /// In which network namespace: a path, a process's number or a name of `ip netns`
    #[arg(long, value_name = "NAMESPACE")]
    pub netns: Option<String>,
    /// Seconds that idle connections get
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub drain: u32,
}

/// How often it is looked whether connections are left.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Takes a level off.
///
/// # Errors
/// A text for the user.
pub fn detach(args: &Detach) -> Result<(), String> {
    if let Some(namespace) = &args.netns {
        place::enter_namespace(namespace)?;
    }
    let folder = find(args.port)?;
    let level = Level::open(&folder);
    if let Some(pid) = level.as_ref().ok().and_then(place::keeper) {
        return end_daemon(pid, &folder);
    }
    if let Ok(level) = level {
        end(&level, args.drain);
    }
    folder::remove(&folder).map_err(|error| error.to_string())?;
    println!("detached from port {}", args.port);
    Ok(())
}

/// The level that answers on a port.
///
/// # Errors
/// When there is none: a text for the user.
pub fn find(port: u16) -> Result<std::path::PathBuf, String> {
    let first = folder::of_port(port).map_err(|error| error.to_string())?;
    if first.exists() {
        return Ok(first);
    }
    let all = folder::all().map_err(|error| error.to_string())?;
    all.into_iter()
        .find(|folder| Level::open(folder).is_ok_and(|level| level.ports().contains(&port)))
        .ok_or(format!("nothing is attached to port {port} here"))
}

/// Ends a daemon that lives: it drains and removes its level itself.
fn end_daemon(pid: u32, folder: &Path) -> Result<(), String> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or("the daemon's number is no process's")?;
    kill_process(process, Signal::TERM).map_err(|error| format!("process {pid}: {error}"))?;
    // It knows its own drain time, and dies or removes the folder in the end.
    while folder.exists() && Path::new(&format!("/proc/{pid}")).exists() {
        thread::sleep(LOOK_INTERVAL);
    }
    match folder.exists() {
        true => Err(format!("process {pid} ended without detaching; try again")),
        false => {
            println!("detached");
            Ok(())
        }
    }
}

/// Handshakes that were answered before the end are completed within this time, or by nobody.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);

/// Lets connections go up, and switches the programs off.
pub fn end(level: &Level, drain_s: u32) {
    level.set_mode(layout::MODE_DRAIN);
    let begin = Instant::now();
    let deadline = Duration::from_secs(u64::from(drain_s));
    let earliest = HANDSHAKE_TIME.min(deadline);
    loop {
        let left = level.connections();
        let is_empty = left.open + left.handed == 0;
        if begin.elapsed() >= deadline || is_empty && begin.elapsed() >= earliest {
            break;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    level.set_mode(layout::MODE_OFF);
}
