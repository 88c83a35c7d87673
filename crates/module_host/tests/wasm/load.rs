//! Rejections of modules at load time, and replacement by newer versions.

use std::fs;
use std::time::{Duration, Instant};

use lowroad_module_host::wasm::{RuntimeLimits, WasmModuleLimits};

use crate::support::{
    DEFAULT_LIMITS, HELLO, answer_now, count, module, module_with_handle, open, pending_answer,
    refusal_reason, request, runtime, scratch, separate_runtime, text,
};

/// The timeout of a test.
const TIMEOUT: Duration = Duration::from_secs(20);

const NO_HANDLE: &str = r#"(memory (export "memory") 1)
    (func (export "lowroad_abi") (result i32) (i32.const 1))"#;

fn parsed(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {text})")).expect("the text is a module")
}

#[test]
fn unusable_module_is_reported_with_reason() {
    let handle =
        r#"(func (export "lowroad_handle") (param i32 i32 i32 i32) (result i32) (i32.const 0))"#;
    let cases = [
        (b"\0asm".to_vec(), "not a usable WebAssembly module"),
        (b"#!/bin/sh\n".to_vec(), "not a usable WebAssembly module"),
        (parsed(""), "it exports no memory named `memory`"),
        (parsed(NO_HANDLE), "it exports no function `lowroad_handle`"),
        (
            parsed(&format!(r#"(memory (export "memory") 1) {handle}"#)),
            "it exports no function `lowroad_abi`",
        ),
        (
            parsed(&format!(r#"{NO_HANDLE} (func (export "lowroad_handle"))"#)),
            "its export `lowroad_handle` must be a function (i32, i32, i32, i32) -> (i32)",
        ),
        (
            parsed(&format!(
                r#"(import "env" "open" (func)) {NO_HANDLE} {handle}"#
            )),
            "`env::open`",
        ),
        (
            parsed(&format!(
                r#"(import "lowroad" "send" (func)) {NO_HANDLE} {handle}"#
            )),
            "`lowroad::send`",
        ),
        (
            parsed(&format!(
                r#"(memory (export "memory") 1) {handle}
                (func (export "lowroad_abi") (result i32) (i32.const 7))"#
            )),
            "built for version 7 of the module interface, but this server has version 1",
        ),
        (
            parsed(&format!(
                r#"(memory (export "memory") 17) {handle}
                (func (export "lowroad_abi") (result i32) (i32.const 1))"#
            )),
            "its limit is memory = 1048576 bytes",
        ),
        (
            module(&format!(
                "(func $on (loop $on (br $on))) (start $on) {handle}"
            )),
            "computed for more than 1000 ms",
        ),
    ];
    for (bytes, told) in cases {
        let problem = refusal_reason(&bytes);
        assert!(problem.contains(told), "{problem}\nhas not: {told}");
        assert!(problem.starts_with('/'), "begins with the path: {problem}");
    }
}

#[test]
fn same_file_is_compiled_once() {
    let runtime = separate_runtime(RuntimeLimits::default());
    let path = scratch(&module_with_handle(HELLO));
    let opened: Vec<_> = (0..3)
        .map(|_| open(&runtime, &path, DEFAULT_LIMITS))
        .collect();
    assert!(opened.iter().all(Result::is_ok));
    assert_eq!(count(&runtime, "wasm.compiled"), 1);
}

#[test]
fn newer_version_is_loaded() {
    let runtime = separate_runtime(RuntimeLimits::default());
    let path = scratch(&module_with_handle(HELLO));
    let handler = open(&runtime, &path, DEFAULT_LIMITS).expect("it can be opened");
    assert_eq!(text(answer_now(&handler, "/")), "hello");
    replace(
        &path,
        &module_with_handle(&format!(
            "(i32.store8 (i32.const 0) (i32.const 74)) {HELLO}"
        )),
    );
    until(|| text(answer_now(&handler, "/")) == "Jello");
    replace(&path, b"no module at all");
    until(|| count(&runtime, "wasm.rejected") == 1);
    assert_eq!(
        text(answer_now(&handler, "/")),
        "Jello",
        "the version before stays"
    );
    replace(&path, &module_with_handle(HELLO));
    until(|| text(answer_now(&handler, "/")) == "hello");
    assert_eq!(count(&runtime, "wasm.rejected"), 1, "told once");
}

/// Any truncated file is rejected or is a valid module, without a panic.
#[test]
fn truncated_file_is_refused() {
    let runtime = separate_runtime(RuntimeLimits::default());
    let whole = module_with_handle(HELLO);
    let path = scratch(&whole);
    let handler = open(&runtime, &path, DEFAULT_LIMITS).expect("it can be opened");
    for len in 0..whole.len() {
        // Without the name section at its end, the file is still a valid module.
        if let Err(problem) = open(&runtime, &scratch(&whole[..len]), DEFAULT_LIMITS) {
            assert!(problem.starts_with('/'), "cut at {len}: {problem}");
        }
    }
    // The file is truncated while its earlier version is in use.
    for (refusals, len) in [(1, whole.len() / 2), (2, whole.len() - 1), (3, 0)] {
        fs::write(&path, &whole[..len]).expect("it is written");
        until(|| count(&runtime, "wasm.rejected") == refusals);
        assert_eq!(
            text(answer_now(&handler, "/")),
            "hello",
            "the version before stays"
        );
    }
}

#[test]
fn corrupted_file_causes_no_panic() {
    let whole = module_with_handle(HELLO);
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next(4) {
            let at = next(bytes.len());
            bytes[at] = next(256) as u8;
        }
        bytes.truncate(whole.len() / 2 + next(whole.len()));
        // The result is a valid module, or an error with a reason.
        if let Err(problem) = open(&runtime(), &scratch(&bytes), DEFAULT_LIMITS) {
            assert!(problem.starts_with('/'), "{problem}");
        }
    }
}

#[test]
fn non_regular_or_huge_file_is_refused() {
    let runtime = separate_runtime(RuntimeLimits::default());
    let path = scratch(&module_with_handle(HELLO));
    let handler = open(&runtime, &path, DEFAULT_LIMITS).expect("it can be opened");
    let others: [(&str, &dyn Fn()); 4] = [
        ("Is a directory|not a file", &|| {
            fs::create_dir(&path).expect("a folder")
        }),
        ("not a file", &|| {
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.expect("mkfifo runs").success());
        }),
        ("not a file", &|| {
            std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        }),
        ("longer than", &|| {
            let file = fs::File::create(&path).expect("a file");
            file.set_len(1 << 40).expect("a hole");
        }),
    ];
    for (number, (told, put)) in (1..).zip(others) {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        put();
        let problem = open(&runtime, &path, DEFAULT_LIMITS)
            .err()
            .expect("it is refused");
        assert!(
            told.split('|').any(|told| problem.contains(told)),
            "{problem}"
        );
        until(|| count(&runtime, "wasm.rejected") == number);
        assert_eq!(
            text(answer_now(&handler, "/")),
            "hello",
            "the version before stays"
        );
    }
    let _ = fs::remove_file(&path);
    fs::write(&path, module_with_handle(HELLO)).expect("it is written");
    until(|| count(&runtime, "wasm.compiled") == 2);
}

#[tokio::test]
async fn call_ends_with_version_it_began_with() {
    let waiting = |letter: u8| {
        module_with_handle(&format!(
            r#"(if (i32.eq (local.get $event) (i32.const 1)) (then
                (i32.store8 (i32.const 0) (i32.const {letter}))
                (drop (call $timer (local.get $call) (i32.const 1)))))
            (if (i32.ne (local.get $event) (i32.const 4)) (then (return (i32.const 1)))) {HELLO}"#
        ))
    };
    for keep in [false, true] {
        let runtime = separate_runtime(RuntimeLimits::default());
        let path = scratch(&waiting(b'A'));
        let handler = open(
            &runtime,
            &path,
            WasmModuleLimits {
                keep,
                ..DEFAULT_LIMITS
            },
        )
        .expect("it can be opened");
        let begun = pending_answer(&handler, request("/"));
        replace(&path, &waiting(b'B'));
        until(|| count(&runtime, "wasm.compiled") == 2);
        let begun_after = pending_answer(&handler, request("/"));
        assert_eq!(text(begun.await), "Aello", "{keep}");
        assert_eq!(text(begun_after.await), "Bello", "{keep}");
    }
}

/// Renames a new version to the path, as compilers and deployments do.
fn replace(path: &std::path::Path, bytes: &[u8]) {
    fs::rename(scratch(bytes), path).expect("it is moved");
}

fn until(mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < TIMEOUT, "it does not happen");
        std::thread::yield_now();
    }
}
