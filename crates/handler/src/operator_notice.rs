//! The callback for notices to the operator, and a limit of repeated ones.

use std::sync::{Arc, Mutex, PoisonError};

use crate::request_label::RequestLabel;

/// Receives notices for the operator: lines of an application's stderr, abnormal exits, and failures that do not
/// prevent a response. The second argument identifies the request that a notice is about.
pub type OperatorNotice = Arc<dyn Fn(&str, Option<&RequestLabel>) + Send + Sync>;

/// Sends notices about one request to the operator.
#[derive(Clone)]
pub struct RequestNotice {
    notice: OperatorNotice,
    label: Arc<RequestLabel>,
}

impl RequestNotice {
    /// Sends notices about the request with this label by `notice`.
    pub fn new(notice: &OperatorNotice, label: RequestLabel) -> RequestNotice {
        RequestNotice {
            notice: notice.clone(),
            label: Arc::new(label),
        }
    }

    /// Sends a notice.
    pub fn send(&self, text: &str) {
        (self.notice)(text, Some(&self.label));
    }
}

/// The minimum time between two notices about the same condition.
const INTERVAL_MS: u64 = 10_000;

/// Limits notices that each request would repeat while a condition lasts: the first is written, later ones are counted
/// and written once in an interval.
#[derive(Debug, Default)]
pub struct NoticeLimit(Mutex<LimitState>);

#[derive(Debug, Default)]
struct LimitState {
    /// The end of the interval of the last written notice, monotonic ms.
    until_ms: u64,
    /// The number of notices that were not written since.
    unwritten: u64,
}

impl NoticeLimit {
    /// The text to be written now, with the number of earlier notices that were only counted; `None` to write nothing.
    pub fn admit(&self, text: &str, now_ms: u64) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms < state.until_ms {
            state.unwritten += 1;
            return None;
        }
        state.until_ms = now_ms + INTERVAL_MS;
        Some(match std::mem::take(&mut state.unwritten) {
            0 => text.to_owned(),
            1 => format!("{text} (as once before since the last message)"),
            count => format!("{text} (as {count} times before since the last message)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_notices_are_counted() {
        let limit = NoticeLimit::default();
        let admit = |now_ms| limit.admit("down", now_ms);
        assert_eq!(admit(5).as_deref(), Some("down"));
        for now_ms in [5, 6, 10_004] {
            assert_eq!(admit(now_ms), None);
        }
        let counted = "down (as 3 times before since the last message)";
        assert_eq!(admit(10_005).as_deref(), Some(counted));
        assert_eq!(admit(20_005).as_deref(), Some("down"));
    }
}
