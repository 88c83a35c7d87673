//! Applications where they are not built in.

use lowroad_config::{Application, Feature};
use lowroad_log::Logger;

use crate::lacks;

/// None.
#[derive(Default)]
pub struct Applications;

impl Applications {
    /// Refuses all.
    pub fn keep(&mut self, wanted: &[Application], _: &Logger) -> Result<Changed, String> {
        match wanted {
            [] => Ok(Changed),
            [..] => lacks(Feature::Programs, "application"),
        }
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
