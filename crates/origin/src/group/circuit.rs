//! Circuit breaker of a member (passive health check): requests show whether it is ejected, for how long, and when a
//! trial follows. Independent of the other members and of active checks.
//!
//! A client may send only requests that fail: for a page with a slow program, or with a 503 for this client alone. So
//! the circuit also counts failing clients: it ejects a member only if the share of its clients with failures is as
//! large as the required share of its requests. A failed connection attempt does not depend on the client, and counts
//! for all of them. If a single client found all failures, only its requests are kept away: those of others pass. The
//! first that succeeds closes the circuit; the first that fails keeps all clients away.
//!
//! ```text
//!  Closed ── too many failures ──► Open ── its time is over, a trial ──► HalfOpen
//!    ▲                              ▲                                    │    │
//!    └────────── it answers ────────┼────────────────────────────────────┘    │
//!                                   └──────────── it fails: twice as long ────┘
//! ```

use super::clients::ClientSet;
use super::settings;

/// The circuit breaker of a member.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    state: CircuitState,
    /// How often it was opened without a long healthy time in between.
    consecutive_opens: u32,
    /// When it was last closed.
    closed_ms: u64,
    /// Changes with each state: requests that began in an earlier state are no evidence for the current one.
    epoch: u32,
}

#[derive(Clone, Debug)]
enum CircuitState {
    Closed(FailureWindow),
    /// `failed_clients`: clients with failed requests.
    Open {
        until_ms: u64,
        failed_clients: ClientSet,
    },
    HalfOpen {
        trials: u32,
        failed_clients: ClientSet,
    },
}

/// Identifies the state in which a request began, to interpret its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitTicket {
    epoch: u32,
    is_trial: bool,
}

/// The circuit's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitDecision {
    /// The request passes.
    Open,
    /// The request would be a trial of whether the member has recovered.
    Trial,
    /// No request passes until then.
    Shut {
        /// Monotonic ms.
        until_ms: u64,
    },
    /// No request passes until the trials in progress end.
    Tried,
}

/// The evidence from a request about the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitReport {
    /// The member works.
    Well,
    /// It responds, but wrongly or too late.
    Failing,
    /// It is unreachable: no connection, or a lost one.
    Absent,
}

/// The change by a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitChange {
    /// None.
    None,
    /// The member was ejected.
    Opened,
    /// The member is back.
    Closed,
}

/// Sliding window counter: the current window, and the previous one in proportion to its overlap with the last
/// `window_ms`.
#[derive(Clone, Debug)]
struct FailureWindow {
    start_ms: u64,
    current: RequestTally,
    previous: RequestTally,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestTally {
    successes: u64,
    failures: u64,
    /// All clients with requests, and in `failed` those with failures.
    clients: ClientSet,
    failed: ClientSet,
    /// Connections that failed or were lost since the last response, good or bad, and their clients.
    consecutive_absences: u64,
    absent_clients: ClientSet,
}

impl CircuitBreaker {
    /// A closed circuit.
    pub fn new(now_ms: u64) -> CircuitBreaker {
        CircuitBreaker {
            state: CircuitState::Closed(FailureWindow::new(now_ms)),
            consecutive_opens: 0,
            closed_ms: now_ms,
            epoch: 0,
        }
    }

    /// The decision about a request of `clients`.
    pub fn decide(
        &self,
        settings: &settings::CircuitSettings,
        clients: ClientSet,
        now_ms: u64,
    ) -> CircuitDecision {
        match self.state {
            // The failures of one other client say little about this client's requests.
            CircuitState::Closed(_) => CircuitDecision::Open,
            CircuitState::Open { failed_clients, .. }
            | CircuitState::HalfOpen { failed_clients, .. }
                if !affects(failed_clients, clients) =>
            {
                CircuitDecision::Open
            }
            CircuitState::Open { until_ms, .. } if now_ms < until_ms => {
                CircuitDecision::Shut { until_ms }
            }
            CircuitState::HalfOpen { trials, .. } if trials >= settings.trials_max.max(1) => {
                CircuitDecision::Tried
            }
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => CircuitDecision::Trial,
        }
    }

