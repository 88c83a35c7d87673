//! The state of a certificate as text, for `lowroad status`.

use std::fmt;

use lowroad_tls::x509;

use crate::plan::LastError;

/// The next step of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalStep {
    /// An order is in progress.
    Ordering,
    /// An order is due at this second; if the second has passed, now.
    Order(u64),
}

/// The state of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// The certificate's names.
    pub names: Vec<String>,
    /// The directory URL of the certificate's issuer, or during an order that of its authority.
    pub authority: Option<String>,
    /// The last valid second of the certificate in use. `None`: there is none.
    pub not_after_s: Option<u64>,
    /// The next step.
    pub next: RenewalStep,
    /// The last error; `None` if an order has succeeded since.
    pub last_error: Option<LastError>,
    /// The time of this state.
    pub now_s: u64,
}

impl fmt::Display for CertificateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.names.join(", "))?;
        match self.not_after_s {
            None => f.write_str("no certificate yet")?,
            Some(end_s) if end_s < self.now_s => {
                write!(f, "EXPIRED since {}", display_time(end_s))?
            }
            Some(end_s) => write!(f, "valid until {}", display_time(end_s))?,
        }
        let action = match self.not_after_s {
            None => "order",
            Some(_) => "renewal",
        };
        match (self.next, &self.authority) {
            (RenewalStep::Ordering, Some(authority)) => {
                write!(f, "; being ordered from {authority}")?
            }
            (RenewalStep::Ordering, None) => f.write_str("; being ordered")?,
            (RenewalStep::Order(u64::MAX), _) => write!(f, "; no {action} planned")?,
            (RenewalStep::Order(at_s), _) if at_s <= self.now_s => write!(f, "; {action} due now")?,
            (RenewalStep::Order(at_s), _) => write!(f, "; next {action} {}", display_time(at_s))?,
        }
        if let Some(error) = &self.last_error {
            write!(
                f,
                "; last error ({}): {}",
                display_time(error.at_s),
                error.text
            )?;
        }
        Ok(())
    }
}

/// Formats seconds since 1970 as a date and time.
pub(crate) fn display_time(unix_s: u64) -> String {
    x509::display_time(i64::try_from(unix_s).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_795_473_525;

    #[test]
    fn state_is_displayed_as_text() {
        let mut state = CertificateState {
            names: vec!["example.org".into(), "www.example.org".into()],
            authority: None,
            not_after_s: Some(NOW_S + 86_400),
            next: RenewalStep::Order(NOW_S + 3600),
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
        state.next = RenewalStep::Order(0);
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
        state.next = RenewalStep::Ordering;
        state.authority = Some("https://ca.example/".into());
        assert_eq!(
            state.to_string(),
            "example.org: no certificate yet; being ordered from https://ca.example/"
        );
    }
}
