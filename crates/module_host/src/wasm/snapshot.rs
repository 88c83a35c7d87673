//! Snapshots of instances after their start. Restoring a snapshot is faster than creating an instance, and the module
//! cannot detect the difference. This module is independent of calls.

use wasmtime::{Global, Instance, Store, Val};

use super::guest::GuestState;

/// The maximum size of memory for a snapshot; with more memory, a new instance is faster.
const MEMORY_LEN_MAX: usize = 128 * 1024;
/// Memory is restored in pieces that the C library copies with vector instructions; from 2 KiB on, the C library uses a
/// single instruction with a longer startup time.
const PIECE_LEN: usize = 15 * 128;

/// The mutable state of an instance after its start.
pub(super) struct MemorySnapshot {
    globals: Vec<(Global, Val)>,
    memory_len: usize,
    /// The pieces of memory; `None` for pieces with zeros only.
    pieces: Vec<Option<Box<[u8]>>>,
}

impl MemorySnapshot {
    /// Takes a snapshot of an instance that has just started. `None` if it has too much memory, or has used random
    /// bytes or the time, which would then be the same for all requests.
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

    /// Resets the instance; returns false if that is impossible.
    pub(super) fn restore(&self, store: &mut Store<GuestState>) -> bool {
        let Some(memory) = store.data().memory else {
            return false;
        };
        let memory = memory.data_mut(&mut *store);
        // Memory cannot shrink, so an instance with grown memory cannot be reset.
        if memory.len() != self.memory_len {
            return false;
        }
        for (current, piece) in memory.chunks_mut(PIECE_LEN).zip(&self.pieces) {
            match piece {
                Some(piece) => current.copy_from_slice(piece),
                None => current.fill(0),
            }
        }
        // The monotonic clock restarts, as in a new instance.
        store.data_mut().reset_clock();
        let mut globals = self.globals.iter();
        globals.all(|(global, value)| global.set(&mut *store, *value).is_ok())
    }
}

fn piece(bytes: &[u8]) -> Option<Box<[u8]>> {
    // Comparing arrays compiles to memcmp, which uses vector instructions.
    const ZEROS: [u8; PIECE_LEN] = [0; PIECE_LEN];
    (*bytes != ZEROS[..bytes.len()]).then(|| bytes.into())
}
