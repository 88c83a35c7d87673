//! The server's deny list for its level, which drops SYNs of denied clients. The list is sent to each daemon that has
//! attached, after each change, and when an entry has ended. A daemon without the current list passes those clients to
//! the server, which refuses them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lowroad_child_processes::message::{MessageError, PacketChannel};
use lowroad_softirq::level::clients::ClientPrefix;
use lowroad_store::clock::unix_s;
use rustix::io::Errno;

use super::offers::{self, ToDaemon};
use crate::deny_list::{DenyEntry, DenyList};

/// Pause before a list is sent again after the channel was full.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The deny list, and whether the daemon has it.
#[derive(Default)]
pub struct DenialFeed {
    state: Mutex<FeedState>,
    changed: Condvar,
}

#[derive(Default)]
struct FeedState {
    list: DenyList,
    /// Whether a daemon has attached that has not received the list.
    is_pending: bool,
    is_attached: bool,
}

impl DenialFeed {
    /// Sets the list.
    pub fn set(&self, list: DenyList) {
        let mut state = self.state();
        state.list = list;
        state.is_pending = state.is_attached;
        self.changed.notify_all();
    }

    /// Records that a daemon has attached its level, without any list.
    pub fn record_attached(&self) {
        let mut state = self.state();
        state.is_attached = true;
        // A level without denied clients needs no list.
        state.is_pending = !state.list.entries().is_empty();
        self.changed.notify_all();
    }

    /// Waits until the daemon needs the list. Returns the prefixes in force.
    fn next(&self) -> Vec<ClientPrefix> {
        let mut state = self.state();
        loop {
            let unix_s = unix_s();
            if let Some(prefixes) = state.take(unix_s) {
                return prefixes;
            }
            state = match state.next_end(unix_s) {
                None => self.changed.wait(state),
                // The clock may be set meanwhile, so the wait is not longer than a minute.
                Some(wait_s) => self
                    .changed
                    .wait_timeout(state, Duration::from_secs(wait_s.min(60)))
                    .map(|(state, _)| state)
                    .map_err(|error| PoisonError::new(error.into_inner().0)),
            }
            .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeedState {
    /// The prefixes in force, if the daemon does not have them.
    fn take(&mut self, unix_s: u64) -> Option<Vec<ClientPrefix>> {
        let len = self.list.entries().len();
        self.list.remove_ended(unix_s);
        let has_ended = self.list.entries().len() < len;
        let is_needed = self.is_pending || has_ended && self.is_attached;
        if !is_needed {
            return None;
        }
        self.is_pending = false;
        let entries = self.list.entries().iter();
        Some(entries.map(|entry| entry.prefix.mapped()).collect())
    }

    /// The seconds until the first entry ends.
    fn next_end(&self, unix_s: u64) -> Option<u64> {
        let ends = self
            .list
            .entries()
            .iter()
            .filter_map(|entry: &DenyEntry| entry.until_s);
        ends.min().map(|end_s| end_s.saturating_sub(unix_s))
    }
}

/// Sends the list whenever the daemon needs it, until the channel is closed.
pub fn report(channel: &PacketChannel, feed: &DenialFeed) {
    loop {
        let message = ToDaemon::Denied(feed.next());
        loop {
            match offers::send(channel, &message) {
                Ok(()) => break,
                Err(
                    MessageError::NotReady | MessageError::System(Errno::NOBUFS | Errno::NOMEM),
                ) => thread::sleep(RETRY_PAUSE),
                // The channel is closed. The thread that reads the processes' output reports their end.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, Option<u64>)]) -> DenyList {
        let mut list = DenyList::default();
        let entries = entries
            .iter()
            .map(|(address, until_s)| DenyEntry::new(address, *until_s).expect("an entry"));
        list.add(entries);
        list
    }

    #[test]
    fn each_daemon_gets_the_list_once_and_again_after_changes_and_ends() {
        let feed = DenialFeed::default();
        let take = |unix_s| feed.state().take(unix_s).map(|prefixes| prefixes.len());
        feed.set(list(&[("10.0.0.0/8", None), ("2001:db8::1", Some(100))]));
        assert_eq!(take(0), None, "no daemon is attached");
        feed.record_attached();
        assert_eq!((take(1), take(1)), (Some(2), None));
        assert_eq!(feed.state().next_end(1), Some(99));
        feed.record_attached();
        assert_eq!((take(2), take(99)), (Some(2), None));
        assert_eq!((take(100), take(101)), (Some(1), None));
        assert_eq!(feed.state().next_end(101), None);
        feed.set(DenyList::default());
        assert_eq!((take(102), take(103)), (Some(0), None));
        feed.record_attached();
        assert_eq!(take(104), None, "a new level has no list");
    }

    #[test]
    fn ipv4_prefixes_are_sent_in_ipv6_form() {
        let feed = DenialFeed::default();
        feed.set(list(&[("10.1.0.0/16", None)]));
        feed.record_attached();
        let mut address = [0; 16];
        address[10..14].copy_from_slice(&[0xff, 0xff, 10, 1]);
        assert_eq!(feed.next(), [(112, address)]);
    }
}
