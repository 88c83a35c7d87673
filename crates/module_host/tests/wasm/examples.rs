//! The examples for users: the binaries in the repository, and fresh builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_module_host::wasm::WasmModuleLimits;
use lowroad_testkit::skip;

use crate::support::{DEFAULT_LIMITS, answer_now, open, runtime, text};

const EXAMPLES: [(&str, &str); 3] = [
    ("hello-wasm-c", "C"),
    ("hello-wasm-rust", "Rust"),
    ("hello-assemblyscript", "AssemblyScript"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/modules")
}

#[test]
fn hello_examples_answer() {
    for (name, language) in EXAMPLES {
        let path = folder().join(format!("{name}.wasm"));
        let hello = open(&runtime(), &path, DEFAULT_LIMITS).expect("it can be opened");
        assert_eq!(
            text(answer_now(&hello, "/")),
            format!("Hello, World, from {language}\n")
        );
        assert_eq!(
            text(answer_now(&hello, "/?a=b&name=J%C3%BCrgen+1")),
            format!("Hello, Jürgen 1, from {language}\n")
        );
    }
}

/// A Go module has nearly 2 MB, so its binary is not in the repository.
#[test]
fn go_example_answers() {
    let go = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = go.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    let minor = version.ok().and_then(|it| {
        let numbers = it.strip_prefix("go1.")?;
        numbers.split('.').next()?.parse::<u32>().ok()
    });
    if minor.is_none_or(|minor| minor < 24) {
        return skip("go_example_answers", "no Go from 1.24 on");
    }
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples-go");
    make("go", &to);
    let own = WasmModuleLimits {
        memory_len_max: 16 << 20,
        compute_ms_max: 5000,
        keep: false,
    };
    let hello = open(&runtime(), &to.join("hello-go.wasm"), own).expect("it can be opened");
    for _ in 0..2 {
        let answer_text = text(answer_now(&hello, "/?a=b&name=J%C3%BCrgen+1"));
        assert_eq!(answer_text, "Hello, Jürgen 1, from Go\n");
    }
}

fn make(target: &str, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    let status = Command::new("make")
        .args(["--silent", "-f", "wasm.mk", target])
        .arg(format!("OUT={}", to.display()))
        .current_dir(folder())
        .status()
        .expect("make runs");
    assert!(status.success(), "{target} is built");
}

#[test]
fn example_binaries_are_small() {
    for (name, _) in EXAMPLES {
        let len = fs::metadata(folder().join(format!("{name}.wasm")))
            .expect("it is there")
            .len();
        assert!(len < 20_000, "{name}: {len} bytes");
    }
}

#[test]
fn example_binaries_match_their_sources() {
    let tools = [
        ("c", "hello-wasm-c", "wasm-ld"),
        ("rust", "hello-wasm-rust", "/usr/bin/rustc"),
    ];
    for (target, name, tool) in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            skip(
                "example_binaries_match_their_sources",
                &format!("no {tool}"),
            );
            continue;
        }
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{target}"));
        make(target, &to);
        let file = format!("{name}.wasm");
        let built = fs::read(to.join(&file)).expect("it was built");
        let committed = fs::read(folder().join(&file)).expect("it is there");
        assert!(
            built == committed,
            "{name} differs: run make -f wasm.mk in examples/modules"
        );
    }
}
