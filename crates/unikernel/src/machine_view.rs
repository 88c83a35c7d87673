//! The counters and the log of the whole machine, as one core sees them: its own state is current, that of the other
//! cores is the last one that they published.

use alloc::string::String;
use alloc::vec::Vec;

use crate::cores::{self, CoreSet};
use crate::journal::RequestJournal;
use crate::log::LogRing;

/// Maximum length of the log in a response, and of the part that each core publishes.
pub const LOG_LEN_MAX: usize = 48 << 10;
const _: () = assert!(LOG_LEN_MAX / 8 + 4 <= cores::LOG_WORDS_MAX);

/// The view of one core; `None` on a machine with one core.
#[derive(Clone, Copy)]
pub struct MachineView(pub Option<(&'static CoreSet, u16)>);

impl MachineView {
    /// The other cores.
    fn other_cores(self) -> impl Iterator<Item = (&'static CoreSet, u16)> {
        let cores = self.0.into_iter();
        cores.flat_map(|(cores, current)| {
            let all = (0..cores.count()).filter(move |core| *core != current);
            all.map(move |core| (cores, core))
        })
    }

    /// Adds the counters of the other cores to `totals`. All cores have the same counters in the same order.
    pub fn sum(self, totals: &mut [(&'static str, u64)]) {
        let mut words = Vec::new();
        for (cores, core) in self.other_cores() {
            cores.numbers(core).read(&mut words);
            for (total, other) in totals.iter_mut().zip(&words) {
                // All cores publish the same counters in the same order, so names are not compared.
                total.1 = total.1.wrapping_add(*other);
            }
        }
    }

    /// The number of cores, and the counters of frames between them.
    pub fn traffic(self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = self.0.map_or(1, |(cores, _)| cores.count());
        let cross_core = self.0.into_iter().flat_map(|(cores, _)| cores.traffic());
        core::iter::once(("cores", count.into())).chain(cross_core)
    }

    /// The newest lines of the logs of all cores.
    pub fn log(self, journal: &RequestJournal) -> String {
        let mut log = LogRing::new(LOG_LEN_MAX);
        log.add(journal.newest(LOG_LEN_MAX));
        let mut words = Vec::new();
        for (cores, core) in self.other_cores() {
            cores.log(core).read(&mut words);
            let (old, rest) = cores::bytes(&words);
            let (new, _) = cores::bytes(rest);
            log.add([&old, &new]);
        }
        log.text()
    }
}
