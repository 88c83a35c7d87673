//! Circuit breaker of a member (passive health check): the outcomes of requests decide whether the member is ejected,
//! for how long, and when a trial request follows. Other members and active checks are not considered.
//!
//! A single client may send only requests that fail: for a slow page, or because the member sends 503 to this client
//! alone. So the circuit also counts failing clients: it ejects a member only if the share of clients with failures is
//! as large as the required share of failed requests. A failed connection attempt does not depend on the client, and
//! counts for all clients. If all failures are of a single client, the member is ejected only for this client, and
//! requests of other clients pass: if one of these succeeds, the circuit closes; if one fails, the member is ejected
//! for all.
//!
//! ```text
//!  Closed ── too many failures ──► Open ── time over: trial request ──► HalfOpen
//!    ▲                              ▲                                    │    │
//!    └──────── trial succeeds ──────┼────────────────────────────────────┘    │
//!                                   └──────── trial fails: twice as long ─────┘
//! ```

use super::clients::ClientSet;
use super::settings;

/// The circuit breaker of a member.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    state: CircuitState,
    /// How often the circuit was opened without a long healthy time in between.
    consecutive_opens: u32,
    /// When the circuit was last closed.
    closed_ms: u64,
    /// Incremented with each change of the state: outcomes of requests that began in an earlier state are ignored.
    epoch: u32,
}

#[derive(Clone, Debug)]
enum CircuitState {
    Closed(FailureWindow),
    /// `failed_clients`: the clients of the failed requests.
    Open {
        until_ms: u64,
        failed_clients: ClientSet,
    },
    HalfOpen {
        trials: u32,
        failed_clients: ClientSet,
    },
}

/// Identifies the state of the circuit in which a request began; needed to report its outcome.
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
    /// The request passes as a trial of whether the member has recovered.
    Trial,
    /// No request passes until a time.
    Ejected {
        /// Monotonic ms.
        until_ms: u64,
    },
    /// No request passes until the trials in progress end.
    TrialInProgress,
}

/// The state of the member, as shown by the outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitReport {
    /// The member works.
    Success,
    /// The member responds with an error or too late.
    Failure,
    /// The member is unreachable: no connection, or a lost one.
    Unreachable,
}

/// The change of the circuit by a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitChange {
    /// None.
    None,
    /// The member was ejected.
    Opened {
        /// The end of the ejection, monotonic ms.
        until_ms: u64,
        /// Whether it applies to one client only.
        is_for_one_client: bool,
    },
    /// The member is no longer ejected.
    Closed {
        /// Whether it was ejected for one client only.
        was_for_one_client: bool,
    },
    /// The member, which was ejected for one client only, works for others, and is no longer ejected.
    ClosedByOthers,
}

