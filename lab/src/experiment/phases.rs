//! Paper `003`, figures 15 and 16: the phases of a database query. A page of the server (`phases.php`) reports them and
//! is requested periodically under load. Independent of the database.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::fetch::get;
use crate::load::ExternalClock;

/// File name and text of the page.
pub const PAGE: (&str, &str) = ("phases.php", include_str!("phases.php"));

/// Interval between requests by the clock.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval between requests in a guest's virtual time, where measurements are shorter.
const INTERVAL_GUEST_NS: u64 = 25_000_000;
/// Interval at which the guest's clock is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The schedule of the requests for the page.
pub enum ProbeSchedule {
    /// Periodically by the clock.
    ByTheClock,
    /// Periodically in the virtual time of a guest, while it is stepped.
    ByTime(Weak<dyn ExternalClock>),
}

/// Requests the page periodically, until ended.
pub struct StatusProbe {
    end: Sender<()>,
    thread: JoinHandle<MeanTable>,
}

impl StatusProbe {
    /// Starts requesting a dataset's phases from a server.
    #[must_use]
    pub fn start(address: SocketAddr, set: &str, schedule: ProbeSchedule) -> Self {
        let (end_sender, end_receiver) = channel::<()>();
        let set = set.to_owned();
        // The sender never sends. A timeout continues the loop; dropping the sender ends the probe.
        let wait_unless_ended =
            move |pause| end_receiver.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
        let thread = std::thread::spawn(move || {
            let mut means = MeanTable::default();
            while schedule.wait(&wait_unless_ended) {
                means.add(fetch_status(address, &set).unwrap_or_default());
            }
            means
        });
        Self {
            end: end_sender,
            thread,
        }
    }

    /// Ends the probe and returns the mean of each phase in microseconds; empty if the server has no such page.
    #[must_use]
    pub fn end(self) -> BTreeMap<String, f64> {
        // Disconnects the channel, which ends the thread's pause immediately.
        drop(self.end);
        self.thread.join().map(MeanTable::means).unwrap_or_default()
    }
}

impl ProbeSchedule {
    /// Waits until the next request is due. Calls `wait_unless_ended` with each pause; if it returns false, the wait
    /// ends. Returns whether the request is due.
    fn wait(&self, wait_unless_ended: &dyn Fn(Duration) -> bool) -> bool {
        let time = match self {
            ProbeSchedule::ByTheClock => return wait_unless_ended(INTERVAL),
            ProbeSchedule::ByTime(time) => time,
        };
        let now_ns = || time.upgrade().map(|time| time.now_ns());
        // The clock is referenced weakly: it must end with the run, so that the guest then runs freely.
        let Some(since_ns) = now_ns() else {
            return false;
        };
        while wait_unless_ended(POLL_INTERVAL) {
            match now_ns() {
                Some(now_ns) if now_ns < since_ns + INTERVAL_GUEST_NS => {}
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

    fn means(self) -> BTreeMap<String, f64> {
        let mean = |(name, (sum, count)): (String, (f64, u32))| (name, sum / f64::from(count));
        self.0.into_iter().map(mean).collect()
    }
}

/// Sends one request. Returns `None` without a response, since the load generator reports errors better.
fn fetch_status(address: SocketAddr, set: &str) -> Option<BTreeMap<String, f64>> {
    let body = get(address, &format!("/{}?set={set}", PAGE.0)).ok()?;
    Some(parse(&String::from_utf8_lossy(&body)))
}

/// Parses the page: lines with a name that ends in `_us`, and a number.
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
    fn phase_lines_are_parsed() {
        let page = "handshake_us 12.5\nodd\nx 1\ntabular_us nan\n";
        assert_eq!(parse(page), [("handshake_us".to_owned(), 12.5)].into());
        assert!(parse("").is_empty());
    }

    #[test]
    fn phase_means_are_computed() {
        let mut means = MeanTable::default();
        means.add([("a_us".to_owned(), 1.0)].into());
        means.add(BTreeMap::new());
        means.add([("a_us".to_owned(), 4.0)].into());
        assert_eq!(means.means(), [("a_us".to_owned(), 2.5)].into());
    }
}
