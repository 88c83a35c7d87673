//! The state that all instances of a module share, on all workers.

use std::sync::Arc;

use wasmtime::Store;

use super::file::CodeFile;
use super::guest::GuestState;
use super::idle_instances::IdleInstances;
use super::runtime::WasmRuntime;
use crate::module::ModuleIdentity;

/// The limits of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WasmModuleLimits {
    /// Maximum memory of an instance in bytes.
    pub memory_len_max: u64,
    /// Maximum time for which an instance may compute without a pause, in milliseconds.
    pub compute_ms_max: u64,
    /// Whether each worker keeps one instance for all of its requests, until it traps. Otherwise each request gets a
    /// new or reset instance.
    pub keep: bool,
}

/// The state that all instances of a module share.
pub(super) struct WasmContext {
    pub(super) runtime: Arc<WasmRuntime>,
    pub(super) identity: Arc<ModuleIdentity>,
    pub(super) file: Arc<CodeFile>,
    pub(super) limits: WasmModuleLimits,
    pub(super) idle_instances: IdleInstances,
}

impl WasmContext {
    pub(super) fn store(&self) -> Store<GuestState> {
        let limits = &self.limits;
        self.runtime
            .store(limits.memory_len_max, limits.compute_ms_max)
    }
}
