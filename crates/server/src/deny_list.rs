//! The deny list: client addresses that operators refuse while the server runs. Workers have a compiled copy; see
//! [`lowroad_limits::DeniedAddresses`].

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lowroad_config::AddressPrefix;
use lowroad_engine::worker::MailboxMessage;
use lowroad_limits::{DeniedAddresses, DeniedPrefix};
use serde::{Deserialize, Serialize};

use crate::running_server::WorkerBox;

/// The maximum number of entries.
pub const ENTRIES_MAX: usize = 10_000;

/// Maximum wait until all workers use a changed list.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

/// An entry of the deny list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyEntry {
    /// The addresses, without host bits.
    pub prefix: AddressPrefix,
    /// The end in seconds since 1970; `None`: no end.
    pub until_s: Option<u64>,
}

/// The text form of an entry, for other processes and for files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenyRecord {
    /// The address or prefix.
    pub address: String,
    /// As in [`DenyEntry`].
    pub until_s: Option<u64>,
}

impl DenyEntry {
    /// Parses an address or prefix.
    ///
    /// # Errors
    /// It is malformed: a message for the operator.
    pub fn new(address: &str, until_s: Option<u64>) -> Result<DenyEntry, String> {
        let prefix = AddressPrefix::parse(address)
            .map_err(|_| format!("{address:?} is no address and no prefix such as 192.0.2.0/24"))?
            .network();
        // Clients of a dual-stack socket count as IPv4, so that such an entry would match none.
        if prefix.range().start().to_canonical() != *prefix.range().start() {
            return Err(format!(
                "{address} is an IPv4-mapped address: write it as IPv4"
            ));
        }
        Ok(DenyEntry { prefix, until_s })
    }

    /// Whether the entry has not ended.
    pub fn is_in_force(&self, unix_s: u64) -> bool {
        self.until_s.is_none_or(|until_s| unix_s < until_s)
    }

    /// The text form.
    pub fn record(&self) -> DenyRecord {
        DenyRecord {
            address: self.prefix.to_string(),
            until_s: self.until_s,
        }
    }
}

/// The deny list of a running server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenyList {
    /// Sorted by address, each prefix at most once.
    entries: Vec<DenyEntry>,
}

impl DenyList {
    /// The list with the readable ones of these records, at most [`ENTRIES_MAX`].
    pub fn from_records<'r>(records: impl IntoIterator<Item = &'r DenyRecord>) -> DenyList {
        let mut list = DenyList::default();
        let entries = records
            .into_iter()
            .filter_map(|record| DenyEntry::new(&record.address, record.until_s).ok());
        list.add(entries.take(ENTRIES_MAX));
        list
    }

    /// The entries, sorted by address.
    pub fn entries(&self) -> &[DenyEntry] {
        &self.entries
    }

    /// The entries as texts.
    pub fn records(&self) -> Vec<DenyRecord> {
        self.entries.iter().map(DenyEntry::record).collect()
    }

    /// The number of entries in force.
    pub fn len(&self, unix_s: u64) -> usize {
        // Ended entries stay until the next change or reading.
        let entries = self.entries.iter();
        entries.filter(|entry| entry.is_in_force(unix_s)).count()
    }

    /// Removes the entries that have ended.
    pub fn remove_ended(&mut self, unix_s: u64) {
        self.entries.retain(|entry| entry.is_in_force(unix_s));
    }

    /// Adds entries. An entry replaces an earlier one of the same prefix.
    pub fn add(&mut self, entries: impl IntoIterator<Item = DenyEntry>) {
        self.entries.extend(entries);
        let key = |entry: &DenyEntry| {
            let range = entry.prefix.range();
            (*range.start(), *range.end())
        };
        // The sort is stable, so that the latest entry of a prefix is the last one.
        self.entries.sort_by_key(key);
        // `dedup_by_key` keeps the first of equal ones.
        self.entries.reverse();
        self.entries.dedup_by_key(|entry| key(entry));
        self.entries.reverse();
    }

    /// Checks the length.
    ///
    /// # Errors
    /// The list is too long: a message for the operator.
    pub fn check_len(&self) -> Result<(), String> {
        match self.entries.len() {
            len if len > ENTRIES_MAX => Err(format!(
                "the list would have {len} entries, and {ENTRIES_MAX} are allowed"
            )),
            _ => Ok(()),
        }
    }

    /// Removes the entry of a prefix. Returns whether there was one.
    pub fn remove(&mut self, prefix: &AddressPrefix) -> bool {
        let len = self.entries.len();
        self.entries.retain(|entry| entry.prefix != *prefix);
        self.entries.len() < len
    }

    /// Passes the list to the workers, which refuse its addresses and close their connections.
    pub fn post(&self, workers: &[WorkerBox]) -> DenySwitch {
        let (applied, is_applied) = channel();
        let prefixes = self.entries.iter().map(|entry| DeniedPrefix {
            addresses: entry.prefix.range(),
            until_s: entry.until_s,
        });
        let denied = Arc::new(DeniedAddresses::new(prefixes.collect()));
        for worker in workers {
            worker.post(MailboxMessage::Deny(denied.clone(), applied.clone()));
        }
        DenySwitch(is_applied)
    }
}

/// Waits for workers that do not use a list yet. Each of them holds a sender of this channel.
pub struct DenySwitch(Receiver<Infallible>);

impl DenySwitch {
    /// Waits until all workers use the list. Blocks, so the caller must not hold the server's lock.
    pub fn wait(self) {
        // No value is ever sent. A worker that is later than the timeout applies the list as soon as it continues.
        let _ = self.0.recv_timeout(SWITCH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: &str, until_s: Option<u64>) -> DenyEntry {
        DenyEntry::new(address, until_s).expect("an entry")
    }

    fn texts(list: &DenyList) -> Vec<String> {
        let entries = list.entries().iter();
        entries.map(|it| it.prefix.to_string()).collect()
    }

    #[test]
    fn latest_entry_of_a_prefix_counts() {
        let mut list = DenyList::default();
        list.add([
            entry("2001:db8::1", None),
            entry("10.0.0.0/8", Some(5)),
            entry("10.0.0.0/9", None),
        ]);
        list.add([entry("10.1.2.3/8", Some(9))]);
        assert_eq!(texts(&list), ["10.0.0.0/9", "10.0.0.0/8", "2001:db8::1"]);
        assert_eq!(list.entries()[1].until_s, Some(9));
        list.remove_ended(8);
        assert_eq!(list.entries().len(), 3);
        list.remove_ended(9);
        assert_eq!(texts(&list), ["10.0.0.0/9", "2001:db8::1"]);
        assert!(list.remove(&entry("10.0.0.0/9", None).prefix));
        assert!(!list.remove(&entry("10.0.0.0/8", None).prefix));
        assert_eq!(texts(&list), ["2001:db8::1"]);
    }

    #[test]
    fn malformed_addresses_are_refused_and_records_without_use_skipped() {
        for bad in ["", "10.0.0.0/33", "host", "::ffff:10.0.0.1", "10.0.0.1:80"] {
            assert!(DenyEntry::new(bad, None).is_err(), "{bad}");
        }
        let record = |address: &str| DenyRecord {
            address: address.into(),
            until_s: None,
        };
        let records = [record("x"), record("::/0")];
        assert_eq!(texts(&DenyList::from_records(&records)), ["::/0"]);
    }
}
