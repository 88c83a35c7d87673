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
    HELLO, OWN, alone, answer, count, failure, handler, handling, later, module, now, request,
    runtime, text,
};

/// When a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts its calls in its memory and sends the number as a letter, beginning with A; the path /trap
/// traps.
const COUNTING: &str = r#"
    (i32.store8 (i32.const 100) (i32.add (i32.load8_u (i32.const 100)) (i32.const 1)))
    (i32.store8 (i32.const 101) (i32.add (i32.load8_u (i32.const 100)) (i32.const 64)))
    (if (i64.eq (call $get (local.get $call) (i32.const 3) (i32.const 0) (i32.const 0)
            (i32.const 200) (i32.const 10)) (i64.const 5)) (then (unreachable)))
    (drop (call $send (local.get $call) (i32.const 101) (i32.const 1)))
    (i32.const 0)"#;

#[test]
fn a_short_call_is_answered_on_the_worker() {
    let hello = handler(&runtime(), &handling(HELLO), OWN);
    let begin = || hello.clone().begin(0, request("/"));
    // Not all of them, since a busy machine may take the thread away from one.
    assert!((0..100).any(|_| matches!(begin(), HandlerResult::Ready(Ok(_)))));
}

#[test]
fn nothing_is_left_from_one_request_to_the_next() {
    let counting = handler(&runtime(), &handling(COUNTING), OWN);
    for _ in 0..100 {
        assert_eq!(text(now(&counting, "/")), "A");
    }
}

#[test]
fn globals_and_memory_are_as_they_were_at_the_start() {
    // Starts with 66 in a global and in memory; each call sends both, and changes both.
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
    let runtime = alone(RuntimeLimits::default());
    let tested = handler(&runtime, &module(code), OWN);
    for _ in 0..10 {
        assert_eq!(text(now(&tested, "/")), "BB");
    }
    assert!(count(&runtime, "wasm.reused") > 0);
}

#[test]
fn what_cannot_be_put_back_is_made_anew() {
    let table = r#"(table 1 funcref) (elem declare func 0) (func $change (table.set (i32.const 0)
        (ref.null func)))"#;
    let cases = [
        module(&format!(
            r#"{table} (func (export "lowroad_handle") (param $state i32) (param $call i32)
            (param i32 i32) (result i32) {COUNTING})"#
        )),
        handling(&COUNTING.replacen(
            "(i32.store8 (i32.const 100)",
            "(drop (memory.grow (i32.const 1))) (i32.store8 (i32.const 100)",
            1,
        )),
    ];
    for bytes in cases {
        let runtime = alone(RuntimeLimits::default());
        let counting = handler(&runtime, &bytes, OWN);
        for _ in 0..3 {
            assert_eq!(text(now(&counting, "/")), "A");
        }
        assert_eq!(count(&runtime, "wasm.reused"), 0);
    }
}

#[test]
fn what_is_kept_stays_until_it_traps() {
    let keep = WasmModuleLimits { keep: true, ..OWN };
    let runtime = alone(RuntimeLimits::default());
    let counting = handler(&runtime, &handling(COUNTING), keep);
    let made = count(&runtime, "wasm.instances");
    assert_eq!(text(now(&counting, "/")), "A");
    assert_eq!(text(now(&counting, "/")), "B");
    assert_eq!(count(&runtime, "wasm.instances"), made + 1);
    assert_eq!(failure(now(&counting, "/trap")).0, 500);
    assert_eq!(text(now(&counting, "/")), "A");
}

#[tokio::test]
async fn calls_of_a_kept_instance_wait_beside_each_other() {
    let keep = WasmModuleLimits { keep: true, ..OWN };
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
    let waiting = handler(&runtime(), &handling(code), keep);
    let (first, second) = (later(&waiting, request("/")), later(&waiting, request("/")));
    assert_eq!(text(first.await), "B");
    assert_eq!(text(second.await), "B");
}

