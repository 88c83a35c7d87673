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
    /// The processes that may still drain. Locked briefly, also while the server's lock is held; never while a message is
    /// sent, which blocks as long as a process is busy.
    channels: Mutex<Vec<HandoverChannel>>,
    /// Held while a list is sent.
    sending: Mutex<()>,
}

impl DenyForwarder {
    /// Sends by these channels.
    pub fn new(channels: Vec<HandoverChannel>) -> DenyForwarder {
        DenyForwarder {
            channels: Mutex::new(channels),
            sending: Mutex::default(),
        }
    }

    /// The channels to processes that have not ended, for the next successor: this process may end before them.
    pub fn open_channels(&self) -> Vec<HandoverChannel> {
        let channels = self.lock_channels();
        let open = channels.iter().filter(|channel| !channel.is_closed());
        open.cloned().collect()
    }

    /// Sends the list that `records` reads. Lists are read and sent one after the other, so that the one that is sent last
    /// is the latest.
    fn forward(&self, records: impl FnOnce() -> Vec<DenyRecord>) {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let records = records();
        let channels = self.lock_channels().clone();
        let results: Vec<bool> = channels
            .iter()
            .map(|channel| send(channel, &records).is_ok())
            .collect();
        // A process of an earlier version receives nothing, and must not delay each change. Only this function removes
        // channels, so that the results still belong to them.
        let mut results = results.into_iter();
        self.lock_channels()
            .retain(|_| results.next().unwrap_or(true));
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
        forwarder.forward(|| lock(running).deny.records());
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// An upgrade asks for the channels under the server's lock, which a change waits for to read the list.
    #[test]
    fn channels_are_available_while_a_list_is_read() {
        let (sender, receiver) = channel();
        // On a thread, so that a deadlock fails this test and not the run.
        thread::spawn(move || {
            let forwarder = DenyForwarder::new(Vec::new());
            forwarder.forward(|| {
                let _ = sender.send(forwarder.open_channels().len());
                Vec::new()
            });
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(0));
    }
}
