//! Controls Firefox through Marionette: JSON messages over TCP, each preceded by its length.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{TEST_TIMEOUT, TempFolder, wait_until};
use serde_json::{Value, json};

use crate::browser::Browser;

const PROGRAM: &str = "/usr/bin/firefox-esr";
/// Settings of a new profile, which keep it from contacting other servers. Port 0 selects any free port.
const SETTINGS: &str = r#"user_pref("marionette.port", 0);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("accessibility.tabfocus", 7);
"#;

/// A browser with one page.
pub struct Firefox {
    process: Child,
    stream: TcpStream,
    number: u64,
    _folder: TempFolder,
}

impl Firefox {
    /// Starts it, if it is installed.
    pub fn start() -> Option<Firefox> {
        if !Path::new(PROGRAM).exists() {
            return None;
        }
        let folder = TempFolder::new();
        folder.file("profile/user.js", SETTINGS);
        let profile = folder.path().join("profile");
        let process = Command::new(PROGRAM)
            .args(["--headless", "--no-remote", "--marionette"])
            // For the console, which pages can't read.
            .arg("--remote-allow-system-access")
            .arg("--profile")
            .arg(&profile)
            .env("HOME", &profile)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let port = wait_until("Marionette's port", || {
            let port = fs::read_to_string(profile.join("MarionetteActivePort")).ok()?;
            port.trim().parse::<u16>().ok()
        });
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("Marionette");
        stream
            // A session and a page take long on a machine that also builds.
            .set_read_timeout(Some(6 * TEST_TIMEOUT))
            .expect("a timeout");
        let mut browser = Firefox {
            process: process.expect("Firefox"),
            stream,
            number: 0,
            _folder: folder,
        };
        browser.receive(); // its greeting
        browser.call("WebDriver:NewSession", json!({}));
        Some(browser)
    }

    fn call(&mut self, command: &str, parameters: Value) -> Value {
        self.try_call(command, parameters)
            .unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    fn try_call(&mut self, command: &str, parameters: Value) -> Result<Value, Value> {
        self.number += 1;
        let message = json!([0, self.number, command, parameters]).to_string();
        write!(self.stream, "{}:{message}", message.len()).expect("the browser runs");
        let response = self.receive();
        match response[2].is_null() {
            true => Ok(response[3].clone()),
            false => Err(response[2].clone()),
        }
    }

    fn receive(&mut self) -> Value {
        let mut byte = [0];
        let mut len = 0;
        loop {
            self.stream.read_exact(&mut byte).expect("a message");
            match byte[0] {
                b':' => break,
                digit => len = 10 * len + usize::from(digit - b'0'),
            }
        }
        let mut message = vec![0; len];
        self.stream.read_exact(&mut message).expect("a message");
        serde_json::from_slice(&message).expect("JSON")
    }

    fn execute(&mut self, script: &str) -> Result<Value, Value> {
        let parameters = json!({"script": script, "args": []});
        let result = self.try_call("WebDriver:ExecuteScript", parameters)?;
        Ok(result["value"].clone())
    }
}

impl Browser for Firefox {
    fn name(&self) -> &'static str {
        "Firefox"
    }

    fn open(&mut self, url: &str) {
        self.call("WebDriver:Navigate", json!({"url": url}));
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        // While a page is replaced, no expression can be evaluated; tests try again.
        self.execute(&format!("return {expression}"))
            .unwrap_or_default()
    }

    fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => "\u{e004}",
            "Enter" => "\u{e007}",
            other => panic!("{other}: a key without a code"),
        };
        let steps = ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": code}));
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": steps});
        self.call("WebDriver:PerformActions", json!({"actions": [keyboard]}));
    }

    fn problems(&mut self) -> Vec<String> {
        self.call("Marionette:SetContext", json!({"value": "chrome"}));
        // Errors of the browser's own code are left out.
        let script = "return Services.console.getMessageArray()
            .filter(it => it instanceof Ci.nsIScriptError && !(it.flags & Ci.nsIScriptError.warningFlag))
            .filter(it => it.sourceName.startsWith('http') || it.errorMessage.includes('Content-Security-Policy'))
            .map(it => it.errorMessage)";
        let messages = self.execute(script).expect("the console");
        self.call("Marionette:SetContext", json!({"value": "content"}));
        let messages = messages.as_array().expect("a list").iter();
        messages.map(Value::to_string).collect()
    }

    fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height});
        self.call("WebDriver:SetWindowRect", size);
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
