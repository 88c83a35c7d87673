//! The daemon's loop: reads the programs' events, has the missing responses fetched, publishes and validates responses,
//! and writes the heartbeat. `learner` decides; this module carries out its actions.

mod bypass_control;
mod fetchers;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use lowroad_http::date;

use crate::error::LevelError;
use crate::fetch::address_fetcher::{AddressFetcher, OfferLookup, ServerConnector};
use crate::layout;
use crate::learner::bypass;
use crate::learner::{FetchDenial, LearnAction, LearnSettings, ResponseLearner};
use crate::level::events::{EventRing, LevelEvent};
use crate::level::publisher::{PublishRequest, ResponsePublisher};
use crate::level::{self, SoftirqLevel};
use crate::machine::filter::FirewallRules;
use crate::machine::interfaces;
use crate::migration;
use crate::pattern::RequestPattern;
use crate::response::FetchError;
use lowroad_wire::key::RequestKey;

use self::bypass_control::BypassControl;
use self::fetchers::{FetchCompletion, FetchOrder};

/// Polling interval of the event ring while there is no other work.
const RING_POLL_INTERVAL: Duration = Duration::from_millis(50);
const SECOND_NS: u64 = 1_000_000_000;
/// Interval of the learner's ticks, short enough for several ticks within the shortest lifetime.
const TICK_NS: u64 = SECOND_NS / 10;

/// Maximum number of pages that are reported as not learnable.
const REPORTED_PAGES_MAX: usize = 32;

/// Inputs of the daemon besides the level.
pub struct DaemonContext<'a> {
    /// The level.
    pub level: &'a SoftirqLevel,
    /// Limits and rules of publication.
    pub learning: LearnSettings,
    /// Rules of the level bypass.
    pub bypass_rules: bypass::LevelBypassRules,
    /// Opens connections to the server.
    pub connect: ServerConnector,
    /// The server is Lowroad itself, which decides which of its responses are for all clients.
    pub is_lowroad: bool,
    /// Gets the server's response without a TCP connection, if the server supports that.
    pub offer_lookup: Option<OfferLookup>,
    /// Which clients are answered.
    pub admission: AdmissionPolicy,
    /// Receives each answer, for the access log.
    pub on_answer: Box<dyn FnMut(&LevelEvent<'_>) + 'a>,
    /// Receives messages for the operator.
    pub notify: Box<dyn FnMut(&str) + 'a>,
    /// Once this is set, lifetimes are limited to one second.
    pub short_lifetimes: &'a AtomicBool,
    /// How often the server itself, rather than an operator, increments the purge counter; counted before the purge.
    pub server_purges: &'a AtomicU32,
    /// Setting this ends the loop.
    pub stop: &'a AtomicBool,
}

/// Which clients are answered, besides the prefix rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionPolicy {
    /// Clients admitted by the kernel if the machine filters its input, otherwise all.
    Auto,
    /// Clients admitted by the kernel.
    Known,
    /// All clients.
    All,
}

