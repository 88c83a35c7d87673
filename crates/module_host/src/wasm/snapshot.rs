//! Snapshots of instances after their start. Restoring one is faster than creating an instance, and the code in it
//! cannot see a difference. Independent of calls.

use wasmtime::{Global, Instance, Store, Val};

use super::guest::GuestState;

/// The longest memory that is snapshotted; for longer memories a new instance is faster.
const MEMORY_LEN_MAX: usize = 128 * 1024;
/// Memory is restored in pieces short enough that the C library copies them with vector instructions; from 2 KiB on
/// it uses a single instruction with a longer start-up time.
const PIECE_LEN: usize = 15 * 128;

/// The mutable state after the start.
pub(super) struct MemorySnapshot {
    globals: Vec<(Global, Val)>,
    memory_len: usize,
    /// Pieces of memory; `None` for pieces of zeros.
    pieces: Vec<Option<Box<[u8]>>>,
}

impl MemorySnapshot {
    /// Takes a snapshot of an instance that has just started. `None` if it has too much memory, or used random bytes
    /// or the time, which would then be the same for all requests.
    pub(super) fn take(
        store: &mut Store<GuestState>,
        instance: &Instance,
        globals: &[String],
    ) -> Option<MemorySnapshot> {
        if store.data().has_unique_state {
            return None;
        }
        let memory = store.data().memory?.data(&*store);
        if memory.len() > MEMORY_LEN_MAX {
            return None;
        }
        let memory_len = memory.len();
        let pieces = memory.chunks(PIECE_LEN).map(piece).collect();
        let mut saved = Vec::with_capacity(globals.len());
        for name in globals {
            let global = instance.get_global(&mut *store, name)?;
            let value = global.get(&mut *store);
            saved.push((global, value));
        }
        Some(MemorySnapshot {
            globals: saved,
            memory_len,
            pieces,
        })
    }

    /// Restores the instance; false if that is impossible.
    pub(super) fn restore(&self, store: &mut Store<GuestState>) -> bool {
        let Some(memory) = store.data().memory else {
            return false;
        };
        let memory = memory.data_mut(&mut *store);
        // Memory can only grow, so an instance with more memory cannot be restored.
        if memory.len() != self.memory_len {
            return false;
        }
        for (current, piece) in memory.chunks_mut(PIECE_LEN).zip(&self.pieces) {
            match piece {
                Some(piece) => current.copy_from_slice(piece),
                None => current.fill(0),
            }
        }
        // The monotonic clock of the next request starts anew, as in a new instance.
        store.data_mut().reset_clock();
        let mut globals = self.globals.iter();
        globals.all(|(global, value)| global.set(&mut *store, *value).is_ok())
    }
}

fn piece(bytes: &[u8]) -> Option<Box<[u8]>> {
    // A comparison of arrays compiles to memcmp, which uses vector instructions.
    const ZEROS: [u8; PIECE_LEN] = [0; PIECE_LEN];
    (*bytes != ZEROS[..bytes.len()]).then(|| bytes.into())
}
