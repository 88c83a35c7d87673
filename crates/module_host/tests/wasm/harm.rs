//! Modules that trap, loop, allocate, recurse, pass bad pointers, or never free memory: the request fails, and nothing
//! else is affected.

use std::sync::Arc;

use lowroad_handler::Handler;
use lowroad_module_host::wasm::{RuntimeLimits, WasmModuleLimits, WasmRuntime};

use crate::support::{
    DEFAULT_LIMITS, HELLO, answer, answer_now, count, failure, handler, module, module_with_handle,
    pending_answer, request, runtime, separate_runtime, text,
};

/// The number of instances that are not idle.
fn busy(runtime: &WasmRuntime) -> u64 {
    count(runtime, "wasm.now_instances") - count(runtime, "wasm.now_resting")
}

const ENDLESS: &str = "(loop $on (br $on)) (i32.const 0)";

fn hello(runtime: &Arc<WasmRuntime>) -> Arc<dyn Handler> {
    handler(runtime, &module_with_handle(HELLO), DEFAULT_LIMITS)
}

#[test]
fn trap_gets_500_and_is_counted() {
    let cases = [
        ("(unreachable)", "unreachable"),
        ("(i32.load (i32.const 0x7fffffff))", "out of bounds"),
        ("(i32.div_u (i32.const 1) (local.get $a))", "divide by zero"),
        ("(i32.trunc_f32_s (f32.const nan))", "invalid conversion"),
    ];
    let runtime = separate_runtime(RuntimeLimits::default());
    let hello = hello(&runtime);
    for (number, (code, reason)) in (1..).zip(cases) {
        let (status, detail) = failure(answer_now(
            &handler(&runtime, &module_with_handle(code), DEFAULT_LIMITS),
            "/",
        ));
        assert_eq!(status, 500);
        assert!(detail.starts_with("module tested: it trapped"), "{detail}");
        assert!(detail.contains(reason), "{detail}");
        assert!(!detail.contains('\n'), "{detail}");
        assert_eq!(count(&runtime, "wasm.traps"), number);
        assert_eq!(text(answer_now(&hello, "/")), "hello");
    }
    assert_eq!(busy(&runtime), 0);
}

#[test]
fn endless_recursion_traps() {
    let code = r#"
        (func $deep (param i32) (result i32) (call $deep (i32.add (local.get 0) (i32.const 1))))
        (func (export "lowroad_handle") (param i32 i32 i32 i32) (result i32)
            (call $deep (i32.const 0)))"#;
    let (status, detail) = failure(answer_now(
        &handler(&runtime(), &module(code), DEFAULT_LIMITS),
        "/",
    ));
    assert_eq!(status, 500);
    assert!(detail.contains("stack overflow"), "{detail}");
}

#[tokio::test]
async fn endless_loop_yields_and_times_out() {
    let runtime = separate_runtime(RuntimeLimits::default());
    let (endless, hello) = (
        handler(&runtime, &module_with_handle(ENDLESS), DEFAULT_LIMITS),
        hello(&runtime),
    );
    // On a single thread: if the loop never yielded, nothing after this line would run.
    let looping = tokio::spawn(pending_answer(&endless, request("/")));
    let mut answered = 0;
    while !looping.is_finished() {
        assert_eq!(text(answer_now(&hello, "/")), "hello");
        answered += 1;
        tokio::task::yield_now().await;
    }
    assert!(answered > 1, "{answered}");
    let (status, detail) = failure(looping.await.expect("it ends"));
    assert_eq!(status, 500);
    assert!(detail.contains("more than 200 ms"), "{detail}");
    assert_eq!(count(&runtime, "wasm.deadlines"), 1);
    assert_eq!(count(&runtime, "wasm.traps"), 0);
    assert_eq!(busy(&runtime), 0);
}

#[tokio::test]
async fn abandoned_loop_ends() {
    let own = WasmModuleLimits {
        compute_ms_max: u64::MAX,
        ..DEFAULT_LIMITS
    };
    for keep in [false, true] {
        let runtime = separate_runtime(RuntimeLimits::default());
        let endless = handler(
            &runtime,
            &module_with_handle(ENDLESS),
            WasmModuleLimits { keep, ..own },
        );
        drop(pending_answer(&endless, request("/")));
        assert_eq!(busy(&runtime), 0);
    }
}

