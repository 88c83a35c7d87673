//! Controls Chromium through its DevTools protocol, over pipes: JSON messages that end with a zero byte.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lowroad_testkit::TempFolder;
use serde_json::{Value, json};

use crate::browser::Browser;

const PROGRAMS: [&str; 3] = [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

/// A browser with one page.
pub struct Chromium {
    process: Child,
    requests: File,
    responses: BufReader<File>,
    session: Value,
    number: u64,
    problems: Vec<String>,
    _folder: TempFolder,
}

impl Chromium {
    /// Starts it, if it is installed.
    pub fn start() -> Option<Chromium> {
        let program = PROGRAMS.into_iter().find(|path| Path::new(path).exists())?;
        let folder = TempFolder::new();
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            let made = Command::new("mkfifo").arg(&path).status();
            assert!(made.expect("mkfifo(1)").success());
            path
        };
        let (requests, responses) = (pipe("requests"), pipe("responses"));
        let profile = folder.path().join("profile");
        // The browser expects the pipes at descriptors 3 and 4.
        let process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$REQUESTS\" 4>\"$RESPONSES\""])
            .args([program, "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-sync"])
            .arg("--disable-component-update")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .env("REQUESTS", &requests)
            .env("RESPONSES", &responses)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut browser = Chromium {
            process: process.expect("sh(1)"),
            requests: File::options().write(true).open(requests).expect("a pipe"),
            responses: BufReader::new(File::open(responses).expect("a pipe")),
            session: Value::Null,
            number: 0,
            problems: Vec::new(),
            _folder: folder,
        };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let made = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": made["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", target);
        self.session = attached["sessionId"].clone();
        for domain in ["Runtime", "Log", "Page"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Sends a command and waits for its result. Events that arrive meanwhile are recorded.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_null() {
            command["sessionId"] = self.session.clone();
        }
        write!(self.requests, "{command}\0").expect("the browser runs");
        loop {
            let message = self.receive();
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.record(&message);
        }
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        let read = self.responses.read_until(0, &mut message);
        assert!(read.expect("the browser runs") > 0, "Chromium has ended");
        message.pop();
        serde_json::from_slice(&message).expect("JSON")
    }

    fn record(&mut self, event: &Value) {
        let details = &event["params"];
        let problem = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => Some(&details["exceptionDetails"]),
            "Runtime.consoleAPICalled" if details["type"] == "error" => Some(&details["args"]),
            "Log.entryAdded" if details["entry"]["level"] == "error" => Some(&details["entry"]),
            _ => None,
        };
        self.problems.extend(problem.map(Value::to_string));
    }
}

impl Browser for Chromium {
    fn name(&self) -> &'static str {
        "Chromium"
    }

    fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        // While a page is replaced, no expression can be evaluated; tests try again.
        result["result"]["value"].clone()
    }

    fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            other => panic!("{other}: a key without a code"),
        };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    fn problems(&mut self) -> Vec<String> {
        // Events that were sent before this response are read with it.
        self.evaluate("0");
        self.problems.clone()
    }

    fn resize(&mut self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
