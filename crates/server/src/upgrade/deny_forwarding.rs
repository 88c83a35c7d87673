//! The deny list between the processes of an upgrade: a predecessor still has connections while it drains, and would not know
//! addresses that are denied later. Each process has channels to all earlier ones, since they may end in any order.
//!
//! Last writer wins: each list has the time at which it was read, and a process applies no older one. A thread for each
//! process sends the latest list as soon as that process reads; a process that is stopped delays no change, and gets the
//! list in force once it continues.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_child_processes::message::MessageError;
use lowroad_engine::panic_policy;
use lowroad_store::clock;
use serde::{Deserialize, Serialize};

use super::messages::{HandoverChannel, ToPredecessor};
use crate::deny_list::{DenyList, DenyRecord};
use crate::running_server::{RunningServer, lock};

/// Entries in one message: some kilobytes.
pub(super) const RECORDS_OF_MESSAGE: usize = 100;

/// The interval of checks for the end of the other process.
const END_CHECK: Duration = Duration::from_secs(10);

/// A part of the deny list that was in force at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenyListPart {
    /// When the list was read, by the monotonic clock, which all processes share.
    read_us: u64,
    records: Vec<DenyRecord>,
    /// The parts of this time are the whole list.
    is_last: bool,
}

/// Sends deny lists to the processes that this one has replaced.
pub struct DenyForwarder {
    /// The processes that may still drain. Locked briefly, also while the server's lock is held.
    links: Mutex<Vec<Arc<PredecessorLink>>>,
}

/// The channel to one process.
struct PredecessorLink {
    channel: HandoverChannel,
    /// The list has changed since it was last read for this process.
    is_changed: Mutex<bool>,
    changed: Condvar,
}

impl DenyForwarder {
    /// Sends the list that `read` returns by these channels: now, and after each [`DenyForwarder::notify`]. Nothing is sent
    /// while it returns `None`.
    ///
    /// # Errors
    /// No thread is available.
    pub fn start<R>(channels: Vec<HandoverChannel>, read: R) -> std::io::Result<Arc<DenyForwarder>>
    where
        R: Fn() -> Option<Vec<DenyListPart>> + Clone + Send + 'static,
    {
        let links = channels.into_iter().map(PredecessorLink::new);
        let links: Vec<Arc<PredecessorLink>> = links.collect();
        let forwarder = Arc::new(DenyForwarder {
            links: Mutex::new(links.clone()),
        });
        for link in links {
            let (forwarder, read) = (forwarder.clone(), read.clone());
            panic_policy::start("deny-list", move || {
                link.serve(&read);
                forwarder
                    .lock_links()
                    .retain(|known| !Arc::ptr_eq(known, &link));
            })?;
        }
        Ok(forwarder)
    }

    /// Makes the threads send the list in force.
    pub fn notify(&self) {
        for link in &*self.lock_links() {
            link.notify();
        }
    }

    /// The channels to processes that have not ended, for the next successor: this process may end before them.
    pub fn open_channels(&self) -> Vec<HandoverChannel> {
        let links = self.lock_links();
        let open = links.iter().filter(|link| !link.channel.is_closed());
        open.map(|link| link.channel.clone()).collect()
    }

    fn lock_links(&self) -> MutexGuard<'_, Vec<Arc<PredecessorLink>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PredecessorLink {
    /// A link that has sent nothing: an earlier sender may have ended before its process had read the latest list.
    fn new(channel: HandoverChannel) -> Arc<PredecessorLink> {
        Arc::new(PredecessorLink {
            channel,
            is_changed: Mutex::new(true),
            changed: Condvar::new(),
        })
    }

    fn notify(&self) {
        *self.lock_changed() = true;
        self.changed.notify_one();
    }

    /// Sends lists until the other process ends.
    fn serve(&self, read: &impl Fn() -> Option<Vec<DenyListPart>>) {
        while self.wait_for_change() {
            for part in read().into_iter().flatten() {
                match self.send(part) {
                    Ok(()) => {}
                    // The other process drops the rest of a list when a newer one begins.
                    Err(MessageError::NotReady) => break,
                    Err(_) => return,
                }
            }
        }
    }

    /// Sends a part.
    ///
    /// # Errors
    /// The other process has ended, or has not read in time and the list has changed meanwhile.
    fn send(&self, part: DenyListPart) -> Result<(), MessageError> {
        let message = ToPredecessor::DenyList(part);
        loop {
            // The timeout of the channel ends a send now and then, so that a newer list replaces this one.
            match self.channel.send(&message, None) {
                Err(MessageError::NotReady) if !*self.lock_changed() => {}
                sent => return sent,
            }
        }
    }

    /// Waits until the list has changed. Returns false once the other process has ended.
    fn wait_for_change(&self) -> bool {
        let mut is_changed = self.lock_changed();
        while !std::mem::take(&mut *is_changed) {
            if self.channel.is_closed() {
                return false;
            }
            let waited = self.changed.wait_timeout(is_changed, END_CHECK);
            (is_changed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    fn lock_changed(&self) -> MutexGuard<'_, bool> {
        self.is_changed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of the list in force. `None` while a successor starts or has taken over, which then sends its own list.
pub fn parts_in_force(running: &Mutex<RunningServer>) -> Option<Vec<DenyListPart>> {
    let running = lock(running);
    let is_own = !running.is_handing_over;
    // The time is read with the server's lock, so that a later list has a later time.
    is_own.then(|| parts(clock::monotonic_us(), &running.deny.records()))
}

/// Divides a list into messages.
fn parts(read_us: u64, records: &[DenyRecord]) -> Vec<DenyListPart> {
    let part = |records: &[DenyRecord]| DenyListPart {
        read_us,
        records: records.to_vec(),
        is_last: false,
    };
    let mut parts: Vec<DenyListPart> = records.chunks(RECORDS_OF_MESSAGE).map(part).collect();
    let end = DenyListPart {
        is_last: true,
        ..part(&[])
    };
    parts.push(end);
    parts
}

/// Applies the deny lists that successors send, until one of the two processes ends.
///
/// # Errors
/// No thread is available.
pub(super) fn follow(
    channel: HandoverChannel,
    running: Arc<Mutex<RunningServer>>,
) -> std::io::Result<()> {
    panic_policy::start("deny-list", move || {
        let mut incoming = IncomingList::default();
        loop {
            match channel.receive::<ToPredecessor>() {
                Ok((ToPredecessor::DenyList(part), _)) => {
                    if let Some(records) = incoming.add(part) {
                        apply(&running, &records);
                    }
                }
                Ok(_) | Err(MessageError::NotReady) => {}
                Err(_) => return,
            }
        }
    })
}

/// The list of which parts arrive. Several processes may send to this one: a successor, and its own successor.
#[derive(Default)]
struct IncomingList {
    read_us: u64,
    records: Vec<DenyRecord>,
}

impl IncomingList {
    /// Adds a part. Returns the list once it is complete, unless a newer one has begun.
    fn add(&mut self, part: DenyListPart) -> Option<Vec<DenyRecord>> {
        if part.read_us < self.read_us {
            return None;
        }
        // The rest of the earlier list will not come, or is out of date.
        if part.read_us > self.read_us {
            self.records.clear();
            self.read_us = part.read_us;
        }
        self.records.extend(part.records);
        part.is_last.then(|| std::mem::take(&mut self.records))
    }
}

fn apply(running: &Mutex<RunningServer>, records: &[DenyRecord]) {
    let mut running = lock(running);
    running.deny = DenyList::from_records(records);
    // The successor does not wait for the workers of this process.
    drop(running.switch_deny_list());
}

#[cfg(test)]
mod tests;