#[test]
fn memory_growth_stops_at_module_limit() {
    let runtime = separate_runtime(RuntimeLimits::default());
    // Grows by one page until growth fails, then sends as many bytes as it has pages.
    let code = r#"
        (block $full (loop $on
            (br_if $full (i32.eq (memory.grow (i32.const 1)) (i32.const -1)))
            (br $on)))
        (drop (call $send (local.get $call) (i32.const 1000) (memory.size)))
        (i32.const 0)"#;
    let growing = handler(&runtime, &module_with_handle(code), DEFAULT_LIMITS);
    assert_eq!(text(answer_now(&growing, "/")).len(), 16, "1 MiB");
    assert_eq!(count(&runtime, "wasm.memory_refused"), 1);
    assert_eq!(count(&runtime, "wasm.now_memory_bytes"), 0);
}

#[test]
fn memory_growth_stops_at_limit_of_all_instances() {
    let runtime = separate_runtime(RuntimeLimits {
        memory_len_max: 320 << 10,
        ..RuntimeLimits::default()
    });
    // Allocates three pages and waits.
    let code = r#"
        (if (i32.eq (memory.grow (i32.const 2)) (i32.const -1)) (then (unreachable)))
        (i32.const 1)"#;
    let growing = handler(&runtime, &module_with_handle(code), DEFAULT_LIMITS);
    let first = pending_answer(&growing, request("/"));
    assert_eq!(failure(answer_now(&growing, "/")).0, 500);
    assert_eq!(count(&runtime, "wasm.memory_refused"), 1);
    drop(first);
    drop(pending_answer(&growing, request("/")));
    assert_eq!(count(&runtime, "wasm.now_memory_bytes"), 0);
}

#[test]
fn out_of_bounds_pointers_are_refused() {
    let calls = [
        "(call $send (local.get $call) (i32.const -16) (i32.const 32))",
        "(call $send (local.get $call) (i32.const 65530) (i32.const 7))",
        "(call $send (local.get $call) (i32.const 1) (i32.const -1))",
        "(call $field (local.get $call) (i32.const 0) (i32.const 1) (i32.const 65536) (i32.const 1))",
        "(call $log (local.get $call) (i32.const 0) (i32.const -1) (i32.const 1))",
        "(call $fetch (local.get $call) (i32.const 70000) (i32.const 1))",
        "(call $send_stored (local.get $call) (i32.const 70000) (i32.const 0))",
        "(i32.wrap_i64 (call $get (local.get $call) (i32.const 1) (i32.const 0) (i32.const 0)
            (i32.const 65535) (i32.const 2)))",
        "(i32.wrap_i64 (call $get (local.get $call) (i32.const 7) (i32.const -1) (i32.const 2)
            (i32.const 0) (i32.const 2)))",
        "(i32.wrap_i64 (call $read (local.get $call) (i32.const 0) (i32.const -1) (i32.const -1)))",
    ];
    let runtime = separate_runtime(RuntimeLimits::default());
    for (number, call) in (1..).zip(calls) {
        let code = format!("(if (i32.ne {call} (i32.const -1)) (then (unreachable))) {HELLO}");
        assert_eq!(
            text(answer_now(
                &handler(&runtime, &module_with_handle(&code), DEFAULT_LIMITS),
                "/"
            )),
            "hello",
            "{call}"
        );
        assert_eq!(count(&runtime, "wasm.bad_pointers"), number, "{call}");
    }
}

#[test]
fn number_of_another_call_is_refused() {
    let code = format!(
        r#"(if (i32.ne (i32.const -1)
            (call $send (i32.add (local.get $call) (i32.const 1)) (i32.const 0) (i32.const 5)))
            (then (unreachable))) {HELLO}"#
    );
    assert_eq!(
        text(answer_now(
            &handler(&runtime(), &module_with_handle(&code), DEFAULT_LIMITS),
            "/"
        )),
        "hello"
    );
}

#[tokio::test]
async fn full_pool_gets_503_and_is_counted() {
    let runtime = separate_runtime(RuntimeLimits {
        instances_max: 8,
        ..RuntimeLimits::default()
    });
    let code = format!(
        r#"(if (i32.eq (local.get $event) (i32.const 1)) (then
            (drop (call $timer (local.get $call) (i32.const 50)))))
           (if (i32.ne (local.get $event) (i32.const 4)) (then (return (i32.const 1)))) {HELLO}"#
    );
    let waiting = handler(&runtime, &module_with_handle(&code), DEFAULT_LIMITS);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(pending_answer(&waiting, request("/")));
    }
    for number in 1..=992 {
        let (status, detail) = failure(answer_now(&waiting, "/"));
        assert_eq!(status, 503, "{detail}");
        assert_eq!(count(&runtime, "wasm.full"), number);
    }
    for answering in held {
        assert_eq!(text(answering.await), "hello");
    }
    assert_eq!(busy(&runtime), 0);
    assert_eq!(text(answer(&waiting, "/").await), "hello");
    assert_eq!(count(&runtime, "wasm.traps"), 0);
}
