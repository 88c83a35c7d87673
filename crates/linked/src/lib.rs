//! The modules that are linked into the server. To link one in, add it to the dependencies of this
//! crate and to the list here, and build the server. Knows nothing of how they are called.

use lowroad_module::linked::{Linked, linked};

/// All of them, by the names that the configuration uses: `linked = "NAME"`.
pub fn modules() -> Vec<Linked> {
    vec![linked::<hello::Hello>("hello")]
}

/// The examples of `docs/modules.md`, which are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/modules.md")]
pub struct Documentation;

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
