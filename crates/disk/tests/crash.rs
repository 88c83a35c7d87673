//! Crash tests: stops the store after each written byte. After recovery, exactly the committed objects exist, byte for
//! byte.

mod memory;

use std::collections::BTreeMap;

use lowroad_disk::{DiskOptions, DiskStore};
use memory::{Change, Folder, Memory};

const OPTIONS: DiskOptions = DiskOptions {
    capacity_bytes: 2 << 20,
    segment_bytes: 256 * 1024,
};
/// Writes up to this length are truncated at each byte, longer ones only at some.
const SHORT_LEN: usize = 400;

type Model = BTreeMap<u32, Vec<u8>>;

fn key(n: u32) -> Vec<u8> {
    format!("example.org/{n}").into_bytes()
}

fn body(n: u32, version: u32, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32 ^ n.wrapping_mul(31) ^ version.wrapping_mul(7)) as u8;
    (0..len).map(byte).collect()
}

/// A sequence of operations, with the expected objects and the number of file changes after each operation.
struct History {
    memory: Memory,
    store: DiskStore<Memory>,
    now: Model,
    after: Vec<(usize, Model)>,
}

impl History {
    fn new() -> History {
        let memory = Memory::default();
        let store = DiskStore::open(memory.clone(), OPTIONS).expect("opens");
        let mut history = History {
            memory,
            store,
            now: Model::new(),
            after: Vec::new(),
        };
        history.note();
        history
    }

    fn note(&mut self) {
        self.after
            .push((self.memory.changes().len(), self.now.clone()));
    }

    fn store(&mut self, n: u32, version: u32, len: usize, is_known: bool) {
        let body = body(n, version, len);
        let announced_len = is_known.then_some(len as u64);
        let mut writer = self
            .store
            .begin(&key(n), b"meta", u64::MAX, announced_len)
            .expect("begins");
        body.chunks(60_000)
            .for_each(|bytes| writer.append(bytes).expect("appends"));
        writer.commit().expect("commits");
        self.now.insert(n, body);
        self.note();
    }

    fn abandon(&mut self, n: u32) {
        let mut writer = self
            .store
            .begin(&key(n), b"", u64::MAX, Some(1000))
            .expect("begins");
        writer.append(&[b'z'; 500]).expect("appends");
        drop(writer);
        self.note();
    }

    fn remove(&mut self, n: u32) {
        self.store.remove(&key(n)).expect("removes");
        self.now.remove(&n);
        self.note();
    }

    fn checkpoint(&mut self) {
        self.store.checkpoint().expect("is written");
        self.note();
    }

    fn reopen(&mut self) {
        self.store = DiskStore::open(self.memory.clone(), OPTIONS).expect("opens");
        self.note();
    }
}

fn history() -> History {
    let mut history = History::new();
    (0..8).for_each(|n| history.store(n, 0, 20 + 37 * n as usize, n % 2 == 0));
    history.store(3, 1, 90, true);
    history.abandon(4);
    history.remove(5);
    history.checkpoint();
    history.store(8, 0, 300_000, true); // gets its own segment
    history.store(9, 0, 300_000, false);
    history.store(8, 1, 10, true); // its segment is removed
    history.reopen();
    history.store(5, 1, 0, true);
    history.remove(9);
    history.checkpoint();
    history.store(1, 1, 66_000, true);
    history.reopen();
    history
}

/// The body that the store finds for key `n`.
fn found(memory: &Memory, store: &DiskStore<Memory>, n: u32) -> Option<Vec<u8>> {
    let found = store.find(&key(n), 0)?;
    Some(memory.bytes(*found.body.file, found.body.offset, found.body.len))
}

/// Checks that the recovered objects are those before or those after the operation.
fn check(folder: Folder, before: &Model, after: &Model, at: (usize, usize)) {
    let memory = Memory::of(folder);
    let store = DiskStore::open(memory.clone(), OPTIONS).expect("opens");
    for n in 0..10 {
        let found = found(&memory, &store, n);
        let right = found.as_ref() == before.get(&n) || found.as_ref() == after.get(&n);
        assert!(
            right,
            "key {n}, cut at {at:?}: {:?}",
            found.map(|body| body.len())
        );
    }
    let counters = store.counters();
    assert_eq!(
        (counters.corrupt, counters.read_errors),
        (0, 0),
        "cut at {at:?}"
    );
    // The store can be used: a new object does not damage the existing ones.
    let mut writer = store.begin(b"new", b"", u64::MAX, Some(3)).expect("begins");
    writer.append(b"new").expect("appends");
    writer.commit().expect("commits");
    assert!(store.find(b"new", 0).is_some());
}

fn cuts(change: &Change) -> Vec<usize> {
    match change {
        Change::Write(_, bytes, _) if bytes.len() <= SHORT_LEN => (0..bytes.len()).collect(),
        Change::Write(_, bytes, _) => (0..bytes.len()).step_by(bytes.len() / 20).collect(),
        _ => vec![0],
    }
}

#[test]
fn crash_at_any_byte_preserves_committed_objects() {
    let history = history();
    let changes = history.memory.changes();
    let mut folder = Folder::default();
    let nothing = Model::new();
    for (number, change) in changes.iter().enumerate() {
        let step = history.after.partition_point(|(end, _)| *end <= number);
        let before = step
            .checked_sub(1)
            .map_or(&nothing, |step| &history.after[step].1);
        let after = history.after.get(step).map_or(before, |(_, model)| model);
        for part in cuts(change) {
            let mut cut = folder.clone();
            if part > 0 {
                cut.apply(change, part);
            }
            check(cut, before, after, (number, part));
        }
        folder.apply(change, usize::MAX);
    }
    check(folder, &history.now, &history.now, (changes.len(), 0));
}
