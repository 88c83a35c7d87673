//! Features of libraries in a separate process: a crash or hang affects only that process.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use lowroad_engine::stream::StreamItem;
use lowroad_handler::{Handler, HandlerResult, ResponseContent};
use lowroad_http::status::StatusCode;
use lowroad_module_host::module::out_of_process::{SeparateCode, serve};
use lowroad_module_host::module::{CallLimits, ModuleHandler, ModuleIdentity};

use crate::support::{answer, compile, identity, request, scratch, separate, settings, text};

const SERVES: &str = "LOWROAD_TEST_SERVES";

/// A process of this test program that only serves a module.
pub fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it is known"));
    let only = [
        "--exact",
        "separate::serve_module_if_child_process",
        "--quiet",
    ];
    command
        .args(only)
        .env(SERVES, "1")
        .stdout(std::process::Stdio::null());
    command
}

#[test]
fn serve_module_if_child_process() {
    use std::os::fd::AsFd;
    if std::env::var_os(SERVES).is_some() {
        let socket = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .expect("a socket");
        serve(socket.into()).expect("the other end keeps to the rules");
        std::process::exit(0);
    }
}

#[tokio::test]
async fn unusable_library_is_reported() {
    let path = scratch("separate-none.so");
    std::fs::write(&path, "no library at all").expect("it is written");
    let runtime = tokio::runtime::Handle::current();
    let identity = identity("library", Vec::new());
    let message = SeparateCode::open(&path, &identity, 1, &runtime, command);
    let message = message.err().expect("it does not start");
    assert!(message.contains("incomplete ELF file"), "{message}");
}

#[tokio::test]
async fn crash_fails_only_its_own_requests_with_502() {
    let (identity, handler) = separate(CallLimits::default());
    let HandlerResult::OnRuntime(held) = handler.clone().begin(0, request("/forever")) else {
        panic!("it waits");
    };
    let held = tokio::spawn(held);
    assert_eq!(text(&handler, "/version").await, "1");
    let failure = answer(&handler, "/crash").await.err().expect("it crashes");
    assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
    assert!(
        failure.detail.contains("its process died"),
        "{}",
        failure.detail
    );
    let failure = held
        .await
        .expect("no panic")
        .err()
        .expect("it had a call there");
    assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
    works_again(&identity, &handler).await;
}

/// Calls queued behind one that crashes the module have not begun: the next process answers them.
#[tokio::test]
async fn calls_queued_behind_a_crash_are_repeated() {
    let (identity, handler) = separate(CallLimits::default());
    for crashes in 1..=4 {
        // All calls are sent before the process gets the first one: this thread polls them in this order, then sends.
        let begin = |target: &str| match handler.clone().begin(0, request(target)) {
            HandlerResult::OnRuntime(call) => tokio::spawn(call),
            _ => panic!("it waits"),
        };
        let ends = begin("/crash");
        // Long requests are still unread in the socket when the process dies.
        let query = "x".repeat(20_000 * (crashes as usize % 2));
        let target = format!("/version?{query}");
        let behind: Vec<_> = (0..8).map(|_| begin(&target)).collect();
        let failure = ends.await.expect("no panic").err().expect("it crashes");
        assert_eq!(
            failure.status,
            StatusCode::BAD_GATEWAY,
            "{}",
            failure.detail
        );
        for call in behind {
            let response = call.await.expect("no panic");
            let response = response.unwrap_or_else(|failure| panic!("{}", failure.detail));
            assert_eq!(response.status, StatusCode::OK);
        }
        assert_eq!(identity.counts.crashes.load(Relaxed), crashes);
    }
}

/// However often a request crashes the module, the next call is answered by the spare process, or waits for a new one.
#[tokio::test]
async fn repeated_crashes_do_not_fail_later_calls() {
    let (identity, handler) = separate(CallLimits::default());
    for crashes in 1..=12 {
        let failure = answer(&handler, "/crash").await.err().expect("it crashes");
        assert_eq!(
            failure.status,
            StatusCode::BAD_GATEWAY,
            "{}",
            failure.detail
        );
        assert_eq!(identity.counts.crashes.load(Relaxed), crashes);
        assert_eq!(text(&handler, "/version").await, "1");
    }
}

#[tokio::test]
async fn module_that_cannot_restart_fails_immediately() {
    let (path, away) = (scratch("separate-gone.so"), scratch("separate-away.so"));
    compile("features.c", &path, &[]);
    let identity = identity("features", settings());
    let runtime = tokio::runtime::Handle::current();
    let code = SeparateCode::open(&path, &identity, 1, &runtime, command).expect("it starts");
    let handler: Arc<dyn Handler> = Arc::new(ModuleHandler::new(
        Arc::new(code),
        identity.clone(),
        CallLimits::default(),
    ));
    std::fs::rename(&path, &away).expect("it is moved");
    // The active process, the spare, and one that was already starting.
    let mut crashes = 0;
    let failure = loop {
        let failure = answer(&handler, "/crash").await.err().expect("it crashes");
        if failure.status == StatusCode::SERVICE_UNAVAILABLE {
            break failure;
        }
        crashes += 1;
        assert!(crashes <= 3, "{}", failure.detail);
    };
    assert!(
        failure.detail.contains("does not start"),
        "{}",
        failure.detail
    );
    std::fs::rename(&away, &path).expect("it is moved");
    while answer(&handler, "/version").await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn call_is_resumed_by_another_call_in_process() {
    let (_, handler) = separate(CallLimits::default());
    let response = answer(&handler, "/hold").await.expect("it is answered");
    let ResponseContent::Stream { stream, .. } = response.content else {
        panic!("it is a stream");
    };
    let StreamItem::Bytes(ticket) = stream.next().await else {
        panic!("the ticket comes first");
    };
    let ticket = u64::from_ne_bytes(ticket[..].try_into().expect("8 bytes"));
    assert_eq!(text(&handler, &format!("/wake?{ticket}")).await, "1");
    assert_eq!(
        stream.next().await,
        StreamItem::Bytes(Bytes::from_static(b"continued"))
    );
    assert_eq!(stream.next().await, StreamItem::End);
}

#[tokio::test]
async fn hanging_module_is_killed_and_restarted() {
    let limits = CallLimits {
        timeout_ms: 300,
        ..CallLimits::default()
    };
    let (identity, handler) = separate(limits);
    let failure = answer(&handler, "/loop").await.err().expect("it hangs");
    assert_eq!(failure.status, StatusCode::GATEWAY_TIMEOUT);
    works_again(&identity, &handler).await;
}

async fn works_again(identity: &Arc<ModuleIdentity>, handler: &Arc<dyn Handler>) {
    while answer(handler, "/version").await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(identity.counts.crashes.load(Relaxed), 1);
}
