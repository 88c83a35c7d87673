//! Applies the outcome of a task or of a file check to an entry. Returns the effects, which `effects` performs: log
//! lines, and changes to publish or store.

use super::entry::CertificateEntry;
use super::file_check::{CheckedFile, FileFinding};
use super::history::{OrderHistory, increment};
use super::{DemandRefusal, HOUR_S, MINUTE_S, jitter};
use crate::issued_certificate::IssuedCertificate;
use crate::order::OrderOutcome;
use crate::plan::{AcmeFailure, PlanStep, RenewalWindow};
use crate::settings::AcmeSettings;
use crate::severity::Severity;
use crate::state::display_time;

/// The time during which a name is not requested again after the operator's service has refused it.
const UNWANTED_S: u64 = MINUTE_S;

/// The outcome of a task.
pub(super) enum TaskOutcome {
    /// The result of an order, from the authority at this index.
    Ordered(usize, Result<OrderOutcome, AcmeFailure>),
    /// The renewal window, and the time of the next request for it.
    Window(Option<RenewalWindow>, u64),
    /// The request for the renewal window failed.
    NoWindow(AcmeFailure),
}

/// The context in which an outcome is applied.
pub(super) struct OutcomeContext<'a> {
    pub settings: &'a AcmeSettings,
    pub history: &'a OrderHistory,
    pub now_s: u64,
}

/// The effects that an outcome requires.
#[derive(Default)]
pub(super) struct FollowUp {
    /// A line for the log.
    pub line: Option<(Severity, String)>,
    /// The certificate in use has changed.
    pub changed: bool,
    /// The stored state need not be updated.
    pub is_unchanged: bool,
    /// The entry must be removed; requests for its name are refused until this second.
    pub removed: Option<(DemandRefusal, u64)>,
}

impl FollowUp {
    fn unchanged() -> FollowUp {
        FollowUp {
            is_unchanged: true,
            ..FollowUp::default()
        }
    }

    fn line(severity: Severity, line: String) -> FollowUp {
        FollowUp {
            line: Some((severity, line)),
            ..FollowUp::default()
        }
    }
}

impl CertificateEntry {
    /// Applies the outcome of a task.
    pub fn apply(&mut self, outcome: TaskOutcome, context: &OutcomeContext<'_>) -> FollowUp {
        match outcome {
            TaskOutcome::Ordered(authority_index, Ok(order_outcome)) => {
                self.outcome(authority_index, order_outcome, context)
            }
            TaskOutcome::Ordered(authority_index, Err(failure)) => {
                self.order_failed(authority_index, failure, context)
            }
            TaskOutcome::Window(window, ask_s) => {
                self.has_window_failed = false;
                self.plan.window(window, ask_s, jitter());
                FollowUp::default()
            }
            TaskOutcome::NoWindow(failure) => self.window_failed(&failure, context),
        }
    }

    fn outcome(
        &mut self,
        authority_index: usize,
        outcome: OrderOutcome,
        context: &OutcomeContext<'_>,
    ) -> FollowUp {
        match outcome {
            // The wanted names have changed since the order was placed.
            OrderOutcome::Issued(issued, _) | OrderOutcome::Found(issued, _)
                if !issued.covers(&self.names) =>
            {
                FollowUp::default()
            }
            OrderOutcome::Issued(issued, unsaved) => {
                self.adopt_issued(authority_index, issued, unsaved, context)
            }
            OrderOutcome::Found(issued, authority) => self.adopt(issued, authority, context),
            OrderOutcome::Unwanted => self.order_refused(authority_index, context.now_s),
        }
    }

    fn adopt_issued(
        &mut self,
        authority_index: usize,
        issued: IssuedCertificate,
        unsaved: Option<AcmeFailure>,
        context: &OutcomeContext<'_>,
    ) -> FollowUp {
        increment(&context.history.counters.issued);
        let now_s = context.now_s;
        let url = &context.settings.authorities[authority_index].directory;
        let (fingerprint, validity) = (issued.pair.fingerprint(), issued.validity);
        // The plan is updated even if the certificate could not be stored, because the certificate is in use.
        self.plan
            .record_issued(now_s, fingerprint, validity, jitter());
        let line_text = format!("{}: got a certificate from {url}", self.name());
        let follow_up = self.take_into_use(issued, Some(url.clone()), line_text);
        let Some(failure) = unsaved else {
            return follow_up;
        };
        self.plan
            .record_failure(now_s, authority_index, &failure, jitter());
        // The next file check stores the certificate.
        self.file.fault = Some(format!("could not be written: {failure}"));
        let severity = self.failure_severity(now_s);
        let line = follow_up.line.map(|(_, line_text)| {
            let line = format!("{line_text}, which could not be stored: {failure}");
            (severity, line)
        });
        FollowUp { line, ..follow_up }
    }

    /// Takes a certificate from the folder into use.
    fn adopt(
        &mut self,
        issued: IssuedCertificate,
        authority: Option<String>,
        context: &OutcomeContext<'_>,
    ) -> FollowUp {
        let history = context.history;
        let line = match history.is_ordered_here(self.name(), issued.pair.fingerprint()) {
            true => format!(
                "{}: got a certificate from an order made before the reload",
                self.name()
            ),
            false => {
                increment(&history.counters.adopted);
                format!("{}: another process got a certificate", self.name())
            }
        };
        // The stored state may lack the issuer.
        let authority = authority.or_else(|| self.authority.clone());
        self.take_into_use(issued, authority, line)
    }

