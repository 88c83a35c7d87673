//! Applications where they are not built in.

use lowroad_config::{Application, Feature};
use lowroad_log::Logger;

use crate::lacks;

/// None.
#[derive(Default)]
pub struct Applications;

/// Refuses all.
pub fn check(wanted: &[Application]) -> Result<Vec<String>, String> {
    match wanted {
        [] => Ok(Vec::new()),
        [..] => lacks(Feature::Programs, "application"),
    }
}

impl Applications {
    /// Refuses all.
    pub fn keep(&mut self, wanted: &[Application], _: &Logger) -> Result<Changed, String> {
        check(wanted).map(|_| Changed)
    }

    /// Nothing.
    pub fn end(&mut self) {}
}

/// Nothing.
#[derive(Default)]
pub struct Changed;

impl Changed {
    /// Nothing.
    pub fn wait(&self, _: &Logger, _: impl Fn() -> bool) {}

    /// Nothing.
    pub fn let_go(self, _: impl Fn() -> bool) {}
}
