//! A module's name, settings, log and counters, and its `CallHost` while it starts. This module is independent of
//! requests.

use std::borrow::Cow;
use std::sync::Arc;

use lowroad_config::{AllowedDestination, ModuleConfig};
use lowroad_handler::request_label::RequestLabel;
use lowroad_log::{ErrorLogger, LogLevel};
use lowroad_module::{CallHost, HostValue, MessageLevel, ResumeTicket, SendStatus};

use super::clock::now_ms;
use super::counts::ModuleCounters;
use super::parts;

/// The maximum length of a log line in bytes.
const LINE_LEN_MAX: usize = 4096;

/// The destination of a module's log lines, each with the request that it is about.
pub type LogSink = Box<dyn Fn(MessageLevel, &str, Option<&RequestLabel>) + Send + Sync>;

/// The properties of a module that all of its calls share.
pub struct ModuleIdentity {
    /// The module's name in the configuration.
    pub name: String,
    /// The module's settings, available at start and in calls.
    pub settings: Vec<(String, String)>,
    /// The servers that the module may fetch from.
    pub fetch: Vec<AllowedDestination>,
    sink: LogSink,
    /// The counters of the module's calls.
    pub counts: ModuleCounters,
}

impl ModuleIdentity {
    /// The identity of a configured module; its log lines go to `logger`, if any.
    pub fn from_config(module: &ModuleConfig, logger: Option<ErrorLogger>) -> ModuleIdentity {
        let identity = ModuleIdentity::new(&module.name, module.settings.clone(), logger);
        identity.with_fetch(module.fetch.clone())
    }

    /// Permits fetches from these servers.
    pub fn with_fetch(self, fetch: Vec<AllowedDestination>) -> ModuleIdentity {
        ModuleIdentity { fetch, ..self }
    }

    /// The identity of a module with this name; its log lines go to `logger`, if any.
    pub fn new(
        name: &str,
        settings: Vec<(String, String)>,
        logger: Option<ErrorLogger>,
    ) -> ModuleIdentity {
        let prefix = name.to_string();
        ModuleIdentity::with_sink(
            name,
            settings,
            Box::new(move |level, line, request| {
                let Some(logger) = &logger else { return };
                let (level, line) = (log_level(level), format_args!("module {prefix}: {line}"));
                match request {
                    Some(request) => logger.log_request(level, line, request),
                    None => logger.log(level, line),
                }
            }),
        )
    }

    /// The identity of a module with this name; its log lines go to `sink`.
    pub fn with_sink(name: &str, settings: Vec<(String, String)>, sink: LogSink) -> ModuleIdentity {
        ModuleIdentity {
            name: name.to_string(),
            settings,
            fetch: Vec::new(),
            counts: ModuleCounters::default(),
            sink,
        }
    }

    /// Writes a log line about the module.
    pub fn log(&self, level: MessageLevel, text: &str) {
        (self.sink)(level, &parts::line(text, LINE_LEN_MAX), None);
    }

    /// Writes a log line about a request to the module.
    pub fn log_request(&self, level: MessageLevel, text: &str, request: &RequestLabel) {
        (self.sink)(level, &parts::line(text, LINE_LEN_MAX), Some(request));
    }

    /// The value of a setting.
    pub(super) fn setting(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut settings = self.settings.iter();
        let found = settings.find(|(setting_name, _)| setting_name.as_bytes() == name);
        found.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
    }
}

fn log_level(level: MessageLevel) -> LogLevel {
    match level {
        MessageLevel::Error => LogLevel::Error,
        MessageLevel::Warn => LogLevel::Warn,
        MessageLevel::Info => LogLevel::Info,
        MessageLevel::Debug => LogLevel::Debug,
    }
}

/// The `CallHost` of a module that starts or stops: gives access to settings, the worker's index, and the log only.
pub struct StartContext {
    identity: Arc<ModuleIdentity>,
    worker: usize,
}

impl StartContext {
    /// The context for starting the module for one worker.
    pub fn new(identity: Arc<ModuleIdentity>, worker: usize) -> StartContext {
        StartContext { identity, worker }
    }
}

impl CallHost for StartContext {
    fn get(&self, kind: HostValue, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match kind {
            HostValue::Setting => self.identity.setting(name),
            HostValue::Worker => Some(Cow::Owned(self.worker.to_string().into_bytes())),
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

    fn send(&mut self, _: &[u8]) -> SendStatus {
        SendStatus::Refused
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

    fn ticket(&mut self) -> ResumeTicket {
        ResumeTicket::new(0, |_| false)
    }

    fn log(&self, level: MessageLevel, text: &str) {
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
