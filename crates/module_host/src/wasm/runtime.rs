//! What all WebAssembly modules share: the engine with its pool of instances, the functions that
//! modules may call, the clock, and the counters. Knows nothing of files and requests.

use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, Linker, OptLevel, PoolingAllocationConfig,
    Store, WasmFeatures,
};

use super::counts::Counts;
use super::file::Files;
use super::guest::{Guest, on_tick, wind};
use super::share::{Share, TABLE_LEN_MAX};
use super::ticker::Ticker;
use super::{host, wasi};

/// Bytes of an instance's memory that are cleared by writing; what is beyond them is given back to
/// the system, which costs calls, and a page fault for each page at the next use.
const RESIDENT_LEN_MAX: usize = 256 * 1024;
/// Bytes of stack for WebAssembly code.
const WASM_STACK_LEN_MAX: usize = 256 * 1024;
/// Bytes of stack for it and the functions of ours that it calls.
const STACK_LEN: usize = 512 * 1024;
/// Frames of a trap's trace.
const TRACE_LEN_MAX: usize = 8;

/// Limits of all modules together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instances at a time; requests beyond get 503. Each takes 4 GiB of addresses, of which memory
    /// is what it uses.
    pub instances_max: u32,
    /// Bytes of memory of all instances; a growth beyond is refused.
    pub memory_len_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            instances_max: 1_000,
            memory_len_max: 1 << 30,
        }
    }
}

/// The engine and what belongs to it. One for a process is enough.
pub struct Runtime {
    pub(super) engine: Engine,
    pub(super) linker: Linker<Guest>,
    pub(super) ticker: Ticker,
    pub(super) limits: Limits,
    pub(super) counts: Arc<Counts>,
    pub(super) files: Files,
}

impl Runtime {
    /// Sets everything up.
    ///
    /// # Errors
    /// A text for the operator, when the system does not give the addresses or a thread.
    pub fn new(limits: Limits) -> Result<Arc<Runtime>, String> {
        let engine = Engine::new(&config(&limits)).map_err(|error| {
            format!(
                "WebAssembly needs {} GiB of addresses (not of memory), which this system does not \
                 give; is there a limit (ulimit -v)? {error:#}",
                u64::from(limits.instances_max) * 4
            )
        })?;
        let ticker = Ticker::start(&engine)
            .map_err(|error| format!("WebAssembly needs a thread for its clock: {error}"))?;
        let mut linker = Linker::new(&engine);
        host::define(&mut linker)
            .and_then(|()| wasi::define(&mut linker))
            .map_err(|error| format!("a function for WebAssembly modules: {error:#}"))?;
        Ok(Arc::new(Runtime {
            engine,
            linker,
            ticker,
            limits,
            counts: Arc::default(),
            files: Files::default(),
        }))
    }

    /// A store for an instance that may have so much memory, and compute so long without a pause.
    pub(super) fn store(&self, memory_len_max: u64, compute_ms_max: u64) -> Store<Guest> {
        let all_len_max = self.limits.memory_len_max;
        let share = Share::new(self.counts.clone(), memory_len_max, all_len_max);
        let guest = Guest::new(self.counts.clone(), share, compute_ms_max);
        let mut store = Store::new(&self.engine, guest);
        store.limiter(|guest| &mut guest.share);
        store.epoch_deadline_callback(on_tick);
        wind(&mut store);
        store
    }

    /// What happened so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

/// Speed first where a choice does not weaken the walls: bounds are checked by guard pages, code is
/// optimised once, and an instance is a place in a pool that is there already.
fn config(limits: &Limits) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(WASM_STACK_LEN_MAX)
        .async_stack_size(STACK_LEN)
        .wasm_backtrace_max_frames(NonZeroUsize::new(TRACE_LEN_MAX))
        .wasm_features(WasmFeatures::MEMORY64 | WasmFeatures::MULTI_MEMORY, false)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(limits)));
    config
}

fn pool(limits: &Limits) -> PoolingAllocationConfig {
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
        // A scan for pages that were written costs a system call, and clearing these few does not.
        .pagemap_scan(Enabled::No);
    pool
}
