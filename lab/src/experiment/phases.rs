//! Paper `003`, figures 15 and 16: the phases of talking to a database, as a page of the server tells
//! them (`phases.php`), asked now and then while the load is on. It knows no database.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::fetch::get;
use crate::load::ExternalClock;

/// The page, by file name and text.
pub const PAGE: (&str, &str) = ("phases.php", include_str!("phases.php"));

/// Time between two questions, by the clock.
const BETWEEN: Duration = Duration::from_millis(100);
/// The same where time is a guest's, of which less is measured.
const BETWEEN_GUEST_NS: u64 = 25_000_000;
/// How often is looked what time it is there.
const LOOK: Duration = Duration::from_millis(1);

/// When it is time for the next question.
pub enum ProbeSchedule {
    /// So often by the clock.
    ByTheClock,
    /// So often in the time of a guest, as long as that is in steps.
    ByTime(Weak<dyn ExternalClock>),
}

/// Asks until it is told to end.
pub struct StatusProbe {
    end: Sender<()>,
    thread: JoinHandle<MeanTable>,
}

impl StatusProbe {
    /// Begins to ask a server for a dataset's phases.
    #[must_use]
    pub fn start(address: SocketAddr, set: &str, asks: ProbeSchedule) -> Self {
        let (end, ended) = channel::<()>();
        let set = set.to_owned();
        let goes_on = move |pause| ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
        let thread = std::thread::spawn(move || {
            let mut means = MeanTable::default();
            while asks.wait(&goes_on) {
                means.add(ask(address, &set).unwrap_or_default());
            }
            means
        });
        Self { end, thread }
    }

    /// Ends, with the mean of each phase in microseconds; empty if the server has no such page.
    #[must_use]
    pub fn end(self) -> BTreeMap<String, f64> {
        drop(self.end);
        self.thread.join().map(MeanTable::all).unwrap_or_default()
    }
}

impl ProbeSchedule {
    /// Waits until the next question is due, as long as `goes_on`, which is asked after each pause. Whether it is due.
    fn wait(&self, goes_on: &dyn Fn(Duration) -> bool) -> bool {
        let time = match self {
            ProbeSchedule::ByTheClock => return goes_on(BETWEEN),
            ProbeSchedule::ByTime(time) => time,
        };
        let now_ns = || time.upgrade().map(|time| time.now_ns());
        let Some(since_ns) = now_ns() else {
            return false;
        };
        while goes_on(LOOK) {
            match now_ns() {
                Some(now_ns) if now_ns < since_ns + BETWEEN_GUEST_NS => {}
                now => return now.is_some(),
            }
        }
        false
    }
}

/// Sums by name.
#[derive(Default)]
struct MeanTable(BTreeMap<String, (f64, u32)>);

impl MeanTable {
    fn add(&mut self, times: BTreeMap<String, f64>) {
        for (name, time) in times {
            let (sum, count) = self.0.entry(name).or_default();
            *sum += time;
            *count += 1;
        }
    }

    fn all(self) -> BTreeMap<String, f64> {
        let mean = |(name, (sum, count)): (String, (f64, u32))| (name, sum / f64::from(count));
        self.0.into_iter().map(mean).collect()
    }
}

/// One question; `None` if there is no answer, which the load generator's errors tell better.
fn ask(address: SocketAddr, set: &str) -> Option<BTreeMap<String, f64>> {
    let body = get(address, &format!("/{}?set={set}", PAGE.0)).ok()?;
    Some(parse(&String::from_utf8_lossy(&body)))
}

/// The times of a page: lines of a name that ends in `_us` and a number.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, time) = line.trim().split_once(' ')?;
        let time: f64 = time.parse().ok()?;
        (name.ends_with("_us") && time.is_finite()).then(|| (name.to_owned(), time))
    };
    page.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let page = "handshake_us 12.5\nodd\nx 1\ntabular_us nan\n";
        assert_eq!(parse(page), [("handshake_us".to_owned(), 12.5)].into());
        assert!(parse("").is_empty());
    }

    #[test]
    fn means() {
        let mut means = MeanTable::default();
        means.add([("a_us".to_owned(), 1.0)].into());
        means.add(BTreeMap::new());
        means.add([("a_us".to_owned(), 4.0)].into());
        assert_eq!(means.all(), [("a_us".to_owned(), 2.5)].into());
    }
}
