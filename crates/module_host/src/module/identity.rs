//! Who a module is, and what it sees when it starts and stops. Knows nothing of requests.

use std::borrow::Cow;
use std::sync::Arc;

use lowroad_config::{Destination, Module};
use lowroad_log::{Level as LogLevel, Logger};
use lowroad_module::{Host, Level, Sent, Ticket, What};

use super::clock::now_ms;
use super::counts::Counts;
use super::parts;

/// Bytes of one line in the log.
const LINE_LEN_MAX: usize = 4096;

/// Where a module's lines go.
pub type Sink = Box<dyn Fn(Level, &str) + Send + Sync>;

/// What all calls of a module share.
pub struct Identity {
    /// How the configuration calls it.
    pub name: String,
    /// What it is told at its start, and whenever it asks.
    pub settings: Vec<(String, String)>,
    /// The servers that its fetches may ask.
    pub fetch: Vec<Destination>,
    sink: Sink,
    /// What happened to its calls.
    pub counts: Counts,
}

impl Identity {
    /// Of a module of a configuration, whose lines go into this log, or nowhere.
    pub fn of(module: &Module, logger: Option<Logger>) -> Identity {
        let identity = Identity::new(&module.name, module.settings.clone(), logger);
        identity.with_fetch(module.fetch.clone())
    }

    /// With fetches from these servers.
    pub fn with_fetch(self, fetch: Vec<Destination>) -> Identity {
        Identity { fetch, ..self }
    }

    /// Of a module with this name, whose lines go into this log, or nowhere.
    pub fn new(name: &str, settings: Vec<(String, String)>, logger: Option<Logger>) -> Identity {
        let prefix = name.to_string();
        Identity::with_sink(
            name,
            settings,
            Box::new(move |level, line| {
                if let Some(logger) = &logger {
                    logger.log(log_level(level), format_args!("module {prefix}: {line}"));
                }
            }),
        )
    }

    /// Of a module with this name, whose lines go there.
    pub fn with_sink(name: &str, settings: Vec<(String, String)>, sink: Sink) -> Identity {
        Identity {
            name: name.to_string(),
            settings,
            fetch: Vec::new(),
            counts: Counts::default(),
            sink,
        }
    }

    /// Writes a line about the module.
    pub fn log(&self, level: Level, text: &str) {
        (self.sink)(level, &parts::line(text, LINE_LEN_MAX));
    }

    /// What it is told by this name.
    pub(super) fn setting(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut settings = self.settings.iter();
        let found = settings.find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
    }
}

fn log_level(level: Level) -> LogLevel {
    match level {
        Level::Error => LogLevel::Error,
        Level::Warn => LogLevel::Warn,
        Level::Info => LogLevel::Info,
        Level::Debug => LogLevel::Debug,
    }
}

/// What a module sees when it starts and stops: settings, the worker's number, the log.
pub struct Starting {
    identity: Arc<Identity>,
    worker: usize,
}

impl Starting {
    /// For one worker.
    pub fn new(identity: Arc<Identity>, worker: usize) -> Starting {
        Starting { identity, worker }
    }
}

impl Host for Starting {
    fn get(&self, what: What, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match what {
            What::Setting => self.identity.setting(name),
            What::Worker => Some(Cow::Owned(self.worker.to_string().into_bytes())),
            _ => None,
        }
    }

    fn read(&mut self, _: u32, _: &mut [u8]) -> usize {
        0
    }

    fn left(&self, _: u32) -> usize {
        0
    }

    fn status(&mut self, _: u32) -> bool {
        false
    }

    fn field(&mut self, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn send(&mut self, _: &[u8]) -> Sent {
        Sent::Refused
    }

    fn send_stored(&mut self, _: &[u8]) -> bool {
        false
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn timer(&mut self, _: u32) {}

    fn fetch(&mut self, _: &[u8]) -> Option<u32> {
        None
    }

    fn fetched(&self, _: u32) -> Option<u16> {
        None
    }

    fn ticket(&mut self) -> Ticket {
        Ticket::new(0, |_| false)
    }

    fn log(&self, level: Level, text: &str) {
        self.identity.log(level, text);
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn memory(&self) -> u64 {
        0
    }

    fn set_memory(&mut self, _: u64) {}
}