impl DaemonContext<'_> {
    /// Runs until `stop` is set, then lets the level drain. The caller makes all other mode changes.
    ///
    /// # Errors
    /// If the kernel refuses an operation.
    pub fn run(mut self) -> Result<(), LevelError> {
        let count = self.learning.in_progress_max;
        let new_fetcher = || {
            AddressFetcher::new(&self.connect, !self.is_lowroad)
                .with_offer_lookup(self.offer_lookup.clone())
        };
        let (jobs, done) = fetchers::start(new_fetcher, count)?;
        // The callback can't borrow the loop's state, so it collects the reported keys in this list.
        let requested_keys = Mutex::new(Vec::new());
        let mut on_answer = std::mem::replace(&mut self.on_answer, Box::new(|_| {}));
        let events = EventRing::new(self.level, |event| match event {
            LevelEvent::RepeatedMiss { hash, key } => {
                if let (Ok(mut requested_keys), Some(key)) =
                    (requested_keys.lock(), RequestKey::read(key))
                {
                    requested_keys.push((key, *hash));
                }
            }
            LevelEvent::Answered { .. } => on_answer(event),
        })?;
        let mut daemon_loop = DaemonLoop {
            level: self.level,
            learner: ResponseLearner::new(self.learning.clone()),
            publisher: ResponsePublisher::new(self.level)?,
            jobs,
            purges: self.level.purges(),
            server_purges: self.server_purges,
            handled_server_purges: 0,
            filter: None,
            bypass_control: BypassControl::new(self.bypass_rules.clone()),
            reported_pages: (!self.is_lowroad).then(BTreeSet::new),
        };
        let mut handovers = migration::MigrationWatch::default();
        daemon_loop.admit(self.admission, &mut self.notify);
        let (mut next_tick_ns, mut next_second_ns) = (0, 0);
        let mut rotated_in = None;
        let mut addresses = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now_ns = crate::clock::now_ns();
            // The local addresses and the rules are set before the first heartbeat, since the level accepts connections
            // from then on.
            if now_ns >= next_second_ns {
                next_second_ns = now_ns + SECOND_NS;
                let current = interfaces::addresses().map_err(LevelError::system("addresses"))?;
                if current != addresses {
                    self.level.set_addresses(&current)?;
                    addresses = current;
                }
                daemon_loop.admit(self.admission, &mut self.notify);
                if let Some(text) = handovers.check(self.level, now_ns)? {
                    (self.notify)(&text);
                }
                if let Some(text) = daemon_loop.update_bypass(now_ns)? {
                    (self.notify)(&text);
                }
            }
            if now_ns >= next_tick_ns {
                next_tick_ns = now_ns + TICK_NS;
                self.level.write_heartbeat(now_ns, &date_now());
                if self.short_lifetimes.load(Ordering::Relaxed) {
                    daemon_loop.learner.limit_lifetimes(1);
                }
                daemon_loop.tick(now_ns)?;
            }
            // The unused key may be replaced only while no valid cookie depends on it, and only once per period.
            let period = level::idle_key_period(now_ns);
            if period.is_some() && period != rotated_in {
                rotated_in = period;
                self.level.rotate_cookie_key(now_ns)?;
            }
            let has_more = events.take()?;
            let new_keys = requested_keys
                .lock()
                .map(|mut requested_keys| std::mem::take(&mut *requested_keys));
            for (key, hash) in new_keys.unwrap_or_default() {
                let mut actions = Vec::new();
                daemon_loop
                    .learner
                    .process_request(key, hash, now_ns, &mut actions);
                daemon_loop.perform(actions)?;
            }
            let wait_time = if has_more {
                Duration::ZERO
            } else {
                RING_POLL_INTERVAL
            };
            // This wait for fetch results is also the loop's pause.
            match done.recv_timeout(wait_time) {
                Ok(result) => daemon_loop.fetched(result, &mut self.notify)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The programs send no answers after this point, so the remaining events complete the log.
        self.level.set_mode(layout::MODE_DRAIN);
        self.level.wait_for_programs()?;
        while events.take()? {}
        Ok(())
    }
}

const FILTERED: &str = "this machine filters its input (netfilter): a client is answered here for \
                        60 s after the kernel has accepted a connection from its address to the \
                        same address and port, and until the rules change; use --admit all if the \
                        rules accept every client of these ports";
const UNFILTERED: &str = "this machine filters its input (netfilter), and responses sent here \
                          bypass the rules (--admit all): clients that the rules reject are \
                          answered, too";
const UNREACHABLE: &str = "the server can't be reached, so no responses can be fetched (requests \
                           come over lo from 203.0.113.254 or 2001:db8::cb00:71fe, which a \
                           firewall must accept)";

