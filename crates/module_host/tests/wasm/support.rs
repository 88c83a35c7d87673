//! Helpers for the tests of WebAssembly modules: modules in text form, a site, requests to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, PendingResponse,
    RequestBody, ResponseContent, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_module_host::module::{CallLimits as RouteLimits, ModuleHandler, ModuleIdentity};
use lowroad_module_host::wasm::{RuntimeLimits, WasmCode, WasmModuleLimits, WasmRuntime};

/// The limits of a module, unless a test uses others.
pub const DEFAULT_LIMITS: WasmModuleLimits = WasmModuleLimits {
    memory_len_max: 1 << 20,
    compute_ms_max: 200,
    keep: false,
};

const IMPORTS: &str = r#"
(import "lowroad" "get" (func $get (param i32 i32 i32 i32 i32 i32) (result i64)))
(import "lowroad" "read" (func $read (param i32 i32 i32 i32) (result i64)))
(import "lowroad" "field" (func $field (param i32 i32 i32 i32 i32) (result i32)))
(import "lowroad" "send" (func $send (param i32 i32 i32) (result i32)))
(import "lowroad" "send_stored" (func $send_stored (param i32 i32 i32) (result i32)))
(import "lowroad" "timer" (func $timer (param i32 i32) (result i32)))
(import "lowroad" "fetch" (func $fetch (param i32 i32 i32) (result i32)))
(import "lowroad" "log" (func $log (param i32 i32 i32 i32) (result i32)))
"#;

/// A module without `lowroad_handle`, to which `rest` is appended. Its memory starts with "hello".
pub fn module(rest: &str) -> Vec<u8> {
    let text = format!(
        r#"(module {IMPORTS}
            (memory (export "memory") 1)
            (data (i32.const 0) "hello")
            (func (export "lowroad_abi") (result i32) (i32.const 1))
            {rest})"#
    );
    wat::parse_str(text).expect("the text is a module")
}

/// A module with this `lowroad_handle`, which has the locals $a and $b.
pub fn module_with_handle(code: &str) -> Vec<u8> {
    module(&format!(
        r#"(func (export "lowroad_handle") (param $state i32) (param $call i32) (param $event i32)
            (param $number i32) (result i32) (local $a i32) (local $b i32) {code})"#
    ))
}

/// Sends "hello" once.
pub const HELLO: &str =
    "(drop (call $send (local.get $call) (i32.const 0) (i32.const 5))) (i32.const 0)";

/// The runtime that most tests share.
pub fn runtime() -> Arc<WasmRuntime> {
    static SHARED: LazyLock<Arc<WasmRuntime>> =
        LazyLock::new(|| separate_runtime(RuntimeLimits::default()));
    SHARED.clone()
}

/// A separate runtime, with counters that no other test changes.
pub fn separate_runtime(limits: RuntimeLimits) -> Arc<WasmRuntime> {
    WasmRuntime::new(limits).expect("the system gives what it needs")
}