/// Counts waiting calls, and sends the number as a letter after @ to a request for /count. `gone` is the code that runs
/// when a call is abandoned.
fn waiting(gone: &str) -> Vec<u8> {
    handling(&format!(
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
fn a_kept_instance_hears_of_calls_that_are_given_up() {
    let keep = WasmModuleLimits { keep: true, ..OWN };
    let waiting = handler(&runtime(), &waiting(""), keep);
    let held = [later(&waiting, request("/")), later(&waiting, request("/"))];
    assert_eq!(text(now(&waiting, "/count")), "B");
    for _ in 0..20 {
        drop(later(&waiting, request("/")));
    }
    assert_eq!(text(now(&waiting, "/count")), "B");
    drop(held);
    assert_eq!(text(now(&waiting, "/count")), "@");
}

#[tokio::test]
async fn it_hears_at_once_where_there_is_a_runtime() {
    let keep = WasmModuleLimits { keep: true, ..OWN };
    let runtime = alone(RuntimeLimits::default());
    let waiting = handler(&runtime, &waiting("(unreachable)"), keep);
    drop(later(&waiting, request("/")));
    let told = async {
        while count(&runtime, "wasm.traps") == 0 {
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    assert!(told.is_ok(), "it is told");
    assert_eq!(text(answer(&waiting, "/count").await), "@", "a new one");
}

#[test]
fn a_module_starts_with_its_settings() {
    let code = r#"
        (data (i32.const 50) "key")
        (func (export "lowroad_start") (param $call i32) (result i32)
            (i32.wrap_i64 (call $get (local.get $call) (i32.const 12) (i32.const 50) (i32.const 3)
                (i32.const 60) (i32.const 3))))
        (func (export "lowroad_handle") (param $state i32) (param $call i32) (param i32 i32)
            (result i32)
            (drop (call $send (local.get $call) (i32.const 60) (local.get $state)))
            (i32.const 0))"#;
    let started = handler(&runtime(), &module(code), OWN);
    assert_eq!(text(now(&started, "/")), "set");
}

#[test]
fn a_module_that_cannot_start_says_so() {
    let code = r#"
        (func (export "lowroad_start") (param i32) (result i32) (i32.const 0))
        (func (export "lowroad_handle") (param i32 i32 i32 i32) (result i32) (i32.const 0))"#;
    let (status, detail) = failure(now(&handler(&runtime(), &module(code), OWN), "/"));
    assert_eq!(status, 500);
    assert!(detail.contains("reported a failure"), "{detail}");
}

#[tokio::test]
async fn a_body_is_read_as_it_comes() {
    let code = r#"
        (if (i32.eq (local.get $event) (i32.const 3)) (then (return (i32.const 0))))
        (if (i32.eq (local.get $event) (i32.const 2)) (then
            (local.set $a (i32.wrap_i64
                (call $read (local.get $call) (i32.const 0) (i32.const 100) (i32.const 1000))))
            (drop (call $send (local.get $call) (i32.const 100) (local.get $a)))))
        (i32.const 1)"#;
    let echo = handler(&runtime(), &handling(code), OWN);
    let (sender, receiver) = stream(16);
    let mut asked = request("/");
    asked.body = RequestBody {
        len: None,
        stream: Some(receiver),
    };
    let answering = tokio::spawn(later(&echo, asked));
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
    handling(&format!(
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
async fn a_page_of_the_site_is_fetched() {
    let runtime = alone(RuntimeLimits::default());
    let fetching = handler(&runtime, &fetching("/page"), OWN);
    assert_eq!(text(answer(&fetching, "/").await), "a page");
    // As many instances as wait at a time are reset and used again.
    for reused in [1, 3] {
        let both = [(); 2].map(|()| later(&fetching, request("/")));
        assert_eq!(count(&runtime, "wasm.reused"), reused);
        for one in both {
            assert_eq!(text(one.await), "a page");
        }
    }
}

/// Content in memory is fetched without the runtime and without another thread.
#[test]
fn a_page_in_memory_is_fetched_at_once() {
    let fetching = handler(&runtime(), &fetching("/kept"), OWN);
    // On a busy machine a call may be interrupted.
    let is_answered = |_| match fetching.clone().begin(0, request("/")) {
        HandlerResult::Ready(answer) => text(answer) == "a page",
        HandlerResult::OnRuntime(_) | HandlerResult::OnWorker(_) => false,
    };
    assert!((0..50).any(is_answered));
}

#[test]
fn a_stored_object_does_not_pass_through_the_module() {
    let code = r#"
        (drop (call $send (local.get $call) (i32.const 0) (i32.const 5)))
        (i32.store8 (i32.const 100) (i32.const 47))
        (drop (call $send_stored (local.get $call) (i32.const 100) (i32.const 1)))
        (i32.const 0)"#;
    let answer = now(&handler(&runtime(), &handling(code), OWN), "/");
    match answer.expect("it is answered").content {
        ResponseContent::Stored(around) => assert_eq!(
            (&around.before[..], &around.path[..], &around.after[..]),
            (&b"hello"[..], &b"/"[..], &b""[..])
        ),
        _ => panic!("it is not stored"),
    }
}
