//! Applications where they are not built in.

use lowroad_config::{Application, Feature};
use lowroad_log::Logger;

use crate::features;

/// None.
#[derive(Default)]
pub struct Applications;

impl Applications {
    /// Refuses all.
    pub fn keep(&mut self, wanted: &[Application], _: &Logger) -> Result<(), String> {
        match wanted {
            [] => Ok(()),
            [..] => features::need(Feature::Programs, "application"),
        }
    }

    /// Nothing.
    pub fn wait(&self, _: &Logger, _: impl Fn() -> bool) {}

    /// Nothing.
    pub fn end(&mut self) {}
}
