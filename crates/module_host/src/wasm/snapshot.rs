//! An instance as it was after its start, to put it back to that: faster than a new one, and the same
//! to see from inside. Knows nothing of calls.

use wasmtime::{Global, Instance, Store, Val};

use super::guest::Guest;

/// The longest memory of which there are snapshots: what is longer is quicker made anew.
const MEMORY_LEN_MAX: usize = 128 * 1024;
/// Memory is put back in pieces so short that the C library writes them with vector instructions:
/// from 2 KiB on it uses a single instruction that takes longer to begin.
const PIECE_LEN: usize = 15 * 128;

/// What can change, as it was.
pub(super) struct Snapshot {
    globals: Vec<(Global, Val)>,
    memory_len: usize,
    /// Pieces of memory; `None` for those that are all zeros.
    pieces: Vec<Option<Box<[u8]>>>,
}

impl Snapshot {
    /// Of an instance that has just started; `None` if it has too much memory, or asked for random
    /// bytes or the time, which would be the same for all requests then.
    pub(super) fn take(
        store: &mut Store<Guest>,
        instance: &Instance,
        globals: &[String],
    ) -> Option<Snapshot> {
        if store.data().unlike_others {
            return None;
        }
        let memory = store.data().memory?.data(&*store);
        if memory.len() > MEMORY_LEN_MAX {
            return None;
        }
        let memory_len = memory.len();
        let pieces = memory.chunks(PIECE_LEN).map(piece).collect();
        let mut kept = Vec::with_capacity(globals.len());
        for name in globals {
            let global = instance.get_global(&mut *store, name)?;
            let value = global.get(&mut *store);
            kept.push((global, value));
        }
        Some(Snapshot {
            globals: kept,
            memory_len,
            pieces,
        })
    }

    /// Puts the instance back; false if it cannot be.
    pub(super) fn restore(&self, store: &mut Store<Guest>) -> bool {
        let Some(memory) = store.data().memory else {
            return false;
        };
        let memory = memory.data_mut(&mut *store);
        if memory.len() != self.memory_len {
            return false;
        }
        for (now, piece) in memory.chunks_mut(PIECE_LEN).zip(&self.pieces) {
            match piece {
                Some(piece) => now.copy_from_slice(piece),
                None => now.fill(0),
            }
        }
        store.data_mut().forget_age();
        let mut globals = self.globals.iter();
        globals.all(|(global, value)| global.set(&mut *store, *value).is_ok())
    }
}

fn piece(bytes: &[u8]) -> Option<Box<[u8]>> {
    // As a comparison of memory it takes vector instructions.
    const ZEROS: [u8; PIECE_LEN] = [0; PIECE_LEN];
    (*bytes != ZEROS[..bytes.len()]).then(|| bytes.into())
}
