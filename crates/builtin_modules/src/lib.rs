//! The modules that are built into the server. To add one, add it to this crate's dependencies and to the list below,
//! and build the server. The crate is independent of how modules are called.

use lowroad_module::builtin::{LinkedModule, linked};

/// All built-in modules. Their names are those of the configuration: `linked = "NAME"`.
pub fn modules() -> Vec<LinkedModule> {
    vec![linked::<hello::Hello>("hello")]
}

/// The examples of `docs/modules.md`, which are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/modules.md")]
pub struct ModuleDocs;

#[cfg(test)]
mod tests {
    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<_> = super::modules().iter().map(|module| module.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
