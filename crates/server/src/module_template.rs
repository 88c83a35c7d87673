//! `lowroad new module NAME`: the files of a working module and its test. Pure: returns paths and contents; `scaffold`
//! writes them.
//!
//! The skeletons in `module_template/` contain the placeholders `NAME` and `CRATE`. The module API is included in the
//! new module, so that building it downloads nothing.

/// The language of a new module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModuleLanguage {
    /// Rust, with cargo.
    Rust,
    /// C, with make.
    C,
}

/// A file to write: its path in the module's folder, and its contents.
pub type ScaffoldFile = (String, String);

/// Maximum length of a name.
const NAME_LEN_MAX: usize = 64;

/// Names reserved by cargo or Rust, or used by the included API.
const RESERVED: [&str; 8] = [
    "core",
    "crate",
    "self",
    "std",
    "alloc",
    "test",
    "proc-macro",
    "lowroad-module",
];

/// Returns the files of a new module.
///
/// # Errors
/// The name is invalid: the rules for names.
pub fn module(name: &str, language: ModuleLanguage) -> Result<Vec<ScaffoldFile>, String> {
    if !is_name(name) {
        return Err(format!(
            "{name:?} is not a valid module name: a to z first, then a to z, 0 to 9 and -, at \
             most {NAME_LEN_MAX}, and not a reserved word of Rust; try hello"
        ));
    }
    let skeleton = match language {
        ModuleLanguage::Rust => RUST,
        ModuleLanguage::C => C,
    };
    // `CRATE` becomes the crate's name in Rust code, where `-` is `_`.
    let fill = |text: &str| {
        text.replace("CRATE", &name.replace('-', "_"))
            .replace("NAME", name)
    };
    // Only the skeleton has placeholders; the API is copied unchanged.
    let skeleton_files = skeleton.iter().map(|(path, text)| (fill(path), fill(text)));
    let api = match language {
        ModuleLanguage::Rust => API,
        ModuleLanguage::C => HEADER,
    };
    let api = api
        .iter()
        .map(|(path, text)| ((*path).to_string(), (*text).to_string()));
    Ok(skeleton_files.chain(api).collect())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.ends_with('-')
        && !RESERVED.contains(&name)
}

type EmbeddedFile = &'static [(&'static str, &'static str)];

const RUST: EmbeddedFile = &[
    (
        "Cargo.toml",
        include_str!("module_template/rust/Cargo.toml.in"),
    ),
    ("src/lib.rs", include_str!("module_template/rust/lib.rs.in")),
    (
        "lowroad.toml",
        include_str!("module_template/rust/lowroad.toml.in"),
    ),
    (
        "public/index.html",
        include_str!("module_template/index.html.in"),
    ),
    (".gitignore", "/target\n"),
];

const C: EmbeddedFile = &[
    ("NAME.c", include_str!("module_template/c/module.c.in")),
    ("test.c", include_str!("module_template/c/test.c.in")),
    ("Makefile", include_str!("module_template/c/Makefile.in")),
    (
        "lowroad.toml",
        include_str!("module_template/c/lowroad.toml.in"),
    ),
    (
        "public/index.html",
        include_str!("module_template/index.html.in"),
    ),
    (".gitignore", "*.so\n*.wasm\n/test\n"),
];

const HEADER: EmbeddedFile = &[("lowroad.h", include_str!("../../module/include/lowroad.h"))];

const API: EmbeddedFile = &[
    (
        "lowroad-module/Cargo.toml",
        include_str!("../../module/Cargo.toml"),
    ),
    (
        "lowroad-module/src/lib.rs",
        include_str!("../../module/src/lib.rs"),
    ),
    (
        "lowroad-module/src/host.rs",
        include_str!("../../module/src/host.rs"),
    ),
    (
        "lowroad-module/src/call.rs",
        include_str!("../../module/src/call.rs"),
    ),
    (
        "lowroad-module/src/builtin.rs",
        include_str!("../../module/src/builtin.rs"),
    ),
    (
        "lowroad-module/src/testing.rs",
        include_str!("../../module/src/testing.rs"),
    ),
    (
        "lowroad-module/src/abi.rs",
        include_str!("../../module/src/abi.rs"),
    ),
    (
        "lowroad-module/src/abi/library.rs",
        include_str!("../../module/src/abi/library.rs"),
    ),
    (
        "lowroad-module/src/abi/wasm.rs",
        include_str!("../../module/src/abi/wasm.rs"),
    ),
];

#[cfg(test)]
mod tests {
    use super::{ModuleLanguage, module};

    #[test]
    fn invalid_module_names_are_refused() {
        for name in [
            "",
            "A",
            "1a",
            "a b",
            "../a",
            "a_b",
            "a-",
            "std",
            &"a".repeat(65),
        ] {
            assert!(module(name, ModuleLanguage::Rust).is_err(), "{name}");
        }
    }

    #[test]
    fn all_placeholders_are_replaced() {
        for language in [ModuleLanguage::Rust, ModuleLanguage::C] {
            for (path, text) in module("my-page", language).expect("a name") {
                assert!(!path.contains("NAME"), "{path}");
                let own = !path.starts_with("lowroad");
                assert!(!own || !text.contains("CRATE"), "{path}: {text}");
            }
        }
    }
}
