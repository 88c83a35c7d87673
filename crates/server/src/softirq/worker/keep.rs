//! The process that starts the server that intercepts and the level below it, and the server again when that dies. It
//! serves nothing, so that nothing can happen to it; if it is killed all the same, the others end.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::found;
use crate::cli::softirq::{Attach, Part, TierWanted};
use crate::say;
use crate::softirq::namespace;

/// How long it waits before it starts the server again: the first time, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A server that has lived so long did not die of how it was started.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// What happens.
enum News {
    Told(i32),
    Ended(Part, ExitStatus),
}

/// A process that was started.
struct Running {
    process: OwnedFd,
    begin: Instant,
    /// Its end is noticed at the other one.
    _socket: Option<UnixStream>,
}

/// Starts both, and keeps the server going until one of them ends by itself or a signal comes.
///
/// # Errors
/// When one can't be started, or fails: it has said why.
pub fn keep(args: &Attach) -> Result<(), String> {
    if args.ports.len() > 1 {
        return Err("--worker takes one port; attach each by itself".into());
    }
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    let (sender, news) = channel();
    hear_signals(sender.clone()).map_err(|error| format!("signals: {error}"))?;
    let mut kept = Kept {
        has_level: args.tier != TierWanted::None,
        sender,
        news,
        worker: None,
        level: None,
        pause: PAUSE_MIN,
    };
    let done = kept.live();
    found::tidy(args.ports[0]);
    found::remove_unused_way();
    done
}

struct Kept {
    has_level: bool,
    sender: Sender<News>,
    news: Receiver<News>,
    worker: Option<Running>,
    level: Option<Running>,
    pause: Duration,
}

impl Kept {
    fn live(&mut self) -> Result<(), String> {
        self.worker = Some(self.start_worker()?);
        let started = match self.has_level {
            true => {
                let command = command(Part::Level, Stdio::inherit());
                start(Part::Level, command, &self.sender).map(Some)
            }
            false => Ok(None),
        };
        let done = started.and_then(|level| {
            self.level = level;
            self.until_the_end()
        });
        self.end();
        done
    }

    /// Until there is nothing to keep, or somebody wants the end.
    fn until_the_end(&mut self) -> Result<(), String> {
        let mut again: Option<Instant> = None;
        loop {
            let told = match again {
                None => self.news.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    self.news.recv_timeout(left)
                }
            };
            match told {
                // That is for who writes logs.
                Ok(News::Told(SIGUSR1)) => {}
                Ok(News::Told(_)) => return Ok(()),
                Ok(News::Ended(Part::Level, status)) => {
                    self.level = None;
                    return match status.success() {
                        true => Ok(()),
                        false => Err(no_level(status)),
                    };
                }
                Ok(News::Ended(Part::Worker, status)) if status.success() => {
                    self.worker = None;
                    // It was told to, by `detach`, which tells the level too.
                    if !self.has_level {
                        return Ok(());
                    }
                }
                Ok(News::Ended(Part::Worker, status)) => again = Some(self.next_try(status)),
                Err(RecvTimeoutError::Timeout) => {
                    again = None;
                    match self.start_worker() {
                        Ok(worker) => self.worker = Some(worker),
                        // It has said why.
                        Err(_) => again = Some(Instant::now() + self.longer_pause()),
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Starts the server, and waits until it serves.
    fn start_worker(&self) -> Result<Running, String> {
        let pair = UnixStream::pair().map_err(|error| format!("a socket: {error}"))?;
        let (mut socket, its) = pair;
        let mut command = command(Part::Worker, OwnedFd::from(its).into());
        if self.has_level {
            // The service is ready when all of it is.
            command.env_remove("NOTIFY_SOCKET");
        }
        let mut running = start(Part::Worker, command, &self.sender)?;
        match socket.read_exact(&mut [0]) {
            Ok(()) => {
                running._socket = Some(socket);
                Ok(running)
            }
            // It has said why to standard error.
            Err(_) => Err("the worker could not start; its reason stands above".into()),
        }
    }

    /// When to start it again.
    fn next_try(&mut self, status: ExitStatus) -> Instant {
        let has_lived = self.worker.take().map(|worker| worker.begin.elapsed());
        if has_lived.is_some_and(|long| long > LONG_LIFE) {
            self.pause = PAUSE_MIN;
        }
        let pause = self.longer_pause();
        say::note(format_args!(
            "the worker {}; the server on the port has its connections, and it is started again in {} s",
            describe(status),
            pause.as_secs()
        ));
        Instant::now() + pause
    }

    fn longer_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }

    /// Tells both to end, and waits until they have.
    fn end(&mut self) {
        for running in [&self.worker, &self.level].into_iter().flatten() {
            // One that has ended needs no telling.
            let _ = pidfd_send_signal(&running.process, Signal::TERM);
        }
        while self.worker.is_some() || self.level.is_some() {
            match self.news.recv() {
                Ok(News::Ended(Part::Worker, _)) => self.worker = None,
                Ok(News::Ended(Part::Level, _)) => self.level = None,
                // The second is for those who will not wait, and goes to all.
                Ok(News::Told(_)) => {
                    for running in [&self.worker, &self.level].into_iter().flatten() {
                        let _ = pidfd_send_signal(&running.process, Signal::TERM);
                    }
                }
                Err(_) => return,
            }
        }
    }
}

fn no_level(status: ExitStatus) -> String {
    format!(
        "the level below the socket {}; --tier none attaches the workers alone",
        describe(status)
    )
}

fn command(part: Part, stdin: Stdio) -> Command {
    // This program, even if the file is another one by now.
    let mut command = Command::new("/proc/self/exe");
    let mut args = std::env::args_os();
    command.arg0(args.next().unwrap_or_default());
    command
        .args(args)
        .args(["--part", part.name()])
        .stdin(stdin);
    command
}

fn start(part: Part, mut command: Command, news: &Sender<News>) -> Result<Running, String> {
    let failed = |error: std::io::Error| format!("starting a process: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .map_err(|error| failed(error.into()))?;
    let news = news.clone();
    thread::Builder::new()
        .name(format!("{}-end", part.name()))
        .spawn(move || wait(part, &mut child, &news))
        .map_err(failed)?;
    Ok(Running {
        process,
        begin: Instant::now(),
        _socket: None,
    })
}

fn wait(part: Part, child: &mut Child, news: &Sender<News>) {
    if let Ok(status) = child.wait() {
        // Who does not hear it has ended.
        let _ = news.send(News::Ended(part, status));
    }
}

fn hear_signals(news: Sender<News>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1])?;
    let hear = move || {
        for signal in signals.forever() {
            if news.send(News::Told(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(hear)?;
    Ok(())
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended ({status})"),
    }
}
