//! One compiled version of a module: its imports are resolved, its exports found, and its ABI version is checked. This
//! module is independent of files and requests.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::thread;

use lowroad_module::abi::ABI;
use wasmtime::{ExternType, FuncType, Instance, InstancePre, Module, ModuleExport, Store, ValType};

use super::guest::GuestState;
use super::runtime::WasmRuntime;
use super::wasi;
use super::write_analysis::resettable;

/// The compute limit for the call that queries the ABI version of a new module, in milliseconds.
const TRIAL_MS_MAX: u64 = 1_000;

const I32: ValType = ValType::I32;

/// A compiled module.
pub(super) struct CompiledWasm {
    pub(super) pre: InstancePre<GuestState>,
    pub(super) memory: ModuleExport,
    pub(super) handle: ModuleExport,
    /// `_initialize`, which WASI compilers generate and which must run first.
    pub(super) initialize: Option<ModuleExport>,
    pub(super) start: Option<ModuleExport>,
    /// The names of the mutable globals; `None` if state other than memory and globals can change, so that instances
    /// cannot be reset.
    pub(super) globals: Option<Vec<String>>,
}

impl CompiledWasm {
    /// Compiles a module and tests it. Takes long: must not be called on a worker.
    ///
    /// # Errors
    /// A message for the author of the module: the problem and the remedy.
    pub(super) fn new(
        runtime: &Arc<WasmRuntime>,
        bytes: &[u8],
        memory_len_max: u64,
    ) -> Result<CompiledWasm, String> {
        let resettable = resettable(bytes);
        let bytes = resettable.as_ref().map_or(bytes, |found| &found.bytes);
        let module = Module::new(&runtime.engine, bytes)
            .map_err(|error| format!("not a usable WebAssembly module: {error:#}"))?;
        let code = CompiledWasm {
            memory: memory(&module)?,
            handle: required(&module, "lowroad_handle", &[I32, I32, I32, I32], &[I32])?,
            initialize: optional(&module, "_initialize", &[], &[])?,
            start: optional(&module, "lowroad_start", &[I32], &[I32])?,
            pre: resolve(runtime, &module)?,
            globals: resettable.map(|found| found.globals),
        };
        // The module is run once, so that a faulty version is rejected before it gets requests.
        let abi = required(&module, "lowroad_abi", &[], &[I32])?;
        let found = code.call_export(runtime, &abi, memory_len_max)?;
        if found != ABI {
            return Err(format!(
                "it was built for version {found} of the module interface, but this server has \
                 version {ABI}; rebuild it with this server's lowroad.h or lowroad-module"
            ));
        }
        Ok(code)
    }

    /// Creates an instance and initializes it, so that its functions can be called.
    pub(super) async fn instance(
        &self,
        store: &mut Store<GuestState>,
    ) -> wasmtime::Result<Instance> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let memory = instance.get_module_export(&mut *store, &self.memory);
        // The memory is looked up only once per instance, since most host functions need it.
        store.data_mut().memory = memory.and_then(wasmtime::Extern::into_memory);
        if let Some(export) = &self.initialize {
            // `_initialize` sets up the language runtime; other functions may trap before that.
            let initialize = function(&instance, store, export).typed::<(), ()>(&*store)?;
            initialize.call_async(&mut *store, ()).await?;
        }
        Ok(instance)
    }

    /// Calls an exported function without arguments, in a new instance.
    fn call_export(
        &self,
        runtime: &Arc<WasmRuntime>,
        export: &ModuleExport,
        memory_len_max: u64,
    ) -> Result<u32, String> {
        // A failed allocation traps like any other error; for the message, the counter distinguishes the two.
        let refused_before = runtime.counts.refused.load(Relaxed);
        let call = async {
            let mut store = runtime.store(memory_len_max, TRIAL_MS_MAX);
            let instance = self.instance(&mut store).await?;
            let exported = function(&instance, &mut store, export);
            exported
                .typed::<(), u32>(&store)?
                .call_async(&mut store, ())
                .await
        };
        // Without the ticker, an endless loop in the new version would never be interrupted.
        let _computing = runtime.ticker.compute();
        wait(call).map_err(|error| {
            let hint = match runtime.counts.refused.load(Relaxed) == refused_before {
                true => String::new(),
                false => format!(" (its limit is memory = {memory_len_max} bytes)"),
            };
            format!("it cannot be started: {error:#}{hint}")
        })
    }
}

/// An exported function. Its type was checked when the module was compiled.
pub(super) fn function(
    instance: &Instance,
    store: &mut Store<GuestState>,
    export: &ModuleExport,
) -> wasmtime::Func {
    let found = instance.get_module_export(store, export);
    found
        .and_then(wasmtime::Extern::into_func)
        .expect("the module was looked at")
}

fn resolve(runtime: &WasmRuntime, module: &Module) -> Result<InstancePre<GuestState>, String> {
    let mut linker = runtime.linker.clone();
    // Modules often import WASI functions that they never call; such imports must not prevent loading.
    wasi::define_missing(&mut linker, module);
    linker.instantiate_pre(module).map_err(|error| {
        format!(
            "it imports something that is not available: {error:#}; modules may import the \
             declarations of lowroad.h (from `lowroad`), `env.abort` and WASI preview 1"
        )
    })
}

fn memory(module: &Module) -> Result<ModuleExport, String> {
    match module.get_export("memory") {
        Some(ExternType::Memory(_)) => Ok(index(module, "memory")),
        _ => Err("it exports no memory named `memory`".into()),
    }
}

fn required(
    module: &Module,
    name: &str,
    params: &[ValType],
    results: &[ValType],
) -> Result<ModuleExport, String> {
    optional(module, name, params, results)?.ok_or_else(|| {
        format!(
            "it exports no function `{name}`; in C include lowroad.h, in Rust use \
             lowroad_module::export!, otherwise export {name}{}",
            signature(params, results)
        )
    })
}

fn optional(
    module: &Module,
    name: &str,
    params: &[ValType],
    results: &[ValType],
) -> Result<Option<ModuleExport>, String> {
    match module.get_export(name) {
        None => Ok(None),
        Some(ExternType::Func(kind)) if fits(&kind, params, results) => {
            Ok(Some(index(module, name)))
        }
        Some(_) => Err(format!(
            "its export `{name}` must be a function {}",
            signature(params, results)
        )),
    }
}

fn index(module: &Module, name: &str) -> ModuleExport {
    module.get_export_index(name).expect("it was found before")
}

fn fits(kind: &FuncType, params: &[ValType], results: &[ValType]) -> bool {
    let same = |left: &[ValType], right: &mut dyn Iterator<Item = ValType>| {
        let right: Vec<_> = right.collect();
        left.len() == right.len() && left.iter().zip(&right).all(|(a, b)| ValType::eq(a, b))
    };
    same(params, &mut kind.params()) && same(results, &mut kind.results())
}

fn signature(params: &[ValType], results: &[ValType]) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<_> = types.iter().map(ValType::to_string).collect();
        format!("({})", names.join(", "))
    };
    format!("{} -> {}", list(params), list(results))
}

/// Polls a future until it is ready, without a waker: each pending poll is soon followed by progress.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // The store yields at each tick only to let other tasks run; there is no other event to wait for.
        thread::yield_now();
    }
}
