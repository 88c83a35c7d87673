//! The counters and the log of the whole machine, whichever core is asked: this one's as they are, the others' as they
//! have shown them last. Knows no counter by name.

use alloc::string::String;
use alloc::vec::Vec;

use crate::cores::{self, Cores};
use crate::journal::Journal;
use crate::log::Log;

/// What is sent of the log, and what a core shows of its own.
pub const LOG_LEN_MAX: usize = 48 << 10;
const _: () = assert!(LOG_LEN_MAX / 8 + 4 <= cores::LOG_WORDS_MAX);

/// The machine, as one core sees it.
#[derive(Clone, Copy)]
pub struct Whole(pub Option<(&'static Cores, u16)>);

impl Whole {
    /// The other cores.
    fn others(self) -> impl Iterator<Item = (&'static Cores, u16)> {
        let cores = self.0.into_iter();
        cores.flat_map(|(cores, own)| {
            let all = (0..cores.count()).filter(move |core| *core != own);
            all.map(move |core| (cores, core))
        })
    }

    /// Adds to this core's numbers those of the others, which have the same in the same order.
    pub fn sum(self, own: &mut [(&'static str, u64)]) {
        let mut words = Vec::new();
        for (cores, core) in self.others() {
            cores.numbers(core).read(&mut words);
            for (own, other) in own.iter_mut().zip(&words) {
                own.1 = own.1.wrapping_add(*other);
            }
        }
    }

    /// How many cores there are, and what went between them.
    pub fn traffic(self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = self.0.map_or(1, |(cores, _)| cores.count());
        let between = self.0.into_iter().flat_map(|(cores, _)| cores.traffic());
        core::iter::once(("cores", count.into())).chain(between)
    }

    /// The newest lines of all cores.
    pub fn log(self, own: &Journal) -> String {
        let mut log = Log::new(LOG_LEN_MAX);
        log.add(own.newest(LOG_LEN_MAX));
        let mut words = Vec::new();
        for (cores, core) in self.others() {
            cores.log(core).read(&mut words);
            let (old, rest) = cores::bytes(&words);
            let (new, _) = cores::bytes(rest);
            log.add([&old, &new]);
        }
        log.text()
    }
}
