//! How much the peer may send: a window that is given back as what came is taken, and grows with the path. Knows no frames.
//! Read RFC 9113 §5.2 and §6.9.
//!
//! The path's capacity is estimated without a clock ([`Estimate`]): a PING goes out when data begins to come; what has come when
//! its answer does, came in one round trip. If that is nearly the window, the window was what limited it, and it is doubled.

use super::settings::WINDOW_LEN;

/// A window of the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// What may still come.
    left: u32,
    /// What was taken and is still to be given back.
    due: u32,
    /// What it is when everything is given back.
    size: u32,
}

impl Window {
    pub(super) fn new(size: u32) -> Window {
        Window {
            left: WINDOW_LEN,
            due: size.saturating_sub(WINDOW_LEN),
            size: size.max(WINDOW_LEN),
        }
    }

    /// So many bytes came; false if they may not.
    pub(super) fn take(&mut self, len: u32) -> bool {
        let left = self.left.checked_sub(len);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// So many bytes were taken. What is to be said to the peer, if it is worth a frame.
    pub(super) fn give(&mut self, len: u32) -> Option<u32> {
        self.due += len;
        if self.due < self.size / 2 {
            return None;
        }
        self.flush()
    }

    /// What is to be said to the peer.
    pub(super) fn flush(&mut self) -> Option<u32> {
        let due = core::mem::take(&mut self.due);
        self.left += due;
        (due > 0).then_some(due)
    }

    /// Makes it larger; the peer is told with what is given back next.
    pub(super) fn grow(&mut self, size: u32) {
        self.due += size.saturating_sub(self.size);
        self.size = self.size.max(size);
    }
}

/// What a round trip of the path carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// Bytes that came since the PING that is under way, or since the last.
    came: u32,
    is_asked: bool,
    /// The size that a stream's window is given.
    pub(super) size: u32,
}

impl Estimate {
    pub(super) const NEW: Estimate = Estimate {
        came: 0,
        is_asked: false,
        size: WINDOW_LEN,
    };

    /// Bytes came. Whether a PING is to be sent.
    pub(super) fn came(&mut self, len: u32, size_max: u32) -> bool {
        self.came = self.came.saturating_add(len);
        // Not for short bodies, and once for half a window at most.
        let asks = !self.is_asked && self.size < size_max && self.came > self.size / 2;
        if asks {
            self.is_asked = true;
            self.came = 0;
        }
        asks
    }

    /// The answer has come. Whether windows grow.
    pub(super) fn answered(&mut self, size_max: u32) -> bool {
        let was_asked = core::mem::replace(&mut self.is_asked, false);
        // What is given back at the half may come twice in a round trip, so the half is a limit already.
        let grows = was_asked && self.came >= self.size / 2 && self.size < size_max;
        if grows {
            self.size = self.size.saturating_mul(2).min(size_max);
        }
        self.came = 0;
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_back_by_halves() {
        let mut window = Window::new(WINDOW_LEN);
        assert!(window.take(65_535) && !window.take(1));
        assert_eq!(window.give(30_000), None);
        assert_eq!(window.give(10_000), Some(40_000));
        assert!(window.take(40_000) && !window.take(1));
        window.grow(131_070);
        assert_eq!(window.give(1), Some(65_536));
    }

    #[test]
    fn it_grows_while_it_limits_the_peer_and_not_beyond() {
        let (mut estimate, max) = (Estimate::NEW, 200_000);
        assert!(!estimate.came(100, max), "a short body");
        assert!(estimate.came(60_000, max));
        assert!(!estimate.came(60_000, max), "asked already");
        assert!(estimate.answered(max));
        assert_eq!(estimate.size, 131_070);
        assert!(estimate.came(100_000, max));
        assert!(!estimate.came(1000, max) && !estimate.answered(max));
        assert!(estimate.came(70_000, max) && !estimate.came(131_070, max));
        assert!(estimate.answered(max));
        assert_eq!(estimate.size, 200_000);
        assert!(!estimate.came(1_000_000, max) && !estimate.answered(max));
    }
}
