//! Flow control of received data: a window that is returned as its bytes are consumed, and that grows with the
//! bandwidth-delay product. Read RFC 9113 §5.2 and §6.9.
//!
//! The bandwidth-delay product is estimated without a clock (`BdpEstimate`): a PING is sent when data arrives; the
//! bytes received until its acknowledgement are those of one round trip. If they nearly fill the window, the window
//! limits the rate, and is doubled.

use super::settings::WINDOW_LEN;

/// The receive window of a stream or connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowControlWindow {
    /// Bytes that may still be received.
    available: u32,
    /// Bytes that were consumed but not yet returned to the peer.
    unreleased: u32,
    /// The full size.
    size: u32,
}

impl FlowControlWindow {
    pub(super) fn new(size: u32) -> FlowControlWindow {
        FlowControlWindow {
            available: WINDOW_LEN,
            // The part above the initial size is granted with the first update.
            unreleased: size.saturating_sub(WINDOW_LEN),
            size: size.max(WINDOW_LEN),
        }
    }

    /// Receives `len` bytes; false if they exceed the window.
    pub(super) fn take(&mut self, len: u32) -> bool {
        let available = self.available.checked_sub(len);
        self.available = available.unwrap_or_default();
        available.is_some()
    }

    /// Consumes `len` bytes. Returns the increment to send, if it is large enough to be worth a frame.
    pub(super) fn release(&mut self, len: u32) -> Option<u32> {
        self.unreleased += len;
        // A few large updates suffice: the peer can meanwhile use the other half of the window.
        if self.unreleased < self.size / 2 {
            return None;
        }
        self.flush()
    }

    /// The increment to send, even if it is small.
    pub(super) fn flush(&mut self) -> Option<u32> {
        let increment = core::mem::take(&mut self.unreleased);
        self.available += increment;
        (increment > 0).then_some(increment)
    }

    /// Enlarges the window; the increment is sent with the next update.
    pub(super) fn grow(&mut self, size: u32) {
        self.unreleased += size.saturating_sub(self.size);
        self.size = self.size.max(size);
    }
}

/// The estimate of the bandwidth-delay product.
#[derive(Clone, Copy, Debug)]
pub(super) struct BdpEstimate {
    /// Bytes received since the PING in flight, or since the last one.
    received: u32,
    is_ping_sent: bool,
    /// The size of a stream's window.
    pub(super) size: u32,
}

impl BdpEstimate {
    pub(super) const NEW: BdpEstimate = BdpEstimate {
        received: 0,
        is_ping_sent: false,
        size: WINDOW_LEN,
    };

    /// Counts received bytes. Returns whether to send a PING.
    pub(super) fn record_received(&mut self, len: u32, size_max: u32) -> bool {
        self.received = self.received.saturating_add(len);
        // No PING is sent for short bodies, and at most one for half a window of data.
        let should_ping =
            !self.is_ping_sent && self.size < size_max && self.received > self.size / 2;
        if should_ping {
            self.is_ping_sent = true;
            self.received = 0;
        }
        should_ping
    }

    /// Handles the acknowledgement. Returns whether windows grow.
    pub(super) fn handle_ping_ack(&mut self, size_max: u32) -> bool {
        let was_ping_sent = core::mem::replace(&mut self.is_ping_sent, false);
        // Window updates are sent at half the window, so half a window in a round trip already shows that the window
        // limits the rate.
        let grows = was_ping_sent && self.received >= self.size / 2 && self.size < size_max;
        if grows {
            self.size = self.size.saturating_mul(2).min(size_max);
        }
        self.received = 0;
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_returned_in_halves() {
        let mut window = FlowControlWindow::new(WINDOW_LEN);
        assert!(window.take(65_535) && !window.take(1));
        assert_eq!(window.release(30_000), None);
        assert_eq!(window.release(10_000), Some(40_000));
        assert!(window.take(40_000) && !window.take(1));
        window.grow(131_070);
        assert_eq!(window.release(1), Some(65_536));
    }

    #[test]
    fn window_grows_while_it_limits_the_peer_up_to_the_maximum() {
        // The window must stay bounded even on an infinitely fast path.
        let (mut estimate, max) = (BdpEstimate::NEW, 200_000);
        assert!(!estimate.record_received(100, max), "a short body");
        assert!(estimate.record_received(60_000, max));
        assert!(!estimate.record_received(60_000, max), "asked already");
        assert!(estimate.handle_ping_ack(max));
        assert_eq!(estimate.size, 131_070);
        assert!(estimate.record_received(100_000, max));
        assert!(!estimate.record_received(1000, max) && !estimate.handle_ping_ack(max));
        assert!(estimate.record_received(70_000, max) && !estimate.record_received(131_070, max));
        assert!(estimate.handle_ping_ack(max));
        assert_eq!(estimate.size, 200_000);
        assert!(!estimate.record_received(1_000_000, max) && !estimate.handle_ping_ack(max));
    }
}
