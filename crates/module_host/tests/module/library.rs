//! The features that only libraries have: optional functions, version checks, replacement.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use lowroad_config::schema::{ModuleCode, ModuleConfig};
use lowroad_handler::Handler;
use lowroad_module::builtin::linked;
use lowroad_module_host::module::library::LibraryCode;
use lowroad_module_host::module::{CallLimits, ModuleCatalog, ModuleHandler, open_native};

use crate::support::{answer, compile, identity, scratch, settings, text};

fn open(path: &Path) -> Result<(Arc<LibraryCode>, Arc<dyn Handler>), String> {
    let identity = identity("library", settings());
    let code = Arc::new(LibraryCode::load(path, &identity, 2)?);
    let running = ModuleHandler::new(code.clone(), identity, CallLimits::default());
    Ok((code, Arc::new(running)))
}

fn problem(path: &Path) -> String {
    open(path).err().expect("it is not taken")
}

#[tokio::test]
async fn c_example_works() {
    let to = scratch("hello-c.so");
    compile("../../../../examples/modules/hello-c/hello.c", &to, &[]);
    let (_, handler) = open(&to).expect("it loads");
    assert_eq!(text(&handler, "/?name=You").await, "Hi, You!\n");
    assert_eq!(text(&handler, "/").await, "Hi, world!\n");
}

#[tokio::test]
async fn rust_example_works() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/modules/hello-rust");
    let target = scratch("hello-rust");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--manifest-path"])
        .arg(example.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the example builds");
    let (_, handler) = open(&target.join("debug/libhello.so")).expect("it loads");
    assert_eq!(text(&handler, "/?name=You").await, "Hi, You!\n");
}