    /// A request begins, even if it should not pass: with panic routing it does.
    pub fn begin(
        &mut self,
        settings: &settings::CircuitSettings,
        clients: ClientSet,
        now_ms: u64,
    ) -> CircuitTicket {
        let is_trial = self.decide(settings, clients, now_ms) == CircuitDecision::Trial;
        if is_trial {
            match &mut self.state {
                CircuitState::HalfOpen { trials, .. } => *trials += 1,
                CircuitState::Open { failed_clients, .. } => {
                    let failed_clients = *failed_clients;
                    // The first trial closes the waiting phase for all requests.
                    self.enter(CircuitState::HalfOpen {
                        trials: 1,
                        failed_clients,
                    });
                }
                CircuitState::Closed(_) => {}
            }
        }
        CircuitTicket {
            epoch: self.epoch,
            is_trial,
        }
    }

    /// A request of `clients` ended; `report` is `None` if its result is no evidence about the member. `may_eject` =
    /// the member may be ejected.
    pub fn end(
        &mut self,
        ticket: CircuitTicket,
        report: Option<CircuitReport>,
        clients: ClientSet,
        may_eject: bool,
        settings: &settings::CircuitSettings,
        now_ms: u64,
    ) -> CircuitChange {
        // A late result from an earlier state would close or open the circuit on outdated evidence.
        if ticket.epoch != self.epoch {
            return CircuitChange::None;
        }
        match (&mut self.state, report) {
            // Cancelled requests have no report and are no evidence.
            (CircuitState::Closed(window), Some(report)) => {
                window.add(report, clients, settings.window_ms, now_ms);
                if report != CircuitReport::Well && may_eject && window.is_bad(settings, now_ms) {
                    let failed_clients = window.failed();
                    self.open(failed_clients, settings, now_ms);
                    return CircuitChange::Opened;
                }
            }
            (
                CircuitState::Open { failed_clients, .. }
                | CircuitState::HalfOpen { failed_clients, .. },
                Some(report),
            ) if !affects(*failed_clients, clients) => {
                match report {
                    // The member worked for other clients all the time, so it needs no slow start: no change is
                    // reported.
                    // A second failing client: the member is ejected for all.
                    CircuitReport::Well => _ = self.close(now_ms),
                    CircuitReport::Failing | CircuitReport::Absent => {
                        *failed_clients = failed_clients.union(clients)
                    }
                }
            }
            (
                CircuitState::HalfOpen {
                    trials,
                    failed_clients,
                },
                report,
            ) if ticket.is_trial => {
                // The trial's slot is free even if it was cancelled, or no trial could ever follow.
                *trials = trials.saturating_sub(1);
                let failed_clients = failed_clients.union(clients);
                match report {
                    Some(CircuitReport::Well) => {
                        self.close(now_ms);
                        return CircuitChange::Closed;
                    }
                    Some(CircuitReport::Failing | CircuitReport::Absent) => {
                        self.open(failed_clients, settings, now_ms);
                        return CircuitChange::Opened;
                    }
                    None => {}
                }
            }
            _ => {}
        }
        CircuitChange::None
    }

    /// Closes the circuit since the member is known to work. Returns whether it was open.
    pub fn close(&mut self, now_ms: u64) -> bool {
        let was_closed = matches!(self.state, CircuitState::Closed(_));
        if !was_closed {
            self.enter(CircuitState::Closed(FailureWindow::new(now_ms)));
            self.closed_ms = now_ms;
        }
        !was_closed
    }

    /// Ejects the member. Each time is longer, unless a single client found all failures.
    fn open(
        &mut self,
        failed_clients: ClientSet,
        settings: &settings::CircuitSettings,
        now_ms: u64,
    ) {
        let was_healthy = matches!(self.state, CircuitState::Closed(_))
            // Healthy for at least the longest ejection: the backoff starts anew.
            && now_ms.saturating_sub(self.closed_ms) >= settings.open_ms_max;
        if was_healthy {
            self.consecutive_opens = 0;
        }
        // The failures of one client alone do not lengthen the ejection of all.
        let is_repeated = failed_clients.len() > 1;
        // Exponential backoff, up to `open_ms_max`.
        let doublings = if is_repeated {
            self.consecutive_opens
        } else {
            0
        };
        let doubled = 1_u64.checked_shl(doublings.min(32));
        let time_ms = settings.open_ms.saturating_mul(doubled.unwrap_or(u64::MAX));
        self.consecutive_opens = self.consecutive_opens.saturating_add(is_repeated.into());
        let until_ms = now_ms.saturating_add(time_ms.min(settings.open_ms_max));
        self.enter(CircuitState::Open {
            until_ms,
            failed_clients,
        });
    }

