//! What has come of a task: what the plan, the log and those who wait are told. It does nothing itself.

use super::entry::Entry;
use super::{Denied, HOUR_S, MINUTE_S, jitter};
use crate::issued::Issued;
use crate::order::Got;
use crate::plan::{Due, Trouble, Window};
use crate::settings::Settings;

/// What nobody wants is not asked about again for so long.
const UNWANTED_S: u64 = MINUTE_S;

/// What a task has come to.
pub(super) enum Ended {
    /// An order of the authority at this place.
    Ordered(usize, Result<Got, Trouble>),
    Asked(Asked),
    /// A certificate that could not be stored has been, or not.
    Stored(Result<(), Trouble>),
}

/// What an authority says of a window.
pub(super) enum Asked {
    /// It is asked again at this second.
    Window(Option<Window>, u64),
    Nothing,
}

/// What is to be done about it.
#[derive(Default)]
pub(super) struct Noted {
    /// For the log.
    pub line: Option<String>,
    /// Another certificate is shown.
    pub changed: bool,
    /// A certificate that could not be stored.
    pub unsaved: Option<Vec<u8>>,
    /// The entry goes; its name is denied until a second.
    pub gone: Option<(Denied, u64)>,
}

impl Noted {
    fn said(line: String) -> Noted {
        Noted {
            line: Some(line),
            ..Noted::default()
        }
    }
}

impl Entry {
    /// Tells the plan what has come of its task.
    pub fn note(&mut self, ended: Ended, settings: &Settings, now_s: u64) -> Noted {
        self.busy = None;
        let name = self.name().to_owned();
        match ended {
            Ended::Ordered(place, Ok(got)) => self.got(place, got, settings, now_s),
            Ended::Ordered(place, Err(trouble)) => self.failed(place, trouble, now_s),
            Ended::Asked(Asked::Window(window, ask_s)) => {
                self.plan.window(window, ask_s, jitter());
                Noted::default()
            }
            Ended::Asked(Asked::Nothing) => {
                self.plan.ask_later(now_s + HOUR_S);
                Noted::default()
            }
            Ended::Stored(Ok(())) => {
                self.plan.forget_error();
                Noted::said(format!("{name}: its certificate is stored now"))
            }
            Ended::Stored(Err(trouble)) => Noted::said(format!("{name}: {trouble}")),
        }
    }

    fn got(&mut self, place: usize, got: Got, settings: &Settings, now_s: u64) -> Noted {
        let name = self.name().to_owned();
        match got {
            // Other names are wanted since it was ordered.
            Got::Issued(issued, _) | Got::Found(issued, _) if !issued.covers(&self.names) => {
                Noted::default()
            }
            Got::Issued(issued, unsaved) => {
                let url = &settings.authorities[place].directory;
                let mut line = format!("{name}: got a certificate from {url}");
                let (fingerprint, validity) = (issued.pair.fingerprint(), issued.validity);
                self.plan.got(now_s, fingerprint, validity, jitter());
                if let Some((_, trouble)) = &unsaved {
                    line = format!("{line}, which could not be stored: {trouble}");
                    self.plan.failed(now_s, place, trouble, jitter());
                }
                let unsaved = unsaved.map(|(pem, _)| pem);
                let noted = self.shows(issued, Some(url.clone()), line);
                Noted { unsaved, ..noted }
            }
            Got::Found(issued, authority) => {
                let (fingerprint, validity) = (issued.pair.fingerprint(), issued.validity);
                self.plan.holds(fingerprint, validity, jitter());
                let line = format!("{name}: another process has got a certificate");
                self.shows(issued, authority, line)
            }
            Got::Unwanted => self.unwanted(place, now_s),
        }
    }

    fn shows(&mut self, issued: Issued, authority: Option<String>, line: String) -> Noted {
        self.issued = Some(issued);
        self.authority = authority;
        Noted {
            changed: true,
            ..Noted::said(line)
        }
    }

    /// Who was asked does not want it. That may be an error; with a certificate there is time to ask again.
    fn unwanted(&mut self, place: usize, now_s: u64) -> Noted {
        let issued = self.issued.as_ref();
        if issued.is_none_or(|issued| issued.validity.not_after_s < now_s) {
            return Noted {
                changed: issued.is_some(),
                gone: Some((Denied::Unwanted, now_s + UNWANTED_S)),
                ..Noted::default()
            };
        }
        let trouble = Trouble::local("it is not wanted any more");
        self.plan.failed(now_s, place, &trouble, jitter());
        Noted::said(format!("{}: not renewed: {trouble}", self.name()))
    }

    fn failed(&mut self, place: usize, trouble: Trouble, now_s: u64) -> Noted {
        self.plan.failed(now_s, place, &trouble, jitter());
        let noted = Noted::said(format!("{}: no certificate: {trouble}", self.name()));
        match (self.on_demand, &self.issued, self.plan.due(now_s)) {
            // Whoever wants it asks again.
            (true, None, Due::At(at_s)) => Noted {
                gone: Some((Denied::Failed(trouble.text), at_s)),
                ..noted
            },
            _ => noted,
        }
    }
}
