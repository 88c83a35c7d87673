//! Answers many requests with a module, to be counted under callgrind: `valgrind --tool=callgrind
//! target/release/examples/module_cost KIND COUNT [LIBRARY]`. KIND is `none` (the requests are only created), `linked`
//! or `library`. The difference to `none`, divided by COUNT, is the cost of a call.

use std::path::Path;
use std::sync::Arc;

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
use lowroad_module_host::module::library::LibraryCode;
use lowroad_module_host::module::{CallLimits, ModuleHandler, ModuleIdentity};

/// A page of 1 KB.
struct Page(Vec<u8>);

impl Module for Page {
    type Memory = ();

    fn start(_: &mut ModuleSettings<'_>) -> Result<Page, String> {
        Ok(Page(vec![b'x'; 1024]))
    }

    fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: CallEvent) -> CallStep {
        call.field("Content-Type", "text/html");
        call.send(&self.0);
        CallStep::Done
    }
}

struct Nothing;

impl SubrequestSource for Nothing {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(std::future::ready(None))
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let text = |index: usize| arguments.get(index).map_or("", String::as_str);
    let count: usize = text(2).parse().unwrap_or(1000);
    let identity = Arc::new(ModuleIdentity::new("page", Vec::new(), None));
    let handler: Option<Arc<dyn Handler>> = match text(1) {
        "linked" => {
            let code = LinkedCode::start(&linked::<Page>("page"), &identity, 1).expect("it starts");
            Some(Arc::new(ModuleHandler::new(
                Arc::new(code),
                identity,
                CallLimits::default(),
            )))
        }
        "library" => {
            let code = LibraryCode::open(Path::new(text(3)), &identity, 1).expect("it loads");
            Some(Arc::new(ModuleHandler::new(
                code,
                identity,
                CallLimits::default(),
            )))
        }
        _ => None,
    };
    let objects: Arc<dyn SubrequestSource> = Arc::new(Nothing);
    let root: Arc<Path> = Arc::from(Path::new("/srv"));
    for _ in 0..count {
        let request = request(&objects, &root);
        let Some(handler) = &handler else {
            drop(std::hint::black_box(request));
            continue;
        };
        let HandlerResult::Ready(answer) = handler.clone().begin(0, request) else {
            panic!("it is answered at once");
        };
        drop(std::hint::black_box(answer));
    }
}

fn request(objects: &Arc<dyn SubrequestSource>, root: &Arc<Path>) -> HandlerRequest {
    HandlerRequest {
        method: Method::Get,
        version: HttpVersion::Http11,
        head: RequestHead::new(
            RawTarget {
                path: b"/",
                query: None,
            },
            b"/",
            b"localhost",
            b"Host: localhost\r\n",
        ),
        peer: [127, 0, 0, 1].into(),
        peer_port: 40_000,
        local: ([127, 0, 0, 1], 80).into(),
        tls: None,
        forwarded: None,
        root: root.clone(),
        objects: objects.clone(),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}
