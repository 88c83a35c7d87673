//! WebAssembly modules: their features, and their isolation.

#[path = "wasm/examples.rs"]
mod examples;
#[path = "wasm/harm.rs"]
mod harm;
#[path = "wasm/load.rs"]
mod load;
#[path = "wasm/support.rs"]
mod support;
#[path = "wasm/wasi.rs"]
mod wasi;

use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::stream;
use lowroad_handler::{HandlerResult, RequestBody, ResponseContent};
use lowroad_module_host::wasm::{RuntimeLimits, WasmModuleLimits};

use support::{
    DEFAULT_LIMITS, HELLO, answer, answer_now, count, failure, handler, module, module_with_handle,
    pending_answer, request, runtime, separate_runtime, text, waiting_answer,
};

/// The timeout of a test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Counts its calls in memory, and sends the count as a letter, starting with A; the path /trap traps.
const COUNTING: &str = r#"
    (i32.store8 (i32.const 100) (i32.add (i32.load8_u (i32.const 100)) (i32.const 1)))
    (i32.store8 (i32.const 101) (i32.add (i32.load8_u (i32.const 100)) (i32.const 64)))
    (if (i64.eq (call $get (local.get $call) (i32.const 3) (i32.const 0) (i32.const 0)
            (i32.const 200) (i32.const 10)) (i64.const 5)) (then (unreachable)))
    (drop (call $send (local.get $call) (i32.const 101) (i32.const 1)))
    (i32.const 0)"#;

#[test]
fn short_call_is_answered_on_worker() {
    let hello = handler(&runtime(), &module_with_handle(HELLO), DEFAULT_LIMITS);
    let begin = || hello.clone().begin(0, request("/"));
    // A busy machine may preempt the thread during some calls.
    assert!((0..100).any(|_| matches!(begin(), HandlerResult::Ready(Ok(_)))));
}

#[test]
fn memory_is_reset_between_requests() {
    let counting = handler(&runtime(), &module_with_handle(COUNTING), DEFAULT_LIMITS);
    for _ in 0..100 {
        assert_eq!(text(answer_now(&counting, "/")), "A");
    }
}

#[test]
fn globals_and_memory_are_reset_to_start_state() {
    // Starts with 66 in a global and in memory; each call sends both, then changes both.
    let code = r#"
        (global $kept (mut i32) (i32.const 65))
        (func (export "lowroad_start") (param $call i32) (result i32)
            (global.set $kept (i32.const 66)) (i32.store8 (i32.const 70) (i32.const 66)) (i32.const 1))
        (func (export "lowroad_handle") (param $state i32) (param $call i32) (param i32 i32)
            (result i32)
            (i32.store8 (i32.const 71) (global.get $kept))
            (drop (call $send (local.get $call) (i32.const 70) (i32.const 2)))
            (global.set $kept (i32.const 67)) (i32.store8 (i32.const 70) (i32.const 67))
            (i32.store8 (i32.const 65535) (i32.const 67))
            (if (i32.load8_u (i32.const 40000)) (then (unreachable)))
            (i32.store8 (i32.const 40000) (i32.const 67))
            (i32.const 0))"#;
    let runtime = separate_runtime(RuntimeLimits::default());
    let tested = handler(&runtime, &module(code), DEFAULT_LIMITS);
    for _ in 0..10 {
        assert_eq!(text(answer_now(&tested, "/")), "BB");
    }
    assert!(count(&runtime, "wasm.reused") > 0);
}

#[test]
fn non_resettable_instance_is_not_reused() {
    let table = r#"(table 1 funcref) (elem declare func 0) (func $change (table.set (i32.const 0)
        (ref.null func)))"#;
    let cases = [
        module(&format!(
            r#"{table} (func (export "lowroad_handle") (param $state i32) (param $call i32)
            (param i32 i32) (result i32) {COUNTING})"#
        )),
        module_with_handle(&COUNTING.replacen(
            "(i32.store8 (i32.const 100)",
            "(drop (memory.grow (i32.const 1))) (i32.store8 (i32.const 100)",
            1,
        )),
    ];
    for bytes in cases {
        let runtime = separate_runtime(RuntimeLimits::default());
        let counting = handler(&runtime, &bytes, DEFAULT_LIMITS);
        for _ in 0..3 {
            assert_eq!(text(answer_now(&counting, "/")), "A");
        }
        assert_eq!(count(&runtime, "wasm.reused"), 0);
    }
}

