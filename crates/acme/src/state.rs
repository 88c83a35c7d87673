//! How it stands with a certificate, in words: for `lowroad status`.

use std::fmt;

use lowroad_tls::x509;

use crate::plan::LastError;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An order is under way.
    Ordering,
    /// It is ordered, for the first time or anew, at this second; the past means at once.
    Order(u64),
}

/// How it stands with one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The names that it is for.
    pub names: Vec<String>,
    /// The directory of the authority that has signed it, or that is being asked.
    pub authority: Option<String>,
    /// The last second at which the one that is shown is valid. `None`: there is none.
    pub not_after_s: Option<u64>,
    /// What comes next.
    pub next: Next,
    /// What went wrong last, if nothing went well since.
    pub last_error: Option<LastError>,
    /// When this was so.
    pub now_s: u64,
}

impl fmt::Display for State {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: ", self.names.join(", "))?;
        match self.not_after_s {
            None => to.write_str("no certificate yet")?,
            Some(end_s) if end_s < self.now_s => {
                write!(to, "EXPIRED since {}", display_time(end_s))?
            }
            Some(end_s) => write!(to, "valid until {}", display_time(end_s))?,
        }
        let what = match self.not_after_s {
            None => "order",
            Some(_) => "renewal",
        };
        match (self.next, &self.authority) {
            (Next::Ordering, Some(authority)) => write!(to, "; being ordered from {authority}")?,
            (Next::Ordering, None) => to.write_str("; being ordered")?,
            (Next::Order(u64::MAX), _) => write!(to, "; no {what} planned")?,
            (Next::Order(at_s), _) if at_s <= self.now_s => write!(to, "; {what} due now")?,
            (Next::Order(at_s), _) => write!(to, "; next {what} {}", display_time(at_s))?,
        }
        if let Some(error) = &self.last_error {
            write!(
                to,
                "; last error ({}): {}",
                display_time(error.at_s),
                error.text
            )?;
        }
        Ok(())
    }
}

/// Seconds since 1970 as a date and time.
pub(crate) fn display_time(unix_s: u64) -> String {
    x509::display_time(i64::try_from(unix_s).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_795_473_525;

    #[test]
    fn it_is_said_in_words() {
        let mut state = State {
            names: vec!["example.org".into(), "www.example.org".into()],
            authority: None,
            not_after_s: Some(NOW_S + 86_400),
            next: Next::Order(NOW_S + 3600),
            last_error: None,
            now_s: NOW_S,
        };
        assert_eq!(
            state.to_string(),
            "example.org, www.example.org: valid until 2026-11-24 22:38:45 UTC; \
             next renewal 2026-11-23 23:38:45 UTC"
        );
        state.names.pop();
        state.not_after_s = Some(NOW_S - 1);
        state.next = Next::Order(0);
        state.last_error = Some(LastError {
            at_s: NOW_S - 60,
            text: "no".into(),
        });
        assert_eq!(
            state.to_string(),
            "example.org: EXPIRED since 2026-11-23 22:38:44 UTC; renewal due now; \
             last error (2026-11-23 22:37:45 UTC): no"
        );
        state.not_after_s = None;
        state.last_error = None;
        state.next = Next::Ordering;
        state.authority = Some("https://ca.example/".into());
        assert_eq!(
            state.to_string(),
            "example.org: no certificate yet; being ordered from https://ca.example/"
        );
    }
}
