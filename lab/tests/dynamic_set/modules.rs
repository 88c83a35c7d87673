//! The module in the server's own module hosts: as a shared library and as WebAssembly.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use lowroad_config::{AllowedDestination, ModuleCode, ModuleConfig};
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerRequest, HandlerResponse, HandlerResult, RequestBody, ResponseContent,
    SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_module_host::module::{CallLimits, ModuleHandle, open_native};
use lowroad_module_host::wasm;

use crate::fronts::{BuiltFronts, ComparedResponse, TestFileSet, TestRequest, get};

/// The files of a set, with its data at `/specweb99-data`. Short files count as cached in memory.
struct Site(PathBuf);

impl Site {
    fn read(&self, path: &[u8]) -> Option<Bytes> {
        let path = std::str::from_utf8(path).ok()?;
        let folder = match path.starts_with("/specweb99-data/") {
            true => "",
            false => "site",
        };
        let path = self.0.join(folder).join(&path[1..]);
        std::fs::read(path).ok().map(Bytes::from)
    }
}

impl SubrequestSource for Site {
    fn find_in_memory(&self, path: &[u8]) -> Option<Bytes> {
        self.read(path).filter(|bytes| bytes.len() < 4096)
    }

    fn load(&self, path: &[u8]) -> SubrequestLoad {
        let bytes = self.read(path);
        Box::pin(async move {
            tokio::task::yield_now().await;
            bytes
        })
    }
}

/// A loaded module.
pub struct Host {
    handler: Arc<dyn Handler>,
    site: Arc<Site>,
}

impl Host {
    pub fn library(built: &BuiltFronts, data: &TestFileSet) -> Host {
        let code = ModuleCode::Library(built.file("specweb99.so"));
        let module = ModuleConfig {
            settings: vec![("data".into(), data.folder().display().to_string())],
            ..ModuleConfig::new("specweb99".into(), code)
        };
        let opened = open_native(&module, &[], 2, None).expect("it loads");
        Host::new(&*opened.expect("a library"), data)
    }

    /// Loads the WebAssembly module; `None` if it was not built. Forms are sent to `log`.
    pub fn wasm(built: &BuiltFronts, data: &TestFileSet, log: SocketAddr) -> Option<Host> {
        let file = built.file("specweb99.wasm");
        if !file.is_file() {
            return None;
        }
        let module = ModuleConfig {
            settings: vec![
                ("data".into(), "/specweb99-data".into()),
                ("log".into(), format!("http://{log}/log")),
            ],
            fetch: vec![AllowedDestination::parse(&log.to_string()).expect("a destination")],
            ..ModuleConfig::new("specweb99".into(), ModuleCode::Wasm(file))
        };
        let runtime = wasm::WasmRuntime::new(wasm::RuntimeLimits::default()).expect("a runtime");
        let opened = wasm::open(&runtime, &module, 2, None).expect("it loads");
        Some(Host::new(&*opened, data))
    }

    fn new(opened: &dyn ModuleHandle, data: &TestFileSet) -> Host {
        Host {
            handler: opened.handler(CallLimits::default(), None),
            site: Arc::new(Site(data.path())),
        }
    }

    /// Calls the module; also returns whether the response was ready immediately.
    pub async fn ask(&self, ask: &TestRequest) -> (ComparedResponse, bool) {
        match self.handler.clone().begin(0, self.request(ask)) {
            HandlerResult::Ready(answer) => {
                let answer = answer.unwrap_or_else(|failure| panic!("{ask:?}: {failure:?}"));
                (self.read(answer).await, true)
            }
            HandlerResult::OnRuntime(answer) | HandlerResult::OnWorker(answer) => {
                let answer = answer.await;
                let answer = answer.unwrap_or_else(|failure| panic!("{ask:?}: {failure:?}"));
                (self.read(answer).await, false)
            }
        }
    }

    fn request(&self, ask: &TestRequest) -> HandlerRequest {
        let lines = match ask.cookie.as_str() {
            "" => String::new(),
            cookie => format!("Cookie: {cookie}\r\n"),
        };
        let body = match ask.method {
            "POST" => posted(&ask.form),
            _ => RequestBody::none(),
        };
        HandlerRequest {
            method: match ask.method {
                "POST" => Method::Post,
                _ => Method::Get,
            },
            version: HttpVersion::Http11,
            head: RequestHead::new(
                RawTarget {
                    path: b"/specweb99",
                    query: Some(ask.query.as_bytes()),
                },
                b"/specweb99",
                b"h",
                lines.as_bytes(),
            ),
            peer: [127, 0, 0, 1].into(),
            peer_port: 40_000,
            local: ([127, 0, 0, 1], 8080).into(),
            tls: None,
            forwarded: None,
            root: Arc::from(self.site.0.join("site")),
            objects: self.site.clone(),
            body,
            interims: Default::default(),
            extra: Default::default(),
        }
    }

    /// Converts a response as the server does.
    async fn read(&self, response: HandlerResponse) -> ComparedResponse {
        let field = |name: &str| {
            let found = response.fields.values(name).next();
            found.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let body = match &response.content {
            ResponseContent::Bytes(bytes) => bytes.to_vec(),
            ResponseContent::Stored(around) => {
                let file = self.site.read(&around.path).expect("the site has it");
                [&around.before[..], &file, &around.after].concat()
            }
            ResponseContent::Stream { stream, .. } => {
                let mut all = Vec::new();
                while let StreamItem::Bytes(bytes) = stream.next().await {
                    all.extend_from_slice(&bytes);
                }
                all
            }
            ResponseContent::Upgrade(_) | ResponseContent::LocalRedirect(_) => Vec::new(),
        };
        ComparedResponse {
            status: response.status.code(),
            content_type: field("Content-Type").unwrap_or_default(),
            set_cookie: field("Set-Cookie"),
            body,
        }
    }
}

fn posted(form: &str) -> RequestBody {
    let (sender, receiver) = stream(16);
    for part in form.as_bytes().chunks(40) {
        sender.push(Bytes::copy_from_slice(part)).expect("room");
    }
    sender.end();
    RequestBody {
        len: Some(form.len() as u64),
        stream: Some(receiver),
    }
}

/// A server that answers all requests with the CGI program, until the test ends.
pub fn serve_cgi(built: &Arc<BuiltFronts>, data: &Arc<TestFileSet>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (built, data) = (built.clone(), data.clone());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (built, data) = (built.clone(), data.clone());
            thread::spawn(move || answer(client, &built, &data));
        }
    });
    address
}

fn answer(client: TcpStream, built: &BuiltFronts, data: &TestFileSet) {
    let mut lines = BufReader::new(&client).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    for line in lines {
        if line.is_empty() {
            break;
        }
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let answer = built.cgi(data, &get(query, ""));
    let head = format!(
        "HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.body.len()
    );
    let mut client = &client;
    let _ = client.write_all(head.as_bytes());
    let _ = client.write_all(&answer.body);
}