/// State of the loop.
struct DaemonLoop<'a> {
    level: &'a SoftirqLevel,
    learner: ResponseLearner,
    publisher: ResponsePublisher,
    jobs: Sender<FetchOrder>,
    purges: u32,
    server_purges: &'a AtomicU32,
    /// The value of `server_purges` up to which the server's own purges were handled.
    handled_server_purges: u32,
    /// The firewall rules as read at the last check, at most a second ago.
    filter: Option<FirewallRules>,
    bypass_control: BypassControl,
    /// Pages that were reported as not learnable; `None`: no reports.
    reported_pages: Option<BTreeSet<String>>,
}

impl DaemonLoop<'_> {
    fn tick(&mut self, now_ns: u64) -> Result<(), LevelError> {
        let mut actions = Vec::new();
        self.apply_external_purges(&mut actions);
        // Slots freed here are available to the learner's actions below.
        self.publisher.recycle(self.level, now_ns)?;
        let (publisher, level) = (&self.publisher, self.level);
        let hits = |serial, _: &RequestKey| publisher.hits(level, serial);
        self.learner.tick(now_ns, hits, &mut actions);
        self.bypass_control.tick(level, &mut self.learner, now_ns);
        self.perform(actions)
    }

    fn update_bypass(&mut self, now_ns: u64) -> Result<Option<String>, LevelError> {
        self.bypass_control
            .update(self.level, &mut self.learner, now_ns)
    }

    /// Reads the firewall rules. If they filter input, restricts the level to clients that the kernel has admitted. If
    /// the rules can't be read, assumes that they filter input.
    fn admit(&mut self, admission: AdmissionPolicy, notify: &mut dyn FnMut(&str)) {
        let previous = self.filter;
        let rules =
            FirewallRules::read_since(previous).unwrap_or_else(|_| FirewallRules::unknown());
        if previous == Some(rules) {
            return;
        }
        self.filter = Some(rules);
        let is_required = match admission {
            AdmissionPolicy::Auto => rules.has_rules,
            AdmissionPolicy::Known => true,
            AdmissionPolicy::All => false,
        };
        // The new rules may exclude clients that the old ones admitted.
        self.level.forget_admitted(crate::clock::now_ns());
        self.level.set_admission(is_required);
        if previous.is_some_and(|previous| previous.has_rules) == rules.has_rules {
            return;
        }
        notify(match (rules.has_rules, admission) {
            (true, AdmissionPolicy::All) => UNFILTERED,
            (true, _) => FILTERED,
            (false, _) => "this machine no longer filters its input",
        });
    }

    /// Handles purges made by other processes. All responses are retired, since those that clients still request will
    /// soon be fetched again.
    fn apply_external_purges(&mut self, actions: &mut Vec<LearnAction>) {
        let purges = self.level.purges();
        let counted = purges.wrapping_sub(self.purges);
        if counted == 0 {
            return;
        }
        self.purges = purges;
        self.learner.purge(&RequestPattern::All, actions);
        // The server itself purges at each file change, which is no reason to end a bypass.
        let changes = self.server_purges.load(Ordering::Relaxed);
        // The server increments its count before it purges, so the count may be ahead of the purges.
        let changes = changes
            .wrapping_sub(self.handled_server_purges)
            .min(counted);
        self.handled_server_purges = self.handled_server_purges.wrapping_add(changes);
        if changes < counted {
            let now_ns = crate::clock::now_ns();
            self.bypass_control
                .start_over(self.level, &mut self.learner, now_ns);
        }
    }

    fn fetched(
        &mut self,
        done: FetchCompletion,
        notify: &mut dyn FnMut(&str),
    ) -> Result<(), LevelError> {
        let FetchCompletion {
            ticket,
            key,
            result,
        } = done;
        let mut actions = Vec::new();
        // Purges are handled before the result is used: a response fetched before a purge must not be published after
        // it.
        self.apply_external_purges(&mut actions);
        match &result {
            Err(FetchError::Connect(_)) => {
                notify(UNREACHABLE);
            }
            Err(error @ FetchError::AddressGone(_)) => {
                notify(&format!("responses can't be fetched from there: {error}"));
            }
            _ => {}
        }
        self.learner
            .fetched(ticket, result, crate::clock::now_ns(), &mut actions);
        self.report_denial(&key, &actions, notify);
        self.perform(actions)
    }

    /// Reports a denial that the operator may be able to remedy.
    fn report_denial(
        &mut self,
        key: &RequestKey,
        actions: &[LearnAction],
        notify: &mut dyn FnMut(&str),
    ) {
        let Some(reported_pages) = &mut self.reported_pages else {
            return;
        };
        let denials = actions.iter().filter_map(|action| match action {
            LearnAction::Deny { reason, .. } => Some(reason),
            _ => None,
        });
        let Some(reason) = denials
            .into_iter()
            .find(|reason| is_worth_reporting(reason))
        else {
            return;
        };
        // The set prevents repetitions, and bounds the messages.
        if reported_pages.len() < REPORTED_PAGES_MAX && reported_pages.insert(key.url()) {
            notify(&format!("{} is left to the server: {reason}", key.url()));
            if reported_pages.len() == REPORTED_PAGES_MAX {
                notify(
                    "further pages that are left to the server are not logged: `lowroad explain \
                      URL` shows the reason for each",
                );
            }
        }
    }

    fn perform(&mut self, actions: Vec<LearnAction>) -> Result<(), LevelError> {
        let mut refused = Vec::new();
        for action in actions {
            self.perform_one(action, &mut refused)?;
        }
        // The actions after a rejected publication are denials, which can't be rejected.
        for action in refused {
            self.perform_one(action, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Carries out one action. If a publication is rejected, the actions that follow from that are appended to
    /// `refused`.
    fn perform_one(
        &mut self,
        action: LearnAction,
        refused: &mut Vec<LearnAction>,
    ) -> Result<(), LevelError> {
        match action {
            LearnAction::Fetch {
                ticket,
                key,
                validators,
            } => {
                let job = FetchOrder {
                    ticket,
                    key,
                    validators,
                };
                // Sending can't fail: the fetcher threads live as long as this sender.
                let _ = self.jobs.send(job);
            }
            LearnAction::Publish {
                serial,
                key,
                prepared,
                generated_ns: born_ns,
                expires_ns,
                replaces,
                hash,
            } => {
                let request = PublishRequest {
                    key: key.as_bytes(),
                    bytes: &prepared.bytes,
                    head_len: prepared.head_len,
                    date_at: prepared.date_at,
                    age_at: prepared.age_at,
                    status: prepared.status,
                    generated_ns: born_ns,
                    expires_ns,
                };
                let published = self
                    .publisher
                    .publish(self.level, serial, &request, replaces);
                if published.is_err() {
                    let denied = self
                        .learner
                        .reject_publication(hash, crate::clock::now_ns());
                    refused.extend(denied);
                }
            }
            LearnAction::Extend {
                serial,
                generated_ns: born_ns,
                expires_ns,
                ..
            } => self
                .publisher
                .extend(self.level, serial, born_ns, expires_ns),
            LearnAction::Retire { withdrawn } => {
                let serials = withdrawn.iter().map(|response| response.serial);
                self.publisher.retire(self.level, serials)?;
            }
            LearnAction::Deny {
                hash,
                until_ns,
                reason,
            } => {
                self.level.deny(hash, until_ns);
                self.level.count_denial(reason.kind());
            }
        }
        Ok(())
    }
}

/// Whether the reason is reported to the operator: only reasons that can't be seen in the response itself are.
fn is_worth_reporting(reason: &FetchDenial) -> bool {
    matches!(reason.label(), "too-long" | "for-few")
}

fn date_now() -> [u8; 29] {
    let unix_s = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    date::format(unix_s)
}