/// Writes a temporary file of this test run.
pub fn scratch(bytes: &[u8]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("wasm-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("a scratch file");
    path
}

/// Opens a module from its file.
pub fn open(
    runtime: &Arc<WasmRuntime>,
    path: &Path,
    own: WasmModuleLimits,
) -> Result<Arc<dyn Handler>, String> {
    let settings = vec![("key".to_string(), "set".to_string())];
    let identity = Arc::new(ModuleIdentity::new("tested", settings, None));
    let code = WasmCode::open(runtime, path, identity.clone(), own, 2)?;
    let limits = RouteLimits {
        concurrency_max: 10_000,
        ..RouteLimits::default()
    };
    Ok(Arc::new(ModuleHandler::new(
        Arc::new(code),
        identity,
        limits,
    )))
}

/// Opens a module with these bytes.
pub fn handler(
    runtime: &Arc<WasmRuntime>,
    bytes: &[u8],
    own: WasmModuleLimits,
) -> Arc<dyn Handler> {
    open(runtime, &scratch(bytes), own).expect("it can be opened")
}

/// The reason that a module with these bytes is refused.
pub fn refusal_reason(bytes: &[u8]) -> String {
    match open(&runtime(), &scratch(bytes), DEFAULT_LIMITS) {
        Ok(_) => panic!("it is not refused"),
        Err(problem) => problem,
    }
}

/// The value of a counter.
pub fn count(runtime: &WasmRuntime, name: &str) -> u64 {
    let list = runtime.counts().list();
    let found = list.iter().find(|(known, _)| *known == name);
    found.expect("a counter of that name").1
}

struct Site;

impl SubrequestSource for Site {
    fn find_in_memory(&self, path: &[u8]) -> Option<Bytes> {
        (path == b"/kept").then(|| Bytes::from_static(b"a page"))
    }

    fn load(&self, path: &[u8]) -> SubrequestLoad {
        let found = path == b"/page";
        Box::pin(async move { found.then(|| Bytes::from_static(b"a page")) })
    }
}

pub fn request(target: &str) -> HandlerRequest {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = (!query.is_empty()).then_some(query.as_bytes());
    let path = path.as_bytes();
    HandlerRequest {
        method: Method::Get,
        version: HttpVersion::Http11,
        head: RequestHead::new(
            RawTarget { path, query },
            path,
            b"example.com",
            b"X-Field: value\r\n",
        ),
        peer: [192, 0, 2, 1].into(),
        peer_port: 40_000,
        local: ([127, 0, 0, 1], 8080).into(),
        tls: None,
        forwarded: None,
        root: Arc::from(Path::new("/srv/site")),
        objects: Arc::new(Site),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

/// The answer of a module that does not wait. On a busy machine a short call may be interrupted and complete later.
pub fn answer_now(
    handler: &Arc<dyn Handler>,
    target: &str,
) -> Result<HandlerResponse, HandlerFailure> {
    let mut answering = match handler.clone().begin(0, request(target)) {
        HandlerResult::Ready(answer) => return answer,
        HandlerResult::OnRuntime(answering) | HandlerResult::OnWorker(answering) => answering,
    };
    let _entered = SPARE.enter();
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = answering.as_mut().poll(&mut context) {
            return answer;
        }
    }
}

/// Time limits need a runtime, even in tests that run without one.
static SPARE: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Runtime::new().expect("a runtime"));

/// Whether a future has asked to be polled again.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// As `pending_answer`, once the module waits. On a busy machine its first event is interrupted, and keeps the instance to
/// itself until the future is polled again.
pub fn waiting_answer(handler: &Arc<dyn Handler>, request: HandlerRequest) -> PendingResponse {
    let mut answering = pending_answer(handler, request);
    let _entered = SPARE.enter();
    let flag = Arc::new(WakeFlag::default());
    let waker = flag.clone().into();
    loop {
        let mut context = Context::from_waker(&waker);
        assert!(answering.as_mut().poll(&mut context).is_pending());
        if !flag.0.swap(false, Relaxed) {
            return answering;
        }
    }
}

/// The pending answer of a module that waits.
pub fn pending_answer(handler: &Arc<dyn Handler>, request: HandlerRequest) -> PendingResponse {
    match handler.clone().begin(0, request) {
        HandlerResult::Ready(_) => panic!("it is there at once"),
        HandlerResult::OnRuntime(answering) | HandlerResult::OnWorker(answering) => answering,
    }
}

/// The answer, immediate or pending.
pub async fn answer(
    handler: &Arc<dyn Handler>,
    target: &str,
) -> Result<HandlerResponse, HandlerFailure> {
    match handler.clone().begin(0, request(target)) {
        HandlerResult::Ready(answer) => answer,
        HandlerResult::OnRuntime(answering) | HandlerResult::OnWorker(answering) => answering.await,
    }
}

/// The text of a response that is not a stream.
pub fn text(answer: Result<HandlerResponse, HandlerFailure>) -> String {
    match answer.expect("it is answered").content {
        ResponseContent::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => panic!("the response is not of bytes"),
    }
}

/// A failure's status and detail.
pub fn failure(answer: Result<HandlerResponse, HandlerFailure>) -> (u16, String) {
    match answer {
        Ok(_) => panic!("it is answered"),
        Err(failure) => (failure.status.code(), failure.detail),
    }
}
