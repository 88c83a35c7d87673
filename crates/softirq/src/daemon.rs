//! The daemon's loop: hears what is asked for, lets it be fetched, publishes it, looks after its
//! freshness, and says once a second that it lives. What to do is decided in `learn`; here it is done.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use lowroad_http::date;

use crate::error::Error;
use crate::events::{Event, Events};
use crate::fetch::{FetchError, Fetcher, Limits};
use crate::fetched::{Fetched, Validators};
use crate::handover;
use crate::interfaces;
use crate::key::Key;
use crate::layout;
use crate::learn::{Action, Learner, Settings, Ticket};
use crate::level::{self, Level};
use crate::pattern::Pattern;
use crate::publish::{Publication, Publisher};

/// How often the ring of events is looked into, while nothing else happens.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const SECOND_NS: u64 = 1_000_000_000;
/// How often the state is looked after; several times within the shortest lifetime.
const TICK_NS: u64 = SECOND_NS / 10;

/// Makes a connection to the server above, at the address of this machine that was asked.
pub type Connect = Arc<dyn Fn(SocketAddr) -> io::Result<TcpStream> + Send + Sync>;

/// What the daemon needs beside the level.
pub struct Daemon<'a> {
    /// The level.
    pub level: &'a Level,
    /// Bounds and rules of what is published.
    pub learning: Settings,
    /// To the server above.
    pub connect: Connect,
    /// Hears each answer, for the access log.
    pub answered: Box<dyn FnMut(&Event<'_>) + 'a>,
    /// Hears what an operator should know.
    pub note: Box<dyn FnMut(&str) + 'a>,
    /// From when it is set on, nothing is trusted for more than a second.
    pub brief: &'a AtomicBool,
    /// Ends the loop.
    pub stop: &'a AtomicBool,
}

struct Job {
    ticket: Ticket,
    key: Key,
    validators: Validators,
}

type Done = (Ticket, Result<Fetched, FetchError>);

impl Daemon<'_> {
    /// Works until it is stopped, and lets the level drain then. Its mode is the caller's otherwise.
    ///
    /// # Errors
    /// When the kernel refuses what it did not refuse before.
    pub fn run(mut self) -> Result<(), Error> {
        let (jobs, done) = start_fetchers(&self.connect, self.learning.under_way_max)?;
        let asked = Mutex::new(Vec::new());
        let mut answered = std::mem::replace(&mut self.answered, Box::new(|_| {}));
        let events = Events::new(self.level, |event| match event {
            Event::Asked { hash, key } => {
                if let (Ok(mut asked), Some(key)) = (asked.lock(), Key::read(key)) {
                    asked.push((key, *hash));
                }
            }
            Event::Answered { .. } => answered(event),
        })?;
        let mut state = State {
            level: self.level,
            learner: Learner::new(self.learning.clone()),
            publisher: Publisher::new(self.level)?,
            jobs,
            purges: self.level.purges(),
        };
        let mut handovers = handover::Watch::default();
        let (mut next_tick_ns, mut next_second_ns) = (0, 0);
        let mut rotated_in = None;
        let mut addresses = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now_ns = crate::now_ns();
            // Before the first beat, from which on connections are taken.
            if now_ns >= next_second_ns {
                next_second_ns = now_ns + SECOND_NS;
                let current = interfaces::addresses().map_err(Error::system("addresses"))?;
                if current != addresses {
                    self.level.set_addresses(&current)?;
                    addresses = current;
                }
                if let Some(text) = handovers.look(self.level, now_ns)? {
                    (self.note)(&text);
                }
            }
            if now_ns >= next_tick_ns {
                next_tick_ns = now_ns + TICK_NS;
                self.level.beat(now_ns, &date_now());
                if self.brief.load(Ordering::Relaxed) {
                    state.learner.limit_lifetimes(1);
                }
                state.tick(now_ns)?;
            }
            let period = level::idle_key_period(now_ns);
            if period.is_some() && period != rotated_in {
                rotated_in = period;
                self.level.rotate_cookie_key(now_ns)?;
            }
            let has_more = events.take()?;
            let heard = asked.lock().map(|mut asked| std::mem::take(&mut *asked));
            for (key, hash) in heard.unwrap_or_default() {
                let mut actions = Vec::new();
                state.learner.asked(key, hash, now_ns, &mut actions);
                state.act(actions)?;
            }
            let patience = if has_more {
                Duration::ZERO
            } else {
                LOOK_INTERVAL
            };
            match done.recv_timeout(patience) {
                Ok(result) => state.fetched(result, &mut self.note)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // After this nothing is answered any more, so what is in the ring is the last of the log.
        self.level.set_mode(layout::MODE_DRAIN);
        self.level.wait_for_programs()?;
        while events.take()? {}
        Ok(())
    }
}