#[test]
fn retained_instance_is_replaced_after_trap() {
    let keep = WasmModuleLimits {
        keep: true,
        ..DEFAULT_LIMITS
    };
    let runtime = separate_runtime(RuntimeLimits::default());
    let counting = handler(&runtime, &module_with_handle(COUNTING), keep);
    let made = count(&runtime, "wasm.instances");
    assert_eq!(text(answer_now(&counting, "/")), "A");
    assert_eq!(text(answer_now(&counting, "/")), "B");
    assert_eq!(count(&runtime, "wasm.instances"), made + 1);
    assert_eq!(failure(answer_now(&counting, "/trap")).0, 500);
    assert_eq!(text(answer_now(&counting, "/")), "A");
}

#[tokio::test]
async fn calls_of_retained_instance_wait_concurrently() {
    let keep = WasmModuleLimits {
        keep: true,
        ..DEFAULT_LIMITS
    };
    // The first event sets a timer; the second sends the number of calls.
    let code = r#"
        (if (i32.eq (local.get $event) (i32.const 1)) (then
            (i32.store8 (i32.const 100) (i32.add (i32.load8_u (i32.const 100)) (i32.const 1)))
            (drop (call $timer (local.get $call) (i32.const 1)))
            (return (i32.const 1))))
        (if (i32.eq (local.get $event) (i32.const 4)) (then
            (i32.store8 (i32.const 101) (i32.add (i32.load8_u (i32.const 100)) (i32.const 64)))
            (drop (call $send (local.get $call) (i32.const 101) (i32.const 1)))
            (return (i32.const 0))))
        (i32.const 1)"#;
    let waiting = handler(&runtime(), &module_with_handle(code), keep);
    let (first, second) = (
        pending_answer(&waiting, request("/")),
        pending_answer(&waiting, request("/")),
    );
    assert_eq!(text(first.await), "B");
    assert_eq!(text(second.await), "B");
}

/// Counts waiting calls, and sends the count as a letter after @ for a request to /count. `gone` is executed when a
/// call is abandoned.
fn waiting(gone: &str) -> Vec<u8> {
    module_with_handle(&format!(
        r#"(if (i32.eq (local.get $event) (i32.const 8)) (then {gone}
            (i32.store8 (i32.const 100) (i32.sub (i32.load8_u (i32.const 100)) (i32.const 1)))
            (return (i32.const 0))))
        (if (i32.ne (local.get $event) (i32.const 1)) (then (return (i32.const 1))))
        (if (i64.eq (i64.const 6) (call $get (local.get $call) (i32.const 3) (i32.const 0)
            (i32.const 0) (i32.const 200) (i32.const 10))) (then
            (i32.store8 (i32.const 101) (i32.add (i32.load8_u (i32.const 100)) (i32.const 64)))
            (drop (call $send (local.get $call) (i32.const 101) (i32.const 1)))
            (return (i32.const 0))))
        (i32.store8 (i32.const 100) (i32.add (i32.load8_u (i32.const 100)) (i32.const 1)))
        (i32.const 1)"#
    ))
}

#[test]
fn abandoned_calls_are_reported_to_retained_instance() {
    let keep = WasmModuleLimits {
        keep: true,
        // A trap for its time would replace the instance: other tests may use both processors.
        compute_ms_max: 60_000,
        ..DEFAULT_LIMITS
    };
    let waiting = handler(&runtime(), &waiting(""), keep);
    let held = [
        waiting_answer(&waiting, request("/")),
        waiting_answer(&waiting, request("/")),
    ];
    assert_eq!(text(answer_now(&waiting, "/count")), "B");
    for _ in 0..20 {
        drop(waiting_answer(&waiting, request("/")));
    }
    assert_eq!(text(answer_now(&waiting, "/count")), "B");
    drop(held);
    assert_eq!(text(answer_now(&waiting, "/count")), "@");
}

#[tokio::test]
async fn abandoned_call_is_reported_immediately_with_runtime() {
    let keep = WasmModuleLimits {
        keep: true,
        ..DEFAULT_LIMITS
    };
    let runtime = separate_runtime(RuntimeLimits::default());
    let waiting = handler(&runtime, &waiting("(unreachable)"), keep);
    drop(pending_answer(&waiting, request("/")));
    let trap_is_counted = async {
        while count(&runtime, "wasm.traps") == 0 {
            tokio::task::yield_now().await;
        }
    };
    let trap_is_counted = tokio::time::timeout(TIMEOUT, trap_is_counted).await;
    assert!(trap_is_counted.is_ok(), "it is told");
    assert_eq!(text(answer(&waiting, "/count").await), "@", "a new one");
}

#[test]
fn settings_are_available_at_start() {
    let code = r#"
        (data (i32.const 50) "key")
        (func (export "lowroad_start") (param $call i32) (result i32)
            (i32.wrap_i64 (call $get (local.get $call) (i32.const 12) (i32.const 50) (i32.const 3)
                (i32.const 60) (i32.const 3))))
        (func (export "lowroad_handle") (param $state i32) (param $call i32) (param i32 i32)
            (result i32)
            (drop (call $send (local.get $call) (i32.const 60) (local.get $state)))
            (i32.const 0))"#;
    let started = handler(&runtime(), &module(code), DEFAULT_LIMITS);
    assert_eq!(text(answer_now(&started, "/")), "set");
}

