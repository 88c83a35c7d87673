//! Counters of requests.

use core::ops::Index;

/// Each line of the table below defines a variant of the enum and the name of the counter.
macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum UnikernelCounter {
            $($(#[$doc])* $variant,)*
        }

        const NAMES: &[&str] = &[$($name),*];
        const COUNT: usize = NAMES.len();
    };
}

counters! {
    /// Client connections that were opened.
    Connections "http_connections";
    /// Complete requests.
    Requests "http_requests";
    /// Invalid requests.
    RequestsRefused "http_requests_refused";
    /// Incomplete heads at the timeout, answered with 408.
    HeadTimeouts "http_head_timeouts";
    /// Bytes of response heads and bodies.
    BytesSent "http_bytes_sent";
    /// Connections that were reset because no buffer was free for a response.
    AnswersWithoutMemory "http_answers_without_memory";
    /// Requests for pages that got 503 because the queue was full.
    PagesRefused "pages_refused";
    /// Pages that failed.
    PagesFailed "pages_failed";
}

/// The counters.
pub struct UnikernelCounters([u64; COUNT]);

impl Default for UnikernelCounters {
    fn default() -> UnikernelCounters {
        UnikernelCounters([0; COUNT])
    }
}

impl UnikernelCounters {
    /// Increments a counter.
    #[inline]
    pub fn add(&mut self, counter: UnikernelCounter) {
        self.add_all(counter, 1);
    }

    /// Adds to a counter.
    #[inline]
    pub fn add_all(&mut self, counter: UnikernelCounter, count: u64) {
        self.0[counter as usize] += count;
    }

    /// Names and values.
    pub fn with_names(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().copied().zip(self.0)
    }
}

impl Index<UnikernelCounter> for UnikernelCounters {
    type Output = u64;

    fn index(&self, counter: UnikernelCounter) -> &u64 {
        &self.0[counter as usize]
    }
}
