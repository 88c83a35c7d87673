//! The template of `lowroad new module` builds and passes its own test.

#[path = "../src/module_template.rs"]
mod module_template;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use module_template::{ModuleLanguage, module};

fn write(name: &str, language: ModuleLanguage) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    for (path, text) in module(name, language).expect("a name") {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder");
        fs::write(path, text).expect("it is written");
    }
    folder
}

fn run(folder: &Path, command: &str, arguments: &[&str]) {
    let mut command = Command::new(command);
    command.args(arguments).current_dir(folder);
    let command = command.env_remove("CARGO_TARGET_DIR");
    let ran = command.output().expect("it runs");
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn rust_module_skeleton_passes_its_test() {
    let folder = write("my-page", ModuleLanguage::Rust);
    run(&folder, env!("CARGO"), &["test", "--offline"]);
    run(&folder, env!("CARGO"), &["build", "--offline"]);
    assert!(folder.join("target/debug/libmy_page.so").exists());
    fs::remove_dir_all(folder).expect("it is removed");
}

#[test]
fn c_module_skeleton_passes_its_test() {
    let folder = write("c-page", ModuleLanguage::C);
    run(&folder, "make", &["test"]);
    run(&folder, "make", &[]);
    assert!(folder.join("c-page.so").exists());
    fs::remove_dir_all(folder).expect("it is removed");
}
