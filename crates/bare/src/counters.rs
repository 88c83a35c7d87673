//! What is counted of requests. Knows nothing of who shows it.

use core::ops::Index;

/// One line of the table below makes the variant and its name.
macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        const NAMES: &[&str] = &[$($name),*];
        const COUNT: usize = NAMES.len();
    };
}

counters! {
    /// Visitors' connections.
    Connections "http_connections";
    /// Whole requests.
    Requests "http_requests";
    /// What was not a request.
    RequestsRefused "http_requests_refused";
    /// Heads that did not become whole in time.
    HeadTimeouts "http_head_timeouts";
    /// Bytes of heads and bodies.
    BytesSent "http_bytes_sent";
    /// Connections ended since no buffer was free.
    AnswersWithoutMemory "http_answers_without_memory";
    /// Pages that did not begin since too many wait.
    PagesRefused "pages_refused";
    /// Pages that could not be made.
    PagesFailed "pages_failed";
}

/// The counters.
pub struct Counters([u64; COUNT]);

impl Default for Counters {
    fn default() -> Counters {
        Counters([0; COUNT])
    }
}

impl Counters {
    /// One more.
    #[inline]
    pub fn add(&mut self, counter: Counter) {
        self.add_all(counter, 1);
    }

    /// So many more.
    #[inline]
    pub fn add_all(&mut self, counter: Counter, count: u64) {
        self.0[counter as usize] += count;
    }

    /// Names and numbers.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().copied().zip(self.0)
    }
}

impl Index<Counter> for Counters {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter as usize]
    }
}
