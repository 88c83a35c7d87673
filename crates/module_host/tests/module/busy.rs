//! A built-in module is busy on the runtime when another request for it arrives at the same worker.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lowroad_handler::{Handler, HandlerResult};
use lowroad_http::status::StatusCode;
use lowroad_module::builtin::linked;
use lowroad_module::{Call, CallEvent, CallStep, Module, ModuleSettings};
use lowroad_module_host::module::builtin::LinkedCode;
use lowroad_module_host::module::{CallLimits, ModuleHandler};

use super::support::{identity, request};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Channels with which the module reports that it is busy, and waits until the test releases it.
static WORK: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

struct Slow;

impl Module for Slow {
    type Memory = ();

    fn start(_: &mut ModuleSettings<'_>) -> Result<Slow, String> {
        Ok(Slow)
    }

    fn handle(&mut self, call: &mut Call<'_>, _: &mut (), event: CallEvent) -> CallStep {
        match (call.path().as_str(), event) {
            ("/slow", CallEvent::Request) => {
                call.timer(0);
                CallStep::Wait
            }
            ("/slow", CallEvent::Timer) => {
                let work = WORK.lock().unwrap_or_else(PoisonError::into_inner);
                let (begun, go_on) = work.as_ref().expect("set by the test");
                begun.send(()).expect("the test listens");
                go_on.recv_timeout(TIMEOUT).expect("the test goes on");
                CallStep::Done
            }
            ("/slow", _) => CallStep::Wait,
            _ => CallStep::Done,
        }
    }
}

/// If the module is busy, the worker leaves the call to the runtime instead of waiting.
#[test]
fn worker_does_not_wait_for_busy_module() {
    let ((begun, at_work), (finish, go_on)) = (channel(), channel());
    *WORK.lock().expect("only here") = Some((begun, go_on));
    let identity = identity("slow", Vec::new());
    let code = LinkedCode::start(&linked::<Slow>("slow"), &identity, 1).expect("it starts");
    let handler = Arc::new(ModuleHandler::new(
        Arc::new(code),
        identity,
        CallLimits::default(),
    ));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");

    let HandlerResult::OnRuntime(slow) = handler.clone().begin(0, request("/slow")) else {
        panic!("it waits for its timer");
    };
    let slow = runtime.spawn(slow);
    at_work.recv_timeout(TIMEOUT).expect("it is at work");
    let (begin_returned, begin_returned_receiver) = channel();
    let worker = std::thread::spawn(move || {
        let begun = handler.begin(0, request("/"));
        begin_returned.send(()).expect("the test listens");
        begun
    });
    begin_returned_receiver
        .recv_timeout(TIMEOUT)
        .expect("the worker goes on");
    finish.send(()).expect("it waits");
    let HandlerResult::OnRuntime(other) = worker.join().expect("no panic") else {
        panic!("the module was at work");
    };
    let answer = runtime.block_on(other).expect("it is answered");
    assert_eq!(answer.status, StatusCode::OK);
    assert!(runtime.block_on(slow).expect("no panic").is_ok());
}
