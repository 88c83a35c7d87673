//! Identifiers of requests, which relate entries of logs to each other and to requests at upstream servers.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use lowroad_traces::IdGenerator;

/// The random identifier of a request, which is made when it is first needed.
#[derive(Clone, Debug, Default)]
pub struct LazyRequestId(Cell<Option<u128>>);

impl LazyRequestId {
    /// The identifier; the first call makes it.
    pub fn get(&self) -> u128 {
        let id = self.0.get().unwrap_or_else(random_id);
        self.0.set(Some(id));
        id
    }
}

thread_local! {
    /// The generator of this thread's identifiers.
    static IDS: RefCell<IdGenerator> = RefCell::new(IdGenerator::new(random_seed()));
}

fn random_id() -> u128 {
    IDS.with_borrow_mut(|ids| u128::from_be_bytes(*ids.trace_id().bytes()))
}

/// Hashes of nothing: the keys of each state are random.
fn random_seed() -> [u64; 2] {
    [(); 2].map(|()| RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_is_made_once() {
        let (first, second) = (LazyRequestId::default(), LazyRequestId::default());
        assert_eq!(first.get(), first.get());
        assert_ne!(first.get(), second.get());
        let other = std::thread::spawn(|| LazyRequestId::default().get());
        assert_ne!(other.join().expect("an identifier"), first.get());
    }
}