#[test]
fn unusable_library_is_reported() {
    let path = scratch("no-module.so");
    std::fs::write(&path, "no library at all").expect("it is written");
    let message = problem(&path);
    assert!(message.contains("incomplete ELF file"), "{message}");
    compile("nothing.c", &path, &[]);
    let message = problem(&path);
    assert!(message.contains("not a module"), "{message}");
    compile("nothing.c", &path, &["-DENTRIES"]);
    let message = problem(&path);
    assert!(message.contains("no lowroad_handle"), "{message}");
    let message = problem(&scratch("not-there.so"));
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn other_abi_version_is_reported() {
    let path = scratch("version.so");
    compile("nothing.c", &path, &["-DOTHER_ABI=2"]);
    let message = problem(&path);
    assert!(message.contains("built for version 2"), "{message}");
    assert!(message.contains("this server has version 1"), "{message}");
}

#[test]
fn failed_start_is_reported() {
    let path = scratch("no-start.so");
    compile("features.c", &path, &[]);
    let settings = vec![("start".to_string(), "no".to_string())];
    let message = LibraryCode::open(&path, &identity("library", settings), 2);
    let message = message.err().expect("it does not start");
    assert!(message.contains("returned NULL"), "{message}");
}

#[tokio::test]
async fn truncated_file_keeps_previous_version() {
    let path = scratch("torn.so");
    compile("features.c", &path, &[]);
    let (code, handler) = open(&path).expect("it loads");
    let whole = std::fs::read(&path).expect("it is there");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("it is written");
    let message = code.reload().expect_err("half a file");
    assert!(message.contains("incomplete ELF file"), "{message}");
    assert_eq!(text(&handler, "/version").await, "1");
    assert_eq!(
        code.reload(),
        Ok(false),
        "it is not tried again before it changes"
    );
}

#[tokio::test]
async fn new_version_with_same_size_and_mtime_is_noticed() {
    let (path, newer) = (scratch("aged.so"), scratch("aged-newer.so"));
    compile("features.c", &path, &["-DVERSION=\"1\""]);
    compile("features.c", &newer, &["-DVERSION=\"2\""]);
    let (code, handler) = open(&path).expect("it loads");
    let before = std::fs::metadata(&path).expect("it is there");
    let bytes = std::fs::read(&newer).expect("it is there");
    assert_eq!(bytes.len() as u64, before.len());
    std::fs::write(&path, bytes).expect("it is written");
    let file = std::fs::File::options().write(true).open(&path);
    let modified = before.modified().expect("a time");
    let set = file.and_then(|file| file.set_modified(modified));
    set.expect("the time is set back");
    assert_eq!(code.reload(), Ok(true));
    assert_eq!(text(&handler, "/version").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn library_is_replaced_under_load_without_failures() {
    let path = scratch("replaced.so");
    compile("features.c", &path, &["-DVERSION=\"0\""]);
    let (code, handler) = open(&path).expect("it loads");
    let (end, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let load: Vec<_> = ["/version", "/timer", "/fetch?of=/later.html"]
        .into_iter()
        .map(|target| {
            let (handler, end, count) = (handler.clone(), end.clone(), count.clone());
            tokio::spawn(async move {
                while !end.load(SeqCst) {
                    answer(&handler, target).await.expect("it is answered");
                    count.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for version in 1..=9 {
        compile("features.c", &path, &[&format!("-DVERSION=\"{version}\"")]);
        let before = count.load(SeqCst);
        assert_eq!(code.reload(), Ok(true));
        assert_eq!(text(&handler, "/version").await, version.to_string());
        while count.load(SeqCst) == before {
            tokio::task::yield_now().await;
        }
    }
    end.store(true, SeqCst);
    for load in load {
        load.await.expect("no request failed");
    }
    assert_eq!(
        code.close_retired(),
        0,
        "nobody uses an old version any more"
    );
}

#[tokio::test]
async fn call_ends_with_version_it_began_with() {
    let path = scratch("held.so");
    compile("features.c", &path, &["-DVERSION=\"1\""]);
    let (code, handler) = open(&path).expect("it loads");
    let held = handler
        .clone()
        .begin(0, crate::support::request("/forever"));
    compile("features.c", &path, &["-DVERSION=\"2\""]);
    code.reload().expect("it loads");
    assert_eq!(code.close_retired(), 1, "the old version has a call");
    assert_eq!(text(&handler, "/version").await, "2");
    drop(held);
    assert_eq!(code.close_retired(), 0);
}

#[tokio::test]
async fn catalog_opens_configured_modules() {
    let path = scratch("catalog.so");
    compile("features.c", &path, &[]);
    let module = |name: &str, code| ModuleConfig {
        name: name.to_string(),
        code,
        settings: settings(),
        fetch: Vec::new(),
        separate: false,
        memory_len_max: 0,
        compute_ms_max: 0,
        keep: false,
    };
    let linked = [linked::<crate::features::Features>("features")];
    let mut catalog = ModuleCatalog::default();
    for (name, code) in [
        ("a", ModuleCode::Library(path)),
        ("b", ModuleCode::Linked("features".to_string())),
    ] {
        let opened = open_native(&module(name, code), &linked, 2, None);
        catalog.insert(name, opened.expect("it opens").expect("it is native"));
    }
    for name in ["a", "b"] {
        let handler = catalog
            .handler(name, CallLimits::default(), None)
            .expect("it is there");
        assert_eq!(text(&handler, "/version").await, "1", "{name}");
        assert!(answer(&handler, "/fail").await.is_err(), "{name}");
    }
    assert!(catalog.handler("c", CallLimits::default(), None).is_none());
    let counts = catalog.counts();
    for (name, counts) in counts {
        assert!(counts.contains(&("calls", 2)), "{name}: {counts:?}");
        assert!(counts.contains(&("failed", 1)), "{name}: {counts:?}");
    }
    let none = module("d", ModuleCode::Linked("none".to_string()));
    let message = open_native(&none, &linked, 2, None)
        .err()
        .expect("there is none");
    assert!(
        message.contains("built-in modules are: features"),
        "{message}"
    );
}

#[tokio::test]
async fn changed_file_is_reloaded_by_watcher() {
    let path = scratch("seen.so");
    compile("features.c", &path, &["-DVERSION=\"1\""]);
    let identity = identity("library", settings());
    let code = LibraryCode::open(&path, &identity, 1).expect("it loads");
    let handler: Arc<dyn Handler> =
        Arc::new(ModuleHandler::new(code, identity, CallLimits::default()));
    assert_eq!(text(&handler, "/version").await, "1");
    compile("features.c", &path, &["-DVERSION=\"2\""]);
    while text(&handler, "/version").await != "2" {
        tokio::task::yield_now().await;
    }
}
