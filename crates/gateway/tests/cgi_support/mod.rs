//! Requests to a handler without a server, and their responses.

#![allow(dead_code, reason = "each test program uses its part")]

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use lowroad_child_processes::message::PacketChannel;
use lowroad_config::{
    CgiConfig, FastCgiConfig, PathPattern, RouteConfig, RouteTo, UpstreamAddress,
};
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_gateway::cgi::spawner::{CgiSpawner, serve};
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, RequestBody,
    ResponseContent, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_testkit::TEST_TIMEOUT;
use lowroad_variables::{Template, TemplateScope};

/// Provides no subrequests.
struct NoObjects;

impl SubrequestSource for NoObjects {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }
    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(async { None })
    }
}

/// A runtime with the settings of the server.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A GET request without a body.
pub fn get(root: &Path, target: &str) -> HandlerRequest {
    HandlerRequest {
        method: Method::Get,
        version: HttpVersion::Http11,
        head: head(target, "Host: example.org:8080\r\nX-Test: 1\r\n"),
        peer: "192.0.2.7".parse().expect("an address"),
        peer_port: 40_000,
        local: "192.0.2.1:8080".parse().expect("an address"),
        tls: None,
        forwarded: None,
        root: Arc::from(root),
        objects: Arc::new(NoObjects),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

/// The request head for a target, with these field lines.
pub fn head(target: &str, lines: &str) -> RequestHead {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (target, None),
    };
    let path = path.as_bytes();
    RequestHead::new(
        RawTarget { path, query },
        path,
        b"example.org:8080",
        lines.as_bytes(),
    )
}

/// A POST request with this body.
pub fn post(root: &Path, target: &str, body: &[u8]) -> HandlerRequest {
    let mut request = get(root, target);
    let (sender, receiver) = stream(1);
    if !body.is_empty() {
        sender
            .push(Bytes::copy_from_slice(body))
            .expect("just made");
    }
    sender.end();
    request.method = Method::Post;
    request.head = head(target, "Content-Type: text/plain\r\n");
    request.body = RequestBody {
        len: Some(body.len() as u64),
        stream: Some(receiver),
    };
    request
}

/// A PUT request with a body of `len` bytes that are generated as they are read. Must be called within a runtime.
pub fn upload(root: &Path, target: &str, len: u64) -> HandlerRequest {
    let mut request = get(root, target);
    let (sender, receiver) = stream(64 << 10);
    tokio::spawn(async move {
        let piece = Bytes::from(vec![b'x'; 16 << 10]);
        let mut left = len;
        while left > 0 {
            let n = left.min(piece.len() as u64);
            if sender.send(piece.slice(..n as usize)).await.is_err() {
                return;
            }
            left -= n;
        }
        sender.end();
    });
    request.method = Method::Put;
    request.head = head(target, "Content-Type: application/octet-stream\r\n");
    request.body = RequestBody {
        len: Some(len),
        stream: Some(receiver),
    };
    request
}

/// Sends a request to a handler, on worker 0.
pub async fn send_request<H: Handler + 'static>(
    handler: &Arc<H>,
    request: HandlerRequest,
) -> Result<HandlerResponse, HandlerFailure> {
    send_request_on(handler, 0, request).await
}

/// Sends a request to a handler, on a given worker.
pub async fn send_request_on<H: Handler + 'static>(
    handler: &Arc<H>,
    worker: usize,
    request: HandlerRequest,
) -> Result<HandlerResponse, HandlerFailure> {
    match handler.clone().begin(worker, request) {
        HandlerResult::Ready(answer) => answer,
        HandlerResult::OnRuntime(answering) | HandlerResult::OnWorker(answering) => {
            tokio::time::timeout(TEST_TIMEOUT, answering)
                .await
                .expect("an answer in time")
        }
    }
}

/// A response with a completely read body.
#[derive(Debug)]
pub struct CollectedResponse {
    /// The status code.
    pub status: u16,
    pub fields: Vec<(String, String)>,
    /// The declared length.
    pub len: Option<u64>,
    pub body: String,
    /// Whether the body was truncated.
    pub cut: bool,
}

