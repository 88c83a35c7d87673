//! Applies the outcome of a task or of a file check to an entry, and returns the log lines and required actions. It has
//! no side effects.

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

/// How long a name that the operator's service refused is not requested again.
const UNWANTED_S: u64 = MINUTE_S;

/// The outcome of a task.
pub(super) enum TaskOutcome {
    /// An order from the authority at this index.
    Ordered(usize, Result<OrderOutcome, AcmeFailure>),
    /// The renewal window, and the second of the next request.
    Window(Option<RenewalWindow>, u64),
    /// The request to the authority failed.
    NoWindow(AcmeFailure),
}

/// The context of applying an outcome.
pub(super) struct NoteContext<'a> {
    pub settings: &'a AcmeSettings,
    pub history: &'a OrderHistory,
    pub now_s: u64,
}

/// The action that an outcome requires.
#[derive(Default)]
pub(super) struct FollowUp {
    /// A line for the log.
    pub line: Option<(Severity, String)>,
    /// The certificate in use has changed.
    pub changed: bool,
    /// There is nothing to save.
    pub is_unchanged: bool,
    /// The entry is removed; its name is refused until a second.
    pub gone: Option<(DemandRefusal, u64)>,
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
    pub fn note(&mut self, ended: TaskOutcome, context: &NoteContext<'_>) -> FollowUp {
        match ended {
            TaskOutcome::Ordered(place, Ok(got)) => self.got(place, got, context),
            TaskOutcome::Ordered(place, Err(trouble)) => self.failed(place, trouble, context),
            TaskOutcome::Window(window, ask_s) => {
                self.has_window_failed = false;
                self.plan.window(window, ask_s, jitter());
                FollowUp::default()
            }
            TaskOutcome::NoWindow(trouble) => self.window_failed(&trouble, context),
        }
    }

    fn got(&mut self, place: usize, got: OrderOutcome, context: &NoteContext<'_>) -> FollowUp {
        match got {
            // The wanted names have changed since the order.
            OrderOutcome::Issued(issued, _) | OrderOutcome::Found(issued, _)
                if !issued.covers(&self.names) =>
            {
                FollowUp::default()
            }
            OrderOutcome::Issued(issued, unsaved) => self.issued(place, issued, unsaved, context),
            OrderOutcome::Found(issued, authority) => self.adopt(issued, authority, context),
            OrderOutcome::Unwanted => self.unwanted(place, context.now_s),
        }
    }

    fn issued(
        &mut self,
        place: usize,
        issued: IssuedCertificate,
        unsaved: Option<AcmeFailure>,
        context: &NoteContext<'_>,
    ) -> FollowUp {
        increment(&context.history.counters.issued);
        let now_s = context.now_s;
        let url = &context.settings.authorities[place].directory;
        let (fingerprint, validity) = (issued.pair.fingerprint(), issued.validity);
        // The plan first: even if storing failed, the certificate is in use.
        self.plan.got(now_s, fingerprint, validity, jitter());
        let got = format!("{}: got a certificate from {url}", self.name());
        let noted = self.shows(issued, Some(url.clone()), got);
        let Some(trouble) = unsaved else {
            return noted;
        };
        self.plan.failed(now_s, place, &trouble, jitter());
        // The next file check writes it back.
        self.file.fault = Some(format!("could not be written: {trouble}"));
        let severity = self.failure_severity(now_s);
        let line = noted.line.map(|(_, got)| {
            let line = format!("{got}, which could not be stored: {trouble}");
            (severity, line)
        });
        FollowUp { line, ..noted }
    }

    /// Uses a certificate from the folder.
    fn adopt(
        &mut self,
        issued: IssuedCertificate,
        authority: Option<String>,
        context: &NoteContext<'_>,
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
        // The folder's state may not name the issuer.
        let authority = authority.or_else(|| self.authority.clone());
        self.shows(issued, authority, line)
    }

    fn shows(
        &mut self,
        issued: IssuedCertificate,
        authority: Option<String>,
        line: String,
    ) -> FollowUp {
        self.take(issued);
        self.authority = authority;
        self.file.fault = None;
        self.logged_stage = Default::default();
        self.is_unwanted = false;
        FollowUp {
            changed: true,
            ..FollowUp::line(Severity::Info, line)
        }
    }

