//! The WASI functions that are available to modules.

use std::collections::HashSet;

use lowroad_handler::ResponseContent;
use lowroad_module_host::wasm::RuntimeLimits;

use crate::support::{DEFAULT_LIMITS, answer_now, count, handler, runtime, separate_runtime, text};

const IMPORTS: &str = r#"
(import "lowroad" "send" (func $send (param i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_rename"
    (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
(import "lowroad" "now_ms" (func $now_ms (result i64)))
(memory (export "memory") 1)
(func (export "lowroad_abi") (result i32) (i32.const 1))
"#;

/// Sends the result of `code` as a letter: `@` for 0.
fn result_letter(code: &str) -> String {
    let text_form = format!(
        r#"(module {IMPORTS}
        (global $ready (mut i32) (i32.const 0))
        (func (export "_initialize") (global.set $ready (i32.const 1)))
        (func (export "lowroad_handle") (param i32) (param $call i32) (param i32 i32) (result i32)
            (if (i32.eqz (global.get $ready)) (then (unreachable)))
            (i32.store8 (i32.const 8) (i32.add (i32.const 64) {code}))
            (drop (call $send (local.get $call) (i32.const 8) (i32.const 1)))
            (i32.const 0)))"#
    );
    let bytes = wat::parse_str(text_form).expect("the text is a module");
    text(answer_now(
        &handler(&runtime(), &bytes, DEFAULT_LIMITS),
        "/",
    ))
}

#[test]
fn fd_write_random_get_and_clocks_work() {
    let two_parts =
        "(i32.store (i32.const 104) (i32.const 3)) (i32.store (i32.const 112) (i32.const 4))";
    let write = "(call $write (i32.const 1) (i32.const 100) (i32.const 2) (i32.const 200))";
    let code =
        format!("(block (result i32) {two_parts} (drop {write}) (i32.load (i32.const 200)))");
    assert_eq!(result_letter(&code), "G", "7 bytes are written");
    assert_eq!(
        result_letter("(call $random (i32.const 100) (i32.const 16))"),
        "@"
    );
    assert_eq!(
        result_letter("(call $clock (i32.const 0) (i64.const 0) (i32.const 100))"),
        "@"
    );
    assert_eq!(
        result_letter("(call $clock (i32.const 1) (i64.const 0) (i32.const 100))"),
        "@"
    );
}

#[test]
fn start_with_random_bytes_or_time_prevents_reuse() {
    let cases = [
        ("(drop (call $random (i32.const 8) (i32.const 8)))", 0),
        (
            "(drop (call $clock (i32.const 0) (i64.const 0) (i32.const 8)))",
            0,
        ),
        (
            "(drop (call $clock (i32.const 1) (i64.const 0) (i32.const 8)))",
            0,
        ),
        ("(i64.store (i32.const 8) (call $now_ms))", 0),
        ("(i32.store8 (i32.const 8) (i32.const 65))", 4),
    ];
    for (draw, reused) in cases {
        for begin in [
            format!(r#"(func (export "_initialize") {draw})"#),
            format!(
                r#"(func (export "lowroad_start") (param i32) (result i32) {draw} (i32.const 1))"#
            ),
        ] {
            let (answers, counted) = five_answers(&begin, "");
            assert_eq!(counted, reused, "{begin}");
            assert!(answers == 5 || !draw.contains("random"), "{begin}");
        }
    }
}

/// Random bytes drawn during a request are discarded by the reset.
#[test]
fn instance_using_random_bytes_after_start_is_reused() {
    let draw = "(drop (call $random (i32.const 8) (i32.const 8)))";
    assert_eq!(five_answers("", draw), (5, 4));
}

/// The number of different answers to five requests, and the number of reused instances.
fn five_answers(begin: &str, handle: &str) -> (usize, u64) {
    let text_form = format!(
        r#"(module {IMPORTS} {begin}
        (func (export "lowroad_handle") (param i32) (param $call i32) (param i32 i32) (result i32)
            {handle} (drop (call $send (local.get $call) (i32.const 8) (i32.const 8)))
            (i32.const 0)))"#
    );
    let bytes = wat::parse_str(text_form).expect("the text is a module");
    let runtime = separate_runtime(RuntimeLimits::default());
    let random_module = handler(&runtime, &bytes, DEFAULT_LIMITS);
    let sent = |_| match answer_now(&random_module, "/")
        .expect("it is answered")
        .content
    {
        ResponseContent::Bytes(bytes) => bytes.to_vec(),
        _ => panic!("the response is not of bytes"),
    };
    let answers: HashSet<_> = (0..5).map(sent).collect();
    (answers.len(), count(&runtime, "wasm.reused"))
}

#[test]
fn out_of_bounds_pointers_return_fault() {
    let fault = "U"; // 64 + 21
    assert_eq!(
        result_letter("(call $random (i32.const 65535) (i32.const 16))"),
        fault
    );
    assert_eq!(
        result_letter("(call $clock (i32.const 0) (i64.const 0) (i32.const -4))"),
        fault
    );
    let write = "(call $write (i32.const 1) (i32.const -8) (i32.const 2) (i32.const 200))";
    assert_eq!(result_letter(write), fault);
}

#[test]
fn missing_wasi_function_returns_enosys() {
    let zeros = "(i32.const 0) ".repeat(6);
    assert_eq!(
        result_letter(&format!("(call $rename {zeros})")),
        "t",
        "64 + 52, ENOSYS"
    );
}

#[test]
fn initialize_runs_before_other_functions() {
    // Go's runtime, for example, traps in any function called before initialization.
    let text = r#"(module
        (memory (export "memory") 1)
        (global $ready (mut i32) (i32.const 0))
        (func (export "_initialize") (global.set $ready (i32.const 1)))
        (func (export "lowroad_abi") (result i32)
            (if (i32.eqz (global.get $ready)) (then (unreachable)))
            (i32.const 1))
        (func (export "lowroad_handle") (param i32 i32 i32 i32) (result i32) (i32.const 0)))"#;
    let bytes = wat::parse_str(text).expect("the text is a module");
    assert!(answer_now(&handler(&runtime(), &bytes, DEFAULT_LIMITS), "/").is_ok());
}
