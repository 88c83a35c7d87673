//! Helpers for the tests of modules: a site, requests to it, and libraries compiled by the tests.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use lowroad_config::AllowedDestination;
use lowroad_engine::stream::StreamItem;
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, RequestBody,
    ResponseContent, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_module::builtin::linked;
use lowroad_module_host::module::builtin::LinkedCode;
use lowroad_module_host::module::library::LibraryCode;
use lowroad_module_host::module::out_of_process::SeparateCode;
use lowroad_module_host::module::{CallLimits, ModuleHandler, ModuleIdentity};

/// A site with one page in memory and one on disk.
pub struct Site;

impl SubrequestSource for Site {
    fn find_in_memory(&self, path: &[u8]) -> Option<Bytes> {
        (path == b"/now.html").then(|| Bytes::from_static(b"from memory"))
    }

    fn load(&self, path: &[u8]) -> SubrequestLoad {
        let page = match path {
            b"/later.html" => Some(Bytes::from_static(b"from disk")),
            _ => self.find_in_memory(path),
        };
        Box::pin(async move {
            tokio::task::yield_now().await;
            page
        })
    }
}

pub fn request(target: &str) -> HandlerRequest {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = (!query.is_empty()).then_some(query.as_bytes());
    let path = path.as_bytes();
    let lines = b"X-Field: value\r\nCookie: a=1; id=7\r\n";
    HandlerRequest {
        method: Method::Get,
        version: HttpVersion::Http11,
        head: RequestHead::new(RawTarget { path, query }, path, b"example.com", lines),
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

pub fn settings() -> Vec<(String, String)> {
    vec![("key".to_string(), "set".to_string())]
}

pub fn identity(name: &str, settings: Vec<(String, String)>) -> Arc<ModuleIdentity> {
    Arc::new(ModuleIdentity::new(name, settings, None).with_fetch(allowed_destinations()))
}

/// A server that modules may fetch from; the tests listen on it.
pub static OTHER_SERVER: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind("127.0.0.1:0").expect("a port"));

/// The servers that modules may fetch from.
fn allowed_destinations() -> Vec<AllowedDestination> {
    let other = OTHER_SERVER.local_addr().expect("an address").to_string();
    [&other, "127.0.0.1:1"]
        .map(|text| AllowedDestination::parse(text).expect("a destination"))
        .into()
}

static C: LazyLock<PathBuf> = LazyLock::new(|| {
    let to = scratch("forms.so");
    compile("features.c", &to, &[]);
    to
});

/// The test module in every form.
pub fn forms(limits: CallLimits) -> Vec<(&'static str, Arc<dyn Handler>)> {
    let mut forms = forms_in_process(limits);
    forms.push(("separate", separate(limits).1));
    forms
}

/// The test module as a library in a separate process.
pub fn separate(limits: CallLimits) -> (Arc<ModuleIdentity>, Arc<dyn Handler>) {
    let identity = identity("features", settings());
    let runtime = tokio::runtime::Handle::current();
    let code = SeparateCode::open(&C, &identity, 2, &runtime, crate::separate::command);
    let code = Arc::new(code.expect("it starts"));
    (
        identity.clone(),
        Arc::new(ModuleHandler::new(code, identity, limits)),
    )
}

/// The test module in the forms that run in this process.
pub fn forms_in_process(limits: CallLimits) -> Vec<(&'static str, Arc<dyn Handler>)> {
    let identity = identity("features", settings());
    let entry = linked::<crate::features::Features>("features");
    let rust = LinkedCode::start(&entry, &identity, 2).expect("it starts");
    let c = LibraryCode::open(&C, &identity, 2).expect("it loads");
    vec![
        (
            "linked",
            Arc::new(ModuleHandler::new(Arc::new(rust), identity.clone(), limits)),
        ),
        ("library", Arc::new(ModuleHandler::new(c, identity, limits))),
    ]
}

/// The path of a temporary file of this test run.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).expect("a folder for scratch files");
    folder.join(name)
}

/// Compiles a C file of this folder, and moves the library to its path atomically.
pub fn compile(source: &str, to: &Path, flags: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let part = to.with_extension("part");
    let status = Command::new("cc")
        .args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I",
        ])
        .arg(here.join("../module/include"))
        .args(flags)
        .arg("-o")
        .arg(&part)
        .arg(here.join("tests/module").join(source))
        .status()
        .expect("cc runs");
    assert!(status.success(), "{source} compiles");
    std::fs::rename(part, to).expect("it is moved");
}

/// Answers a request; also returns whether the answer came directly from the worker.
pub async fn answer_when(
    handler: &Arc<dyn Handler>,
    request: HandlerRequest,
) -> (Result<HandlerResponse, HandlerFailure>, bool) {
    match handler.clone().begin(1, request) {
        HandlerResult::Ready(answer) => (answer, true),
        HandlerResult::OnRuntime(answer) | HandlerResult::OnWorker(answer) => (answer.await, false),
    }
}

pub async fn answer(
    handler: &Arc<dyn Handler>,
    target: &str,
) -> Result<HandlerResponse, HandlerFailure> {
    answer_when(handler, request(target)).await.0
}

/// The whole body of a response.
pub async fn body(response: HandlerResponse) -> Vec<u8> {
    match response.content {
        ResponseContent::Bytes(bytes) => bytes.to_vec(),
        ResponseContent::Stored(_)
        | ResponseContent::Upgrade(_)
        | ResponseContent::LocalRedirect(_) => {
            panic!("a stored object has no bytes here")
        }
        ResponseContent::Stream { stream, .. } => {
            let mut all = Vec::new();
            loop {
                match stream.next().await {
                    StreamItem::Bytes(bytes) => all.extend_from_slice(&bytes),
                    StreamItem::End => return all,
                    StreamItem::Cut => panic!("the stream is cut after {} bytes", all.len()),
                }
            }
        }
    }
}

pub async fn text(handler: &Arc<dyn Handler>, target: &str) -> String {
    let response = answer(handler, target).await.expect("it is answered");
    String::from_utf8(body(response).await).expect("it is text")
}

/// An identity without permission to fetch, and its log lines.
pub fn recording_identity(name: &str) -> (Arc<Mutex<Vec<String>>>, Arc<ModuleIdentity>) {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let to = lines.clone();
    let sink = move |_, line: &str, _: Option<&RequestLabel>| {
        to.lock().expect("nobody panicked").push(line.to_string())
    };
    let identity = ModuleIdentity::with_sink(name, settings(), Box::new(sink));
    (lines, Arc::new(identity))
}