    /// Handles a refusal by the operator's service. It may be a mistake; while the certificate is valid, the service is
    /// asked again.
    fn unwanted(&mut self, place: usize, now_s: u64) -> FollowUp {
        let issued = self.issued.as_ref();
        if issued.is_none_or(|issued| issued.validity.not_after_s < now_s) {
            // There is no valid certificate to keep, so the entry is removed.
            return FollowUp {
                changed: issued.is_some(),
                gone: Some((DemandRefusal::Unwanted, now_s + UNWANTED_S)),
                ..FollowUp::default()
            };
        }
        self.is_unwanted = true;
        let trouble = AcmeFailure::local("the name is no longer permitted");
        self.plan.failed(now_s, place, &trouble, jitter());
        let line = format!("{}: not renewed: {trouble}", self.name());
        FollowUp::line(Severity::Warning, line)
    }

    fn failed(
        &mut self,
        place: usize,
        trouble: AcmeFailure,
        context: &NoteContext<'_>,
    ) -> FollowUp {
        let now_s = context.now_s;
        context.history.counters.count_failure(trouble.kind);
        self.plan.failed(now_s, place, &trouble, jitter());
        let line = format!(
            "{}: {trouble}; {}",
            self.outlook(now_s),
            self.next_try(now_s)
        );
        let noted = FollowUp::line(self.failure_severity(now_s), line);
        match (self.on_demand, &self.issued, self.plan.due(now_s)) {
            // The next client that needs it requests it again.
            (true, None, PlanStep::At(at_s)) => FollowUp {
                gone: Some((DemandRefusal::Failed(trouble.text), at_s)),
                ..noted
            },
            _ => noted,
        }
    }

    /// A failure's effect on clients.
    fn outlook(&self, now_s: u64) -> String {
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

    fn next_try(&self, now_s: u64) -> String {
        match self.plan.due(now_s) {
            PlanStep::At(at_s) => format!("next try {}", display_time(at_s)),
            _ => "the next authority is tried now".into(),
        }
    }

    /// Logs one line per outage.
    fn window_failed(&mut self, trouble: &AcmeFailure, context: &NoteContext<'_>) -> FollowUp {
        increment(&context.history.counters.window_failures);
        self.plan.ask_later(context.now_s + HOUR_S);
        // Later failures of the same outage are only counted.
        if std::mem::replace(&mut self.has_window_failed, true) {
            return FollowUp::default();
        }
        let line = format!(
            "{}: the authority's renewal information is unavailable, so its last answer or two \
             thirds of the lifetime applies: {trouble}",
            self.name()
        );
        FollowUp::line(Severity::Warning, line)
    }

    /// Applies the result of a file check.
    pub fn note_file(&mut self, checked: CheckedFile, context: &NoteContext<'_>) -> FollowUp {
        let counters = &context.history.counters;
        let before = std::mem::take(&mut self.file);
        self.file.stamp = checked.stamp;
        let name = self.name().to_owned();
        match checked.finding {
            FileFinding::Intact => FollowUp::unchanged(),
            FileFinding::Better(issued, authority) => self.adopt(issued, authority, context),
            FileFinding::Useless(why) => {
                let line = format!(
                    "{name}: certificate.pem contains another certificate, which {why}; the one in use is kept"
                );
                FollowUp::line(Severity::Warning, line)
            }
            FileFinding::Restored(fault) => {
                increment(&counters.files_restored);
                if before.fault.is_some() {
                    self.plan.forget_error();
                    let line = format!("{name}: certificate.pem can be written again");
                    return FollowUp::line(Severity::Info, line);
                }
                increment(&counters.files_damaged);
                let line = format!("{name}: certificate.pem {fault}; it was restored");
                FollowUp::line(Severity::Warning, line)
            }
            FileFinding::NotRestored(fault, trouble) => {
                let line = format!(
                    "{name}: certificate.pem {fault}; the certificate in use cannot be written back: {trouble}"
                );
                let is_new = before.fault.is_none();
                self.file.fault = Some(before.fault.unwrap_or(fault));
                if !is_new {
                    // Already logged; the next check tries again.
                    return FollowUp::unchanged();
                }
                increment(&counters.files_damaged);
                self.plan.note_error(context.now_s, &line);
                FollowUp::line(self.failure_severity(context.now_s), line)
            }
            FileFinding::Lost(fault) => {
                increment(&counters.files_damaged);
                self.plan.lost();
                let line = format!("{name}: certificate.pem {fault}; a new certificate is ordered");
                FollowUp::line(Severity::Error, line)
            }
            FileFinding::Locked => {
                // The other process reports the result by replacing the file.
                self.file = before;
                FollowUp::unchanged()
            }
        }
    }
}
