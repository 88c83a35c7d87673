//! Helpers for the tests of modules: a site, requests to it, and libraries compiled by the tests.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use lowroad_config::Destination;
use lowroad_engine::stream::Next;
use lowroad_handler::request::Head;
use lowroad_handler::{
    Begun, Body, Content, Failure, Handler, Loading, Objects, Request, Response,
};
use lowroad_http::method::Method;
use lowroad_http::version::Version;
use lowroad_module::linked::linked;
use lowroad_module_host::module::library::LibraryCode;
use lowroad_module_host::module::linked::LinkedCode;
use lowroad_module_host::module::separate::SeparateCode;
use lowroad_module_host::module::{Identity, Limits, Running};

/// A site with one page that is in memory and one that is not.
pub struct Site;

impl Objects for Site {
    fn now(&self, path: &[u8]) -> Option<Bytes> {
        (path == b"/now.html").then(|| Bytes::from_static(b"from memory"))
    }

    fn load(&self, path: &[u8]) -> Loading {
        let page = match path {
            b"/later.html" => Some(Bytes::from_static(b"from disk")),
            _ => self.now(path),
        };
        Box::pin(async move {
            tokio::task::yield_now().await;
            page
        })
    }
}

pub fn request(target: &str) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = (!query.is_empty()).then_some(query.as_bytes());
    let path = path.as_bytes();
    let lines = b"X-Field: value\r\nCookie: a=1; id=7\r\n";
    Request {
        method: Method::Get,
        version: Version::Http11,
        head: Head::new((path, query), path, b"example.com", lines),
        peer: [192, 0, 2, 1].into(),
        peer_port: 40_000,
        local: ([127, 0, 0, 1], 8080).into(),
        secured: None,
        forwarded: None,
        root: Arc::from(Path::new("/srv/site")),
        objects: Arc::new(Site),
        body: Body::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

pub fn settings() -> Vec<(String, String)> {
    vec![("key".to_string(), "set".to_string())]
}

pub fn identity(name: &str, settings: Vec<(String, String)>) -> Arc<Identity> {
    Arc::new(Identity::new(name, settings, None).with_fetch(listed()))
}

/// A server that modules may fetch from; each test plays its role.
pub static OTHER: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind("127.0.0.1:0").expect("a port"));

/// The servers that modules may fetch from.
fn listed() -> Vec<Destination> {
    let other = OTHER.local_addr().expect("an address").to_string();
    [&other, "127.0.0.1:1"]
        .map(|text| Destination::parse(text).expect("a destination"))
        .into()
}

static C: LazyLock<PathBuf> = LazyLock::new(|| {
    let to = scratch("forms.so");
    compile("features.c", &to, &[]);
    to
});

/// The module of features in every form.
pub fn forms(limits: Limits) -> Vec<(&'static str, Arc<dyn Handler>)> {
    let mut forms = forms_in_process(limits);
    forms.push(("separate", separate(limits).1));
    forms
}

/// The library of features in a separate process.
pub fn separate(limits: Limits) -> (Arc<Identity>, Arc<dyn Handler>) {
    let identity = identity("features", settings());
    let runtime = tokio::runtime::Handle::current();
    let code = SeparateCode::open(&C, &identity, 2, &runtime, crate::separate::command);
    let code = Arc::new(code.expect("it starts"));
    (
        identity.clone(),
        Arc::new(Running::new(code, identity, limits)),
    )
}

/// The module of features in the forms that run in this process.
pub fn forms_in_process(limits: Limits) -> Vec<(&'static str, Arc<dyn Handler>)> {
    let identity = identity("features", settings());
    let entry = linked::<crate::features::Features>("features");
    let rust = LinkedCode::start(&entry, &identity, 2).expect("it starts");
    let c = LibraryCode::open(&C, &identity, 2).expect("it loads");
    vec![
        (
            "linked",
            Arc::new(Running::new(Arc::new(rust), identity.clone(), limits)),
        ),
        ("library", Arc::new(Running::new(c, identity, limits))),
    ]
}

/// A file of this test run.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).expect("a folder for scratch files");
    folder.join(name)
}

/// Builds a C file of this folder, and moves it to its place at once.
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

/// Answers a request; returns, too, whether it was answered at once.
pub async fn answer_when(
    handler: &Arc<dyn Handler>,
    request: Request,
) -> (Result<Response, Failure>, bool) {
    match handler.clone().begin(1, request) {
        Begun::Answered(answer) => (answer, true),
        Begun::Later(answer) | Begun::Here(answer) => (answer.await, false),
    }
}

pub async fn answer(handler: &Arc<dyn Handler>, target: &str) -> Result<Response, Failure> {
    answer_when(handler, request(target)).await.0
}

/// The whole body of a response.
pub async fn body(response: Response) -> Vec<u8> {
    match response.content {
        Content::Bytes(bytes) => bytes.to_vec(),
        Content::Stored(_) | Content::Upgrade(_) | Content::Local(_) => {
            panic!("a stored object has no bytes here")
        }
        Content::Stream { stream, .. } => {
            let mut all = Vec::new();
            loop {
                match stream.next().await {
                    Next::Bytes(bytes) => all.extend_from_slice(&bytes),
                    Next::End => return all,
                    Next::Cut => panic!("the stream is cut after {} bytes", all.len()),
                }
            }
        }
    }
}

pub async fn text(handler: &Arc<dyn Handler>, target: &str) -> String {
    let response = answer(handler, target).await.expect("it is answered");
    String::from_utf8(body(response).await).expect("it is text")
}

/// An identity that may fetch nothing, and its lines.
pub fn listening(name: &str) -> (Arc<Mutex<Vec<String>>>, Arc<Identity>) {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let to = lines.clone();
    let sink = move |_, line: &str| to.lock().expect("nobody panicked").push(line.to_string());
    let identity = Identity::with_sink(name, settings(), Box::new(sink));
    (lines, Arc::new(identity))
}