    fn enter(&mut self, state: CircuitState) {
        // Outcomes of requests that began before are ignored from now on.
        self.state = state;
        self.epoch = self.epoch.wrapping_add(1);
    }
}

/// Whether failures seen by `failed_clients` keep requests of `clients` away: those of several clients do, for all.
fn affects(failed_clients: ClientSet, clients: ClientSet) -> bool {
    failed_clients.len() > 1 || !failed_clients.is_disjoint(clients)
}

impl FailureWindow {
    fn new(now_ms: u64) -> FailureWindow {
        FailureWindow {
            start_ms: now_ms,
            current: RequestTally::default(),
            previous: RequestTally::default(),
        }
    }

    fn add(&mut self, report: CircuitReport, clients: ClientSet, window_ms: u64, now_ms: u64) {
        let window_ms = window_ms.max(1);
        let passed = now_ms.saturating_sub(self.start_ms) / window_ms;
        if passed > 0 {
            // After a gap of more than a window, the last one is outdated too.
            let last = std::mem::take(&mut self.current);
            self.previous = if passed == 1 {
                last
            } else {
                // More than one window without requests: the earlier one is too old.
                RequestTally::default()
            };
            self.start_ms += passed * window_ms;
        }
        let current = &mut self.current;
        current.clients = current.clients.union(clients);
        match report {
            CircuitReport::Well => current.successes += 1,
            CircuitReport::Failing | CircuitReport::Absent => {
                current.failures += 1;
                current.failed = current.failed.union(clients);
            }
        }
        match report {
            CircuitReport::Absent => {
                current.consecutive_absences += 1;
                current.absent_clients = current.absent_clients.union(clients);
            }
            CircuitReport::Well | CircuitReport::Failing => {
                current.consecutive_absences = 0;
                current.absent_clients = ClientSet::default();
            }
        }
    }

    /// Clients with failed requests.
    fn failed(&self) -> ClientSet {
        self.current.failed.union(self.previous.failed)
    }

    /// Whether these clients reach the share of all clients that must have failures.
    fn reach_share(&self, clients: ClientSet, settings: &settings::CircuitSettings) -> bool {
        let all = self.current.clients.union(self.previous.clients);
        clients.len() * 100 >= all.len() * settings.failure_percent
    }

    fn is_bad(&self, settings: &settings::CircuitSettings, now_ms: u64) -> bool {
        let window_ms = settings.window_ms.max(1);
        // Responses from before it became unreachable are no evidence that it is reachable now, so their share is
        // ignored.
        let is_absent =
            self.current.consecutive_absences >= u64::from(settings.absences_max.max(1));
        if settings.absences_max > 0
            && is_absent
            && self.reach_share(self.current.absent_clients, settings)
        {
            return true;
        }
        // Sliding window: the share of the earlier window that is still within `window_ms`.
        let elapsed_ms = now_ms.saturating_sub(self.start_ms).min(window_ms);
        // The share of the previous window that still overlaps the last `window_ms`, assuming even load.
        let weighted = |count: u64| count.saturating_mul(window_ms - elapsed_ms) / window_ms;
        let failures = self.current.failures + weighted(self.previous.failures);
        let all = failures + self.current.successes + weighted(self.previous.successes);
        // A share alone would eject after the first failure of an idle member.
        let are_enough = settings.failures_min > 0 && failures >= u64::from(settings.failures_min);
        are_enough
            && failures * 100 >= all * u64::from(settings.failure_percent)
            && self.reach_share(self.failed(), settings)
    }
}