    fn take_into_use(
        &mut self,
        issued: IssuedCertificate,
        authority: Option<String>,
        line: String,
    ) -> FollowUp {
        self.use_certificate(issued);
        self.authority = authority;
        self.file.fault = None;
        self.logged_stage = Default::default();
        self.is_unwanted = false;
        FollowUp {
            changed: true,
            ..FollowUp::line(Severity::Info, line)
        }
    }

    /// Handles a refusal by the operator's service. Because it may be a mistake, the service is asked again as long as
    /// the certificate is valid.
    fn order_refused(&mut self, authority_index: usize, now_s: u64) -> FollowUp {
        let issued = self.issued.as_ref();
        if issued.is_none_or(|issued| issued.validity.not_after_s < now_s) {
            // There is no valid certificate to keep, so the entry is removed.
            return FollowUp {
                changed: issued.is_some(),
                removed: Some((DemandRefusal::Unwanted, now_s + UNWANTED_S)),
                ..FollowUp::default()
            };
        }
        self.is_unwanted = true;
        let failure = AcmeFailure::local("the name is no longer permitted");
        self.plan
            .record_failure(now_s, authority_index, &failure, jitter());
        let line = format!("{}: not renewed: {failure}", self.name());
        FollowUp::line(Severity::Warning, line)
    }

    fn order_failed(
        &mut self,
        authority_index: usize,
        failure: AcmeFailure,
        context: &OutcomeContext<'_>,
    ) -> FollowUp {
        let now_s = context.now_s;
        context.history.counters.count_failure(failure.kind);
        self.plan
            .record_failure(now_s, authority_index, &failure, jitter());
        let line = format!(
            "{}: {failure}; {}",
            self.consequence_text(now_s),
            self.next_attempt_text(now_s)
        );
        let follow_up = FollowUp::line(self.failure_severity(now_s), line);
        match (self.on_demand, &self.issued, self.plan.next_step(now_s)) {
            // The next client that needs the certificate requests it again.
            (true, None, PlanStep::At(at_s)) => FollowUp {
                removed: Some((DemandRefusal::Failed(failure.text), at_s)),
                ..follow_up
            },
            _ => follow_up,
        }
    }

    /// The consequence of a failed order for clients, as text.
    fn consequence_text(&self, now_s: u64) -> String {
        let name = self.name();
        let Some(issued) = &self.issued else {
            return format!("{name}: no certificate");
        };
        if !issued.covers(&self.names) {
            return format!("{name}: no certificate that covers all of its names");
        }
        let end_s = issued.validity.not_after_s;
        let end = display_time(end_s);
        match end_s < now_s {
            true => format!("{name}: not renewed, and the certificate has expired on {end}"),
            false => format!("{name}: not renewed, and the certificate expires on {end}"),
        }
    }

    fn next_attempt_text(&self, now_s: u64) -> String {
        match self.plan.next_step(now_s) {
            PlanStep::At(at_s) => format!("next try {}", display_time(at_s)),
            _ => "the next authority is tried now".into(),
        }
    }

    /// Handles a failed request for the renewal window. Logs only the first failure of an outage.
    fn window_failed(&mut self, failure: &AcmeFailure, context: &OutcomeContext<'_>) -> FollowUp {
        increment(&context.history.counters.window_failures);
        self.plan.postpone_query(context.now_s + HOUR_S);
        // Later failures of the same outage are only counted.
        if std::mem::replace(&mut self.has_window_failed, true) {
            return FollowUp::default();
        }
        let line = format!(
            "{}: the authority's renewal information is unavailable, so its last answer or two \
             thirds of the lifetime applies: {failure}",
            self.name()
        );
        FollowUp::line(Severity::Warning, line)
    }

    /// Applies the result of a file check.
    pub fn apply_file_check(
        &mut self,
        checked: CheckedFile,
        context: &OutcomeContext<'_>,
    ) -> FollowUp {
        let counters = &context.history.counters;
        let previous = std::mem::take(&mut self.file);
        self.file.stamp = checked.stamp;
        let name = self.name().to_owned();
        match checked.finding {
            FileFinding::Intact => FollowUp::unchanged(),
            FileFinding::Better(issued, authority) => self.adopt(issued, authority, context),
            FileFinding::Useless(reason) => {
                let line = format!(
                    "{name}: certificate.pem contains another certificate, which {reason}; the one in use is kept"
                );
                FollowUp::line(Severity::Warning, line)
            }
            FileFinding::Restored(fault) => {
                increment(&counters.files_restored);
                if previous.fault.is_some() {
                    self.plan.forget_error();
                    let line = format!("{name}: certificate.pem can be written again");
                    return FollowUp::line(Severity::Info, line);
                }
                increment(&counters.files_damaged);
                let line = format!("{name}: certificate.pem {fault}; it was restored");
                FollowUp::line(Severity::Warning, line)
            }
            FileFinding::NotRestored(fault, failure) => {
                let line = format!(
                    "{name}: certificate.pem {fault}; the certificate in use cannot be written back: {failure}"
                );
                let is_new = previous.fault.is_none();
                self.file.fault = Some(previous.fault.unwrap_or(fault));
                if !is_new {
                    // The failure was already logged; the next check tries again.
                    return FollowUp::unchanged();
                }
                increment(&counters.files_damaged);
                self.plan.record_error(context.now_s, &line);
                FollowUp::line(self.failure_severity(context.now_s), line)
            }
            FileFinding::Lost(fault) => {
                increment(&counters.files_damaged);
                self.plan.current_lost();
                let line = format!("{name}: certificate.pem {fault}; a new certificate is ordered");
                FollowUp::line(Severity::Error, line)
            }
            FileFinding::Locked => {
                // The other process will replace the file; the next check finds it.
                self.file = previous;
                FollowUp::unchanged()
            }
        }
    }
}
