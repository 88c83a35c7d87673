use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use lowroad_child_processes::message::PacketChannel;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn record(number: usize) -> DenyRecord {
    DenyRecord {
        address: format!("10.0.{}.{}", number / 256, number % 256),
        until_s: None,
    }
}

fn records(count: usize) -> Vec<DenyRecord> {
    (0..count).map(record).collect()
}

fn pair() -> (HandoverChannel, HandoverChannel) {
    let (own, other) = PacketChannel::pair().expect("sockets");
    let channels = (
        HandoverChannel::new(own),
        HandoverChannel::new(other.into()),
    );
    // Short, so that a process that does not read soon has missed many timeouts.
    let timeout = Duration::from_millis(1);
    channels.0.set_timeout(timeout).expect("a timeout");
    channels
}

/// A list in force that a test changes.
#[derive(Clone, Default)]
struct TestList(Arc<Mutex<(u64, Vec<DenyRecord>)>>);

impl TestList {
    fn set(&self, records: Vec<DenyRecord>) {
        let mut list = self.0.lock().expect("no panic");
        *list = (list.0 + 1, records);
    }

    fn forwarder(&self, channels: Vec<HandoverChannel>) -> Arc<DenyForwarder> {
        let list = self.clone();
        let read = move || {
            let list = list.0.lock().expect("no panic");
            Some(parts(list.0, &list.1))
        };
        DenyForwarder::start(channels, read).expect("threads")
    }
}

/// The lists that arrive at a process.
fn lists(channel: HandoverChannel) -> Receiver<Vec<DenyRecord>> {
    let (sender, lists) = std::sync::mpsc::channel();
    channel.set_timeout(PATIENCE).expect("a timeout");
    thread::spawn(move || {
        let mut incoming = IncomingList::default();
        while let Ok((message, _)) = channel.receive::<ToPredecessor>() {
            let ToPredecessor::DenyList(part) = message else {
                continue;
            };
            if let Some(list) = incoming.add(part) {
                let _ = sender.send(list);
            }
        }
    });
    lists
}

fn wait_for(lists: &Receiver<Vec<DenyRecord>>, wanted: &[DenyRecord]) {
    while lists.recv_timeout(PATIENCE).expect("a later list") != wanted {}
}

/// An upgrade takes the channels under the lock of the server, for which a change waits before it reads the list.
#[test]
fn channels_are_available_while_a_list_is_read() {
    let (sender, receiver) = channel();
    let (own, _other) = pair();
    let forwarder = Arc::<Mutex<Option<Arc<DenyForwarder>>>>::default();
    let known = forwarder.clone();
    let read = move || {
        let count = known
            .lock()
            .expect("no panic")
            .as_ref()?
            .open_channels()
            .len();
        let _ = sender.send(count);
        Some(parts(0, &[]))
    };
    let started = DenyForwarder::start(vec![own], read).expect("a thread");
    *forwarder.lock().expect("no panic") = Some(started.clone());
    started.notify();
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
}

#[test]
fn process_that_was_stopped_gets_the_latest_list() {
    let (stopped, other) = pair();
    let (busy, reading) = pair();
    let list = TestList::default();
    let forwarder = list.forwarder(vec![stopped, busy]);
    let busy_lists = lists(reading);
    // More than the socket's buffer holds; the process that reads gets each of them meanwhile.
    for count in 5_000..5_010 {
        list.set(records(count));
        forwarder.notify();
        wait_for(&busy_lists, &records(count));
    }
    list.set(records(3));
    forwarder.notify();
    wait_for(&busy_lists, &records(3));
    wait_for(&lists(other), &records(3));
    assert_eq!(forwarder.open_channels().len(), 2);
}

#[test]
fn ended_process_is_forgotten() {
    let (own, other) = pair();
    let list = TestList::default();
    let forwarder = list.forwarder(vec![own]);
    drop(other);
    assert_eq!(forwarder.open_channels().len(), 0);
    forwarder.notify();
    lowroad_testkit::wait_until("the end of the thread", || {
        forwarder.lock_links().is_empty().then_some(())
    });
}

/// A successor and its own successor may both send while the process is stopped.
#[test]
fn older_list_of_another_sender_is_ignored() {
    let (mut old, mut new) = (parts(1, &records(250)), parts(2, &records(2)));
    let mut incoming = IncomingList::default();
    let (old_end, new_end) = (old.pop().expect("an end"), new.pop().expect("an end"));
    let (first, second) = old.split_at(1);
    for part in first.iter().chain(&new).chain(second) {
        assert_eq!(incoming.add(part.clone()), None);
    }
    assert_eq!(incoming.add(new_end), Some(records(2)));
    assert_eq!(incoming.add(old_end), None);
}