#[test]
fn failed_start_is_reported() {
    let code = r#"
        (func (export "lowroad_start") (param i32) (result i32) (i32.const 0))
        (func (export "lowroad_handle") (param i32 i32 i32 i32) (result i32) (i32.const 0))"#;
    let (status, detail) = failure(answer_now(
        &handler(&runtime(), &module(code), DEFAULT_LIMITS),
        "/",
    ));
    assert_eq!(status, 500);
    assert!(detail.contains("reported a failure"), "{detail}");
}

#[tokio::test]
async fn body_is_read_in_parts() {
    let code = r#"
        (if (i32.eq (local.get $event) (i32.const 3)) (then (return (i32.const 0))))
        (if (i32.eq (local.get $event) (i32.const 2)) (then
            (local.set $a (i32.wrap_i64
                (call $read (local.get $call) (i32.const 0) (i32.const 100) (i32.const 1000))))
            (drop (call $send (local.get $call) (i32.const 100) (local.get $a)))))
        (i32.const 1)"#;
    let echo = handler(&runtime(), &module_with_handle(code), DEFAULT_LIMITS);
    let (sender, receiver) = stream(16);
    let mut asked = request("/");
    asked.body = RequestBody {
        len: None,
        stream: Some(receiver),
    };
    let answering = tokio::spawn(pending_answer(&echo, asked));
    for part in ["one ", "two ", "three"] {
        sender
            .send(Bytes::from_static(part.as_bytes()))
            .await
            .expect("it is read");
    }
    sender.end();
    assert_eq!(text(answering.await.expect("it ends")), "one two three");
}

/// Fetches a path of five characters and sends the content.
fn fetching(path: &str) -> Vec<u8> {
    let path = path.as_bytes();
    let (start, end) = path.split_first_chunk::<4>().expect("five characters");
    module_with_handle(&format!(
        r#"
        (i32.store (i32.const 100) (i32.const {})) (i32.store8 (i32.const 104) (i32.const {}))
        (if (i32.eq (local.get $event) (i32.const 1)) (then
            (drop (call $fetch (local.get $call) (i32.const 100) (i32.const 5)))))
        (if (i32.ne (local.get $event) (i32.const 5)) (then (return (i32.const 1))))
        (local.set $a (i32.wrap_i64 (call $read (local.get $call) (local.get $number)
            (i32.const 200) (i32.const 100))))
        (drop (call $send (local.get $call) (i32.const 200) (local.get $a)))
        (i32.const 0)"#,
        u32::from_le_bytes(*start),
        end[0]
    ))
}

#[tokio::test]
async fn content_of_site_is_fetched() {
    let runtime = separate_runtime(RuntimeLimits::default());
    let fetching = handler(&runtime, &fetching("/page"), DEFAULT_LIMITS);
    assert_eq!(text(answer(&fetching, "/").await), "a page");
    // As many instances as wait at the same time are reset and reused.
    for reused in [1, 3] {
        let both = [(); 2].map(|()| pending_answer(&fetching, request("/")));
        assert_eq!(count(&runtime, "wasm.reused"), reused);
        for one in both {
            assert_eq!(text(one.await), "a page");
        }
    }
}

/// Content in memory is fetched without the runtime and without another thread.
#[test]
fn content_in_memory_is_fetched_on_worker() {
    let fetching = handler(&runtime(), &fetching("/kept"), DEFAULT_LIMITS);
    // On a busy machine a call may be interrupted.
    let is_answered = |_| match fetching.clone().begin(0, request("/")) {
        HandlerResult::Ready(answer) => text(answer) == "a page",
        HandlerResult::OnRuntime(_) | HandlerResult::OnWorker(_) => false,
    };
    assert!((0..50).any(is_answered));
}

#[test]
fn stored_object_bypasses_module() {
    let code = r#"
        (drop (call $send (local.get $call) (i32.const 0) (i32.const 5)))
        (i32.store8 (i32.const 100) (i32.const 47))
        (drop (call $send_stored (local.get $call) (i32.const 100) (i32.const 1)))
        (i32.const 0)"#;
    let answer = answer_now(
        &handler(&runtime(), &module_with_handle(code), DEFAULT_LIMITS),
        "/",
    );
    match answer.expect("it is answered").content {
        ResponseContent::Stored(around) => assert_eq!(
            (&around.before[..], &around.path[..], &around.after[..]),
            (&b"hello"[..], &b"/"[..], &b""[..])
        ),
        _ => panic!("it is not stored"),
    }
}
