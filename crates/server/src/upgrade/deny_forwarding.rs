//! The deny list between the processes of an upgrade: a predecessor still has connections while it drains, and would not know
//! addresses that are denied later. Each process has channels to all earlier ones, since they may end in any order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_child_processes::message::MessageError;
use lowroad_engine::panic_policy;

use super::messages::{HandoverChannel, ToPredecessor};
use crate::deny_list::{DenyList, DenyRecord};
use crate::running_server::{RunningServer, lock};

/// Entries in one message: some kilobytes.
pub(super) const RECORDS_OF_MESSAGE: usize = 100;

/// Sends deny lists to the processes that this one has replaced.
pub struct DenyForwarder {
    /// The processes that may still drain.
    channels: Mutex<Vec<HandoverChannel>>,
}

impl DenyForwarder {
    /// Sends by these channels.
    pub fn new(channels: Vec<HandoverChannel>) -> DenyForwarder {
        DenyForwarder {
            channels: Mutex::new(channels),
        }
    }

    /// The channels to processes that have not ended, for the next successor: this process may end before them.
    pub fn open_channels(&self) -> Vec<HandoverChannel> {
        let channels = self.lock_channels();
        let open = channels.iter().filter(|channel| !channel.is_closed());
        open.cloned().collect()
    }

    fn forward(&self, running: &Mutex<RunningServer>) {
        let mut channels = self.lock_channels();
        // Read under the channels' lock, so that the list that is sent last is the latest one.
        let records = lock(running).deny.records();
        // A process of an earlier version receives nothing, and must not delay each change.
        channels.retain(|channel| send(channel, &records).is_ok());
    }

    fn lock_channels(&self) -> MutexGuard<'_, Vec<HandoverChannel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the deny list in force to processes that may still have connections. Blocks while they are busy, so the caller must
/// not hold the server's lock.
pub fn forward(running: &Mutex<RunningServer>) {
    let forwarder = lock(running).deny_forwarder.clone();
    if let Some(forwarder) = forwarder {
        forwarder.forward(running);
    }
}

/// Applies the deny lists that a successor sends, until one of the two processes ends.
///
/// # Errors
/// No thread is available.
pub(super) fn follow(
    channel: HandoverChannel,
    running: Arc<Mutex<RunningServer>>,
) -> std::io::Result<()> {
    panic_policy::start("deny-list", move || {
        let mut records = Vec::new();
        loop {
            match channel.receive::<ToPredecessor>() {
                Ok((ToPredecessor::Denied(more), _)) => records.extend(more),
                Ok((ToPredecessor::DenyListComplete, _)) => {
                    apply(&running, &std::mem::take(&mut records));
                }
                Ok(_) | Err(MessageError::NotReady) => {}
                Err(_) => return,
            }
        }
    })
}

fn apply(running: &Mutex<RunningServer>, records: &[DenyRecord]) {
    let mut running = lock(running);
    running.deny = DenyList::from_records(records);
    // The successor does not wait for the workers of this process.
    drop(running.switch_deny_list());
}

fn send(channel: &HandoverChannel, records: &[DenyRecord]) -> Result<(), MessageError> {
    for part in records.chunks(RECORDS_OF_MESSAGE) {
        channel.send(&ToPredecessor::Denied(part.to_vec()), None)?;
    }
    channel.send(&ToPredecessor::DenyListComplete, None)
}
