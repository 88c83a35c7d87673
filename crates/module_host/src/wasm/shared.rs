//! The context that all instances of a module share, on all workers.

use std::sync::Arc;

use wasmtime::Store;

use super::file::File;
use super::guest::Guest;
use super::resting::Resting;
use super::runtime::Runtime;
use crate::module::Identity;

/// The limits of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The most memory of an instance in bytes.
    pub memory_len_max: u64,
    /// How long an instance may compute without a pause, in milliseconds.
    pub compute_ms_max: u64,
    /// Each worker retains one instance for its requests until it traps; otherwise each request has a new or reset one.
    pub keep: bool,
}

/// The context that all instances of a module share.
pub(super) struct Shared {
    pub(super) runtime: Arc<Runtime>,
    pub(super) identity: Arc<Identity>,
    pub(super) file: Arc<File>,
    pub(super) own: Own,
    pub(super) resting: Resting,
}

impl Shared {
    pub(super) fn store(&self) -> Store<Guest> {
        let own = &self.own;
        self.runtime.store(own.memory_len_max, own.compute_ms_max)
    }
}
