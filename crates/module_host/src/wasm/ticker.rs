//! The epoch ticker: a thread that advances wasmtime's epoch every millisecond while an instance computes, and
//! otherwise sleeps. This file is independent of WebAssembly modules and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::{Engine, EngineWeak};

/// The interval between two ticks, in milliseconds.
pub const TICK_MS: u64 = 1;

/// The number of ticks without a computing instance after which the thread sleeps.
const IDLE_TICKS_MAX: u32 = 200;

/// The interval at which the sleeping thread checks whether it must end, in milliseconds.
const STOP_CHECK_MS: u64 = 60_000;

/// The handle of the thread; stops it when dropped.
pub struct EpochTicker {
    state: Arc<TickerFlags>,
    thread: Thread,
}

#[derive(Default)]
struct TickerFlags {
    computing: AtomicUsize,
    asleep: AtomicBool,
    is_stopped: AtomicBool,
}

impl EpochTicker {
    /// Starts the thread for an engine.
    ///
    /// # Errors
    /// The system's error if it cannot create the thread.
    pub fn start(engine: &Engine) -> std::io::Result<EpochTicker> {
        let state = Arc::<TickerFlags>::default();
        // The thread has a weak reference, so that it does not keep the engine alive.
        let (thread_state, engine) = (state.clone(), engine.weak());
        let builder = thread::Builder::new().name("wasm-ticker".into());
        let thread = builder
            .spawn(move || tick(&thread_state, &engine))?
            .thread()
            .clone();
        Ok(EpochTicker { state, thread })
    }

    /// Keeps the ticker running until the returned guard is dropped.
    pub fn compute(&self) -> ComputeGuard<'_> {
        // This increments `computing` and then reads `asleep`; the thread sets `asleep` and then reads `computing`. So
        // at least one of the two sees the write of the other, and no wake-up is lost.
        let previous = self.state.computing.fetch_add(1, SeqCst);
        if previous == 0 && self.state.asleep.load(SeqCst) {
            self.thread.unpark();
        }
        ComputeGuard(&self.state)
    }
}

impl Drop for EpochTicker {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, SeqCst);
        self.thread.unpark();
    }
}

/// Keeps the ticker running until it is dropped.
pub struct ComputeGuard<'a>(&'a TickerFlags);

impl Drop for ComputeGuard<'_> {
    fn drop(&mut self) {
        self.0.computing.fetch_sub(1, SeqCst);
    }
}

fn tick(state: &TickerFlags, engine: &EngineWeak) {
    let mut idle_ticks = 0;
    while !state.is_stopped.load(SeqCst) {
        if state.computing.load(SeqCst) > 0 {
            idle_ticks = 0;
        } else {
            idle_ticks += 1;
        }
        // Waking the thread costs a system call, so it sleeps only after a longer pause.
        if idle_ticks > IDLE_TICKS_MAX {
            sleep(state);
            idle_ticks = 0;
            continue;
        }
        thread::sleep(Duration::from_millis(TICK_MS));
        // Without an engine, the runtime has been dropped.
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}

fn sleep(state: &TickerFlags) {
    state.asleep.store(true, SeqCst);
    // `computing` is checked again after `asleep` was set; see `compute`.
    if state.computing.load(SeqCst) == 0 && !state.is_stopped.load(SeqCst) {
        thread::park_timeout(Duration::from_millis(STOP_CHECK_MS));
    }
    state.asleep.store(false, SeqCst);
}
