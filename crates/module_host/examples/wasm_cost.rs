//! Measures the cost of a call, native and in WebAssembly, with the same 1 KB page. The forms are measured in turns, so
//! that load on the machine affects all of them. Prints the median of the rounds, and ratios.
//!
//!     cargo run --release -p lowroad-module-host --example wasm_cost -- [CALLS [FORM]]
//!
//! With FORM, only that form is called, in a small pool, for tools that count instructions.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerRequest, HandlerResult, RequestBody, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_module::builtin::linked;
use lowroad_module::{Call, CallEvent, CallStep, Module, ModuleSettings};
use lowroad_module_host::module::builtin::LinkedCode;
use lowroad_module_host::module::{CallLimits as RouteLimits, ModuleHandler, ModuleIdentity};
use lowroad_module_host::wasm::{RuntimeLimits, WasmCode, WasmModuleLimits, WasmRuntime};

/// The number of rounds in which each form is measured.
const ROUNDS: usize = 21;
const PAGE: [u8; 1024] = [b'x'; 1024];

/// The page in Rust.
struct Page;

impl Module for Page {
    type Memory = ();

    fn start(_: &mut ModuleSettings<'_>) -> Result<Page, String> {
        Ok(Page)
    }

    fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: CallEvent) -> CallStep {
        call.field("Content-Type", "text/html");
        call.send(PAGE);
        CallStep::Done
    }
}

/// The page in WebAssembly.
const PAGE_WASM: &str = r#"(module
    (import "lowroad" "field" (func $field (param i32 i32 i32 i32 i32) (result i32)))
    (import "lowroad" "send" (func $send (param i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "Content-Typetext/html")
    (data (i32.const 64) "PAGE")
    (func (export "lowroad_abi") (result i32) (i32.const 1))
    (func (export "lowroad_handle") (param i32) (param $call i32) (param i32 i32) (result i32)
        (drop (call $field (local.get $call) (i32.const 0) (i32.const 12) (i32.const 12) (i32.const 9)))
        (drop (call $send (local.get $call) (i32.const 64) (i32.const 1024)))
        (i32.const 0)))"#;

/// The name of a form, and the module in this form.
type Form = (&'static str, Arc<dyn Handler>);

struct Nothing;

impl SubrequestSource for Nothing {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(async { None })
    }
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let calls = match arguments.next() {
        Some(text) => text
            .parse()
            .map_err(|_| format!("{text} is no number of calls"))?,
        None => 5_000,
    };
    let selected = arguments.next();
    let limits = RuntimeLimits {
        instances_max: if selected.is_some() {
            4
        } else {
            RuntimeLimits::default().instances_max
        },
        ..RuntimeLimits::default()
    };
    let runtime = WasmRuntime::new(limits)?;
    let forms = forms(&runtime)?;
    let request = HandlerRequest {
        method: Method::Get,
        version: HttpVersion::Http11,
        head: RequestHead::new(
            RawTarget {
                path: b"/page",
                query: None,
            },
            b"/page",
            b"example.com",
            LINES,
        ),
        peer: [192, 0, 2, 1].into(),
        peer_port: 40_000,
        local: ([127, 0, 0, 1], 8080).into(),
        tls: None,
        forwarded: None,
        root: Arc::from(Path::new("/srv/site")),
        objects: Arc::new(Nothing),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    };
    if let Some(selected) = selected {
        let found = forms.iter().find(|(name, _)| *name == selected);
        let (_, handler) = found.ok_or_else(|| format!("there is no form {selected}"))?;
        round_ns(handler, &request, calls);
        return Ok(());
    }
    let mut times_ns = vec![Vec::new(); forms.len()];
    for _ in 0..ROUNDS {
        for ((_, handler), times) in forms.iter().zip(&mut times_ns) {
            times.push(round_ns(handler, &request, calls));
        }
    }
    let medians: Vec<_> = times_ns.iter_mut().map(|times| median(times)).collect();
    for ((name, _), time_ns) in forms.iter().zip(&medians) {
        println!(
            "{name:12} {time_ns:8.0} ns a call, {:6.1} times the linked one",
            time_ns / medians[0]
        );
    }
    for (name, count) in runtime.counts().list() {
        println!("{name}: {count}");
    }
    Ok(())
}

fn forms(runtime: &Arc<WasmRuntime>) -> Result<Vec<Form>, String> {
    let identity = Arc::new(ModuleIdentity::new("page", Vec::new(), None));
    let entry = linked::<Page>("page");
    let native = Arc::new(LinkedCode::start(&entry, &identity, 1)?);
    let native = ModuleHandler::new(native, identity.clone(), RouteLimits::default());
    let text = PAGE_WASM.replace("PAGE", &"x".repeat(PAGE.len()));
    let page = std::env::temp_dir().join(format!("wasm_cost-{}.wasm", std::process::id()));
    let bytes = wat::parse_str(text).map_err(|error| error.to_string())?;
    std::fs::write(&page, bytes).map_err(|error| error.to_string())?;
    let rust: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/modules/hello-wasm-rust.wasm");
    let wasm = |path: &Path, keep| -> Result<Arc<dyn Handler>, String> {
        let module_limits = WasmModuleLimits {
            memory_len_max: 16 << 20,
            compute_ms_max: 1_000,
            keep,
        };
        let code = WasmCode::open(runtime, path, identity.clone(), module_limits, 1)?;
        let limits = RouteLimits::default();
        Ok(Arc::new(ModuleHandler::new(
            Arc::new(code),
            identity.clone(),
            limits,
        )))
    };
    let forms = vec![
        ("linked", Arc::new(native) as Arc<dyn Handler>),
        ("wasm", wasm(&page, false)?),
        ("wasm-kept", wasm(&page, true)?),
        ("wasm-rust", wasm(&rust, false)?),
    ];
    std::fs::remove_file(&page).map_err(|error| error.to_string())?;
    Ok(forms)
}

/// Nanoseconds per call.
fn round_ns(handler: &Arc<dyn Handler>, request: &HandlerRequest, calls: u32) -> f64 {
    let started_at = Instant::now();
    for _ in 0..calls {
        match handler.clone().begin(0, copy(request)) {
            HandlerResult::Ready(Ok(response)) => drop(black_box(response)),
            HandlerResult::Ready(Err(failure)) => panic!("{}", failure.detail),
            // The machine was busy for two milliseconds; the measured time includes that.
            HandlerResult::OnRuntime(pending) | HandlerResult::OnWorker(pending) => drop(pending),
        }
    }
    started_at.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
}

const LINES: &[u8] = b"Host: example.com\r\nAccept: */*\r\n";

fn copy(request: &HandlerRequest) -> HandlerRequest {
    HandlerRequest {
        method: request.method,
        version: request.version,
        head: RequestHead::new(
            RawTarget {
                path: b"/page",
                query: None,
            },
            b"/page",
            b"example.com",
            LINES,
        ),
        peer: request.peer,
        peer_port: request.peer_port,
        local: request.local,
        tls: None,
        forwarded: None,
        root: request.root.clone(),
        objects: request.objects.clone(),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
