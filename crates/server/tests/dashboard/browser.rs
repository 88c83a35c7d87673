//! Remote control of a browser.

use lowroad_testkit::{skip, wait_until};
use serde_json::Value;

use crate::chromium::Chromium;
use crate::firefox::Firefox;

/// The functions of a browser that tests use.
pub trait Browser {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Loads a page.
    fn open(&mut self, url: &str);
    /// The value of a JavaScript expression; promises are awaited.
    fn evaluate(&mut self, expression: &str) -> Value;
    /// Presses a key, by its name in UI Events: `Tab`, `Enter`.
    fn press(&mut self, key: &str);
    /// Errors of scripts and violations of the Content-Security-Policy so far.
    fn problems(&mut self) -> Vec<String>;
    /// Changes the size of the window's content, in CSS pixels.
    fn resize(&mut self, width: u32, height: u32);

    /// The text of the element with this id, as it is shown.
    fn text(&mut self, id: &str) -> String {
        let text = self.evaluate(&format!("document.getElementById('{id}').innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Polls until a JavaScript expression is true.
    fn wait_for(&mut self, condition: &str) {
        wait_until(condition, || {
            let value = self.evaluate(&format!("Boolean({condition})"));
            (value == Value::Bool(true)).then_some(())
        });
    }
}

/// Runs a test in each browser that is installed.
pub fn in_each_browser(test: &str, run: impl Fn(&mut dyn Browser)) {
    match Chromium::start() {
        Some(mut browser) => run(&mut browser),
        None => skip(test, "Chromium is not installed"),
    }
    match Firefox::start() {
        Some(mut browser) => run(&mut browser),
        None => skip(test, "Firefox is not installed"),
    }
}
