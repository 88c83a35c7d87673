//! The state that all WebAssembly modules share: the engine with its pool of instances, the host functions, the epoch
//! ticker, and the counters. This module is independent of files and requests.

use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, Linker, OptLevel, PoolingAllocationConfig,
    Store, WasmFeatures,
};

use super::counts::WasmCounters;
use super::file::CodeFiles;
use super::guest::{GuestState, on_tick, reset_compute_limit};
use super::memory_share::{MemoryShare, TABLE_LEN_MAX};
use super::ticker::EpochTicker;
use super::{host, wasi};

/// The part of an instance's memory, in bytes, that is cleared by writing zeros. The rest is returned to the kernel,
/// which costs system calls, and later a page fault for each page that is used again.
const RESIDENT_LEN_MAX: usize = 256 * 1024;
/// The stack size for WebAssembly code.
const WASM_STACK_LEN_MAX: usize = 256 * 1024;
/// The stack size for WebAssembly code together with the host functions that it calls.
const STACK_LEN: usize = 512 * 1024;
/// The maximum number of frames in the backtrace of a trap.
const TRACE_LEN_MAX: usize = 8;

/// The limits for all modules together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeLimits {
    /// Maximum concurrent instances; further requests get 503. Each instance reserves 4 GiB of address space; only
    /// pages that are used take memory.
    pub instances_max: u32,
    /// Maximum memory of all instances together, in bytes; further growth fails.
    pub memory_len_max: u64,
}

impl Default for RuntimeLimits {
    fn default() -> RuntimeLimits {
        RuntimeLimits {
            instances_max: 1_000,
            memory_len_max: 1 << 30,
        }
    }
}

/// The engine, and the state that all modules share. A process needs only one.
pub struct WasmRuntime {
    pub(super) engine: Engine,
    pub(super) linker: Linker<GuestState>,
    pub(super) ticker: EpochTicker,
    pub(super) limits: RuntimeLimits,
    pub(super) counts: Arc<WasmCounters>,
    pub(super) files: CodeFiles,
}

impl WasmRuntime {
    /// Creates the engine, the host functions and the ticker.
    ///
    /// # Errors
    /// A message for the operator, if the system refuses the address space or a thread.
    pub fn new(limits: RuntimeLimits) -> Result<Arc<WasmRuntime>, String> {
        let engine = Engine::new(&config(&limits)).map_err(|error| {
            format!(
                "WebAssembly needs {} GiB of address space (not memory), which this system \
                 refuses; check for a limit (ulimit -v): {error:#}",
                u64::from(limits.instances_max) * 4
            )
        })?;
        let ticker = EpochTicker::start(&engine)
            .map_err(|error| format!("can't start the clock thread for WebAssembly: {error}"))?;
        let mut linker = Linker::new(&engine);
        host::define(&mut linker)
            .and_then(|()| wasi::define(&mut linker))
            .map_err(|error| {
                format!("can't define a function for WebAssembly modules: {error:#}")
            })?;
        Ok(Arc::new(WasmRuntime {
            engine,
            linker,
            ticker,
            limits,
            counts: Arc::default(),
            files: CodeFiles::default(),
        }))
    }

    /// Creates a store for an instance with these limits: memory, and time to compute without a pause.
    pub(super) fn store(&self, memory_len_max: u64, compute_ms_max: u64) -> Store<GuestState> {
        let all_len_max = self.limits.memory_len_max;
        let share = MemoryShare::new(self.counts.clone(), memory_len_max, all_len_max);
        let guest = GuestState::new(self.counts.clone(), share, compute_ms_max);
        let mut store = Store::new(&self.engine, guest);
        // The limiter enforces the memory limits of the module and of the server.
        store.limiter(|guest| &mut guest.share);
        store.epoch_deadline_callback(on_tick);
        // The limit set here is for the module's start, which precedes the first event.
        reset_compute_limit(&mut store);
        store
    }

    /// The counters.
    pub fn counts(&self) -> &Arc<WasmCounters> {
        &self.counts
    }
}

/// Optimizes for speed where that does not weaken the sandbox: guard pages instead of bounds checks, optimized code,
/// and instances from a preallocated pool.
fn config(limits: &RuntimeLimits) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(WASM_STACK_LEN_MAX)
        .async_stack_size(STACK_LEN)
        .wasm_backtrace_max_frames(NonZeroUsize::new(TRACE_LEN_MAX))
        // 64-bit memories would require explicit bounds checks; the pool has one memory per instance.
        .wasm_features(WasmFeatures::MEMORY64 | WasmFeatures::MULTI_MEMORY, false)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(limits)));
    config
}

fn pool(limits: &RuntimeLimits) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(limits.instances_max)
        .total_memories(limits.instances_max)
        .total_tables(limits.instances_max)
        .total_stacks(limits.instances_max)
        .max_memories_per_module(1)
        .max_tables_per_module(1)
        .table_elements(TABLE_LEN_MAX)
        .linear_memory_keep_resident(RESIDENT_LEN_MAX)
        .table_keep_resident(TABLE_LEN_MAX * size_of::<usize>())
        // Scanning the pagemap for written pages would cost a system call; clearing these few pages does not.
        .pagemap_scan(Enabled::No);
    pool
}