struct State<'a> {
    level: &'a Level,
    learner: Learner,
    publisher: Publisher,
    jobs: Sender<Job>,
    purges: u32,
}

impl State<'_> {
    fn tick(&mut self, now_ns: u64) -> Result<(), Error> {
        let mut actions = Vec::new();
        self.purge_if_asked(&mut actions);
        self.publisher.recycle(self.level, now_ns)?;
        let (publisher, level) = (&self.publisher, self.level);
        let hits = |serial, _: &Key| publisher.hits(level, serial);
        self.learner.tick(now_ns, hits, &mut actions);
        self.act(actions)
    }

    /// Somebody else has taken responses out of the index. Which of them does not matter: what is
    /// still asked for is soon fetched again.
    fn purge_if_asked(&mut self, actions: &mut Vec<Action>) {
        let purges = self.level.purges();
        if purges != self.purges {
            self.purges = purges;
            self.learner.purge(&Pattern::All, actions);
        }
    }

    fn fetched(&mut self, (ticket, result): Done, note: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let mut actions = Vec::new();
        // What was fetched before a purge is not published after it.
        self.purge_if_asked(&mut actions);
        match &result {
            Err(FetchError::Connect(_)) => {
                note("the server above can't be reached: what it would answer can't be learned");
            }
            Err(gone @ FetchError::AddressGone(_)) => {
                note(&format!("what is asked there can't be learned: {gone}"));
            }
            _ => {}
        }
        self.learner
            .fetched(ticket, result, crate::now_ns(), &mut actions);
        self.act(actions)
    }

    fn act(&mut self, actions: Vec<Action>) -> Result<(), Error> {
        for action in actions {
            match action {
                Action::Fetch {
                    ticket,
                    key,
                    validators,
                } => {
                    let job = Job {
                        ticket,
                        key,
                        validators,
                    };
                    // The fetchers live as long as this.
                    let _ = self.jobs.send(job);
                }
                Action::Publish {
                    serial,
                    key,
                    prepared,
                    born_ns,
                    expires_ns,
                    replaces,
                    ..
                } => {
                    let what = Publication {
                        key: key.as_bytes(),
                        bytes: &prepared.bytes,
                        head_len: prepared.head_len,
                        date_at: prepared.date_at,
                        age_at: prepared.age_at,
                        status: prepared.status,
                        born_ns,
                        expires_ns,
                    };
                    // Without a place it is not answered here; the learner retires it in time.
                    let _ = self.publisher.publish(self.level, serial, &what, replaces);
                }
                Action::Extend {
                    serial,
                    born_ns,
                    expires_ns,
                    ..
                } => self
                    .publisher
                    .extend(self.level, serial, born_ns, expires_ns),
                Action::Retire { gone } => {
                    let serials = gone.iter().map(|one| one.serial);
                    self.publisher.retire(self.level, serials)?;
                }
                Action::Deny { hash, until_ns, .. } => self.level.deny(hash, until_ns),
            }
        }
        Ok(())
    }
}

/// Threads that fetch, each with connections of its own.
fn start_fetchers(connect: &Connect, count: usize) -> Result<(Sender<Job>, Receiver<Done>), Error> {
    let (jobs, waiting) = channel::<Job>();
    let waiting = Arc::new(Mutex::new(waiting));
    let (results, done) = channel();
    for number in 0..count.max(1) {
        let (waiting, results, connect) = (waiting.clone(), results.clone(), connect.clone());
        let work = move || {
            let mut fetcher = Fetcher::new(|local| connect(local), Limits::default());
            loop {
                let job = waiting.lock().map_or(None, |waiting| waiting.recv().ok());
                let Some(job) = job else { return };
                let result = fetcher.fetch(&job.key.parts(), &job.validators);
                if results.send((job.ticket, result)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name(format!("fetch-{number}"))
            .spawn(work)
            .map_err(Error::system("starting a thread"))?;
    }
    Ok((jobs, done))
}

fn date_now() -> [u8; 29] {
    let unix_s = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    date::format(unix_s)
}