impl CollectedResponse {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Reads a response to its end.
pub async fn collect_response(response: HandlerResponse) -> CollectedResponse {
    let (len, body, cut) = match response.content {
        ResponseContent::Bytes(bytes) => (Some(bytes.len() as u64), bytes.to_vec(), false),
        ResponseContent::Stream { len, stream } => {
            let mut body = Vec::new();
            let cut = loop {
                match tokio::time::timeout(TEST_TIMEOUT, stream.next())
                    .await
                    .expect("in time")
                {
                    StreamItem::Bytes(bytes) => body.extend_from_slice(&bytes),
                    StreamItem::End => break false,
                    StreamItem::Cut => break true,
                }
            };
            (len, body, cut)
        }
        ResponseContent::Stored(_)
        | ResponseContent::Upgrade(_)
        | ResponseContent::LocalRedirect(_) => {
            panic!("nothing is stored or changed")
        }
    };
    CollectedResponse {
        status: response.status.code(),
        fields: response
            .fields
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value).into()))
            .collect(),
        len,
        body: String::from_utf8_lossy(&body).into(),
        cut,
    }
}

/// Sends a request, and reads the response to its end.
pub async fn fetch<H: Handler + 'static>(
    handler: &Arc<H>,
    request: HandlerRequest,
) -> CollectedResponse {
    match send_request(handler, request).await {
        Ok(response) => collect_response(response).await,
        Err(failure) => panic!("{failure:?}"),
    }
}

/// The failure of a request.
pub async fn fail<H: Handler + 'static>(
    handler: &Arc<H>,
    request: HandlerRequest,
) -> HandlerFailure {
    match send_request(handler, request).await {
        Ok(response) => panic!("{:?}", collect_response(response).await),
        Err(failure) => failure,
    }
}

/// Collects the notices that a handler sends to the operator.
#[derive(Clone, Default)]
pub struct Notices(Arc<Mutex<Vec<String>>>);

impl Notices {
    /// A callback that records notices.
    pub fn notice(&self) -> OperatorNotice {
        let lines = self.0.clone();
        Arc::new(move |line, _| lines.lock().expect("a lock").push(line.to_string()))
    }

    /// All notices so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().expect("a lock").clone()
    }

    /// Waits for a notice that contains `text`.
    pub async fn wait_for(&self, text: &str) -> String {
        until(text, || {
            let lines = self.0.lock().expect("a lock");
            lines.iter().find(|line| line.contains(text)).cloned()
        })
        .await
    }
}

/// Waits until `look` returns a value; `what` names that value in the failure message.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + TEST_TIMEOUT;
    while tokio::time::Instant::now() < end {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("in vain: {what}");
}

const STARTS: &str = "LOWROAD_TEST_STARTS";

/// A spawner with another instance of this test program as its process.
pub fn new_spawner(notices: &Notices) -> Arc<CgiSpawner> {
    let command = || {
        let mut command = Command::new(std::env::current_exe().expect("it is known"));
        let only = [
            "--exact",
            "cgi_support::spawner_process_for_tests",
            "--quiet",
        ];
        command.args(only).env(STARTS, "1");
        command
    };
    CgiSpawner::new(command, notices.notice())
}

/// The spawner that all tests share.
pub fn spawner() -> Arc<CgiSpawner> {
    static ONE: OnceLock<Arc<CgiSpawner>> = OnceLock::new();
    ONE.get_or_init(|| new_spawner(&Notices::default())).clone()
}

#[test]
fn spawner_process_for_tests() {
    if std::env::var_os(STARTS).is_some() {
        let channel = PacketChannel::to_parent().expect("a socket");
        serve(channel).expect("what it needs");
        std::process::exit(0);
    }
}

/// A route to programs in a folder.
pub fn cgi_route(pattern: &str, folder: &Path) -> (RouteConfig, CgiConfig) {
    let part = Template::parse("$client $1 $header_x_test", TemplateScope::fields(1));
    let part = part.expect("a template");
    let cgi = CgiConfig {
        path: Some(folder.to_path_buf()),
        env: vec![
            ("MODE".to_string(), Template::literal("test")),
            ("PART".to_string(), part),
        ],
        memory_len_max: 1 << 30,
        cpu_s_max: 30,
        processes_max: 0,
        user: None,
    };
    (route(pattern, RouteTo::Cgi(cgi.clone())), cgi)
}

/// A route to a FastCGI server.
pub fn fastcgi_route(pattern: &str, address: UpstreamAddress) -> (RouteConfig, FastCgiConfig) {
    let fastcgi = FastCgiConfig {
        connections_max: 8,
        keeps_connections: true,
        ..FastCgiConfig::new(address)
    };
    (route(pattern, RouteTo::FastCgi(fastcgi.clone())), fastcgi)
}

fn route(pattern: &str, to: RouteTo) -> RouteConfig {
    RouteConfig {
        timeout_ms: 10_000,
        concurrency_max: 64,
        ..RouteConfig::new(PathPattern::parse(pattern).expect("a pattern"), to)
    }
}

/// The peak memory of this process, in KiB.
pub fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits = line.and_then(|line| line.split_whitespace().nth(1));
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}