/// Sliding window counter: counts the current window, and the previous one in proportion to its overlap with the last
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
    /// The clients with requests; `failed` are the clients with failed requests.
    clients: ClientSet,
    failed: ClientSet,
    /// The number of connections that failed or were lost since the last response of any kind; `absent_clients` are
    /// their clients.
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

    /// Decides whether a request of `clients` passes.
    pub fn decide(
        &self,
        settings: &settings::CircuitSettings,
        clients: ClientSet,
        now_ms: u64,
    ) -> CircuitDecision {
        match self.state {
            CircuitState::Closed(_) => CircuitDecision::Open,
            // If only one other client had failures, this client's requests pass.
            CircuitState::Open { failed_clients, .. }
            | CircuitState::HalfOpen { failed_clients, .. }
                if !is_ejected_for(failed_clients, clients) =>
            {
                CircuitDecision::Open
            }
            CircuitState::Open { until_ms, .. } if now_ms < until_ms => {
                CircuitDecision::Ejected { until_ms }
            }
            CircuitState::HalfOpen { trials, .. } if trials >= settings.trials_max.max(1) => {
                CircuitDecision::TrialInProgress
            }
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => CircuitDecision::Trial,
        }
    }

    /// Records that a request begins. With panic routing, a request may begin even if `decide` does not let it pass.
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
                    // The first trial changes the state from open to half-open.
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

    /// Records that a request of `clients` ended. `report` is `None` if the outcome shows nothing about the member.
    /// `may_eject`: whether the member may be ejected.
    pub fn end(
        &mut self,
        ticket: CircuitTicket,
        report: Option<CircuitReport>,
        clients: ClientSet,
        may_eject: bool,
        settings: &settings::CircuitSettings,
        now_ms: u64,
    ) -> CircuitChange {
        // A late outcome from an earlier state must neither close nor open the circuit.
        if ticket.epoch != self.epoch {
            return CircuitChange::None;
        }
        match (&mut self.state, report) {
            // Cancelled requests have no report, and are not counted.
            (CircuitState::Closed(window), Some(report)) => {
                window.add(report, clients, settings.window_ms, now_ms);
                if report != CircuitReport::Success && may_eject && window.is_bad(settings, now_ms)
                {
                    let failed_clients = window.failed();
                    return self.open(failed_clients, settings, now_ms);
                }
            }
            (
                CircuitState::Open { failed_clients, .. }
                | CircuitState::HalfOpen { failed_clients, .. },
                Some(report),
            ) if !is_ejected_for(*failed_clients, clients) => {
                match report {
                    // Another client succeeded: the circuit closes. No change is reported, since a slow start is not
                    // needed: the member was ejected only for one client. If a second client fails, the member is
                    // ejected for all.
                    CircuitReport::Success => {
                        self.close(now_ms);
                        return CircuitChange::ClosedByOthers;
                    }
                    CircuitReport::Failure | CircuitReport::Unreachable => {
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
                // The trial's slot is freed even if the trial was cancelled; otherwise no other trial could follow.
                *trials = trials.saturating_sub(1);
                let was_for_one_client = failed_clients.len() == 1;
                let failed_clients = failed_clients.union(clients);
                match report {
                    Some(CircuitReport::Success) => {
                        self.close(now_ms);
                        return CircuitChange::Closed { was_for_one_client };
                    }
                    Some(CircuitReport::Failure | CircuitReport::Unreachable) => {
                        return self.open(failed_clients, settings, now_ms);
                    }
                    None => {}
                }
            }
            _ => {}
        }
        CircuitChange::None
    }

    /// Closes the circuit, because the member is known to work. Returns whether the circuit was open or half-open.
    pub fn close(&mut self, now_ms: u64) -> bool {
        let was_closed = matches!(self.state, CircuitState::Closed(_));
        if !was_closed {
            self.enter(CircuitState::Closed(FailureWindow::new(now_ms)));
            self.closed_ms = now_ms;
        }
        !was_closed
    }

    /// Ejects the member. Each ejection takes longer than the last, unless all failures are of a single client.
    fn open(
        &mut self,
        failed_clients: ClientSet,
        settings: &settings::CircuitSettings,
        now_ms: u64,
    ) -> CircuitChange {
        let was_healthy = matches!(self.state, CircuitState::Closed(_))
            // If the member was healthy for at least the longest ejection time, the backoff starts again.
            && now_ms.saturating_sub(self.closed_ms) >= settings.open_ms_max;
        if was_healthy {
            self.consecutive_opens = 0;
        }
        // Failures of a single client do not lengthen the ejection for all.
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
        CircuitChange::Opened {
            until_ms,
            is_for_one_client: failed_clients.len() == 1,
        }
    }

    fn enter(&mut self, state: CircuitState) {
        // With the new epoch, outcomes of requests that began before are ignored.
        self.state = state;
        self.epoch = self.epoch.wrapping_add(1);
    }
}

/// Whether an ejection because of `failed_clients` applies to requests of `clients`: an ejection because of several
/// clients applies to all.
fn is_ejected_for(failed_clients: ClientSet, clients: ClientSet) -> bool {
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
            // The current window becomes the previous one.
            let last = std::mem::take(&mut self.current);
            self.previous = if passed == 1 {
                last
            } else {
                // More than one window has passed, so its counts are outdated.
                RequestTally::default()
            };
            // Advanced by whole windows, so that their bounds do not depend on the times of requests.
            self.start_ms += passed * window_ms;
        }
        let current = &mut self.current;
        current.clients = current.clients.union(clients);
        match report {
            CircuitReport::Success => current.successes += 1,
            CircuitReport::Failure | CircuitReport::Unreachable => {
                current.failures += 1;
                current.failed = current.failed.union(clients);
            }
        }
        match report {
            CircuitReport::Unreachable => {
                current.consecutive_absences += 1;
                current.absent_clients = current.absent_clients.union(clients);
            }
            CircuitReport::Success | CircuitReport::Failure => {
                current.consecutive_absences = 0;
                current.absent_clients = ClientSet::default();
            }
        }
    }

    /// The clients with failed requests.
    fn failed(&self) -> ClientSet {
        self.current.failed.union(self.previous.failed)
    }

    /// Whether these clients are at least the required share of all clients with requests.
    fn reach_share(&self, clients: ClientSet, settings: &settings::CircuitSettings) -> bool {
        let all = self.current.clients.union(self.previous.clients);
        clients.len() * 100 >= all.len() * settings.failure_percent
    }

    fn is_bad(&self, settings: &settings::CircuitSettings, now_ms: u64) -> bool {
        let window_ms = settings.window_ms.max(1);
        // Responses from before the member became unreachable do not show that it is reachable now, so the share of
        // failures is ignored.
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
        // Requests of the previous window count by its overlap with the last `window_ms`, assuming even load.
        let weighted = |count: u64| count.saturating_mul(window_ms - elapsed_ms) / window_ms;
        let failures = self.current.failures + weighted(self.previous.failures);
        let all = failures + self.current.successes + weighted(self.previous.successes);
        // With the share alone, the first failure of an idle member would eject it.
        let are_enough = settings.failures_min > 0 && failures >= u64::from(settings.failures_min);
        are_enough
            && failures * 100 >= all * u64::from(settings.failure_percent)
            && self.reach_share(self.failed(), settings)
    }
}
