//! What the tests have in common: a runtime, a folder, a manager whose events are kept.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lowroad_acme::{Event, Manager, Settings, State};
use lowroad_testkit::wait_until;
use lowroad_tls::certificates::{Certificates, Store};
use tokio::runtime::Runtime;

pub mod pebble;
pub mod web;

/// Folders that go with who made them.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lowroad-authority-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A manager on a runtime of its own, as a server has it.
pub struct Running {
    pub manager: Manager,
    pub runtime: Runtime,
    /// What a listener would show.
    pub store: Store,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub fn start(settings: Settings) -> Running {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let store = Store::default();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (to_store, to_lines) = (store.clone(), lines.clone());
        let manager = Manager::start(settings, runtime.handle(), move |view, event| match event {
            Event::Changed => {
                let mut certificates = Certificates::new();
                view.add_to(&mut certificates);
                to_store.replace(certificates);
            }
            Event::Said(line) => to_lines.lock().expect("lines").push(line.into()),
        });
        let manager = manager.expect("settings");
        let mut certificates = Certificates::new();
        manager.add_to(&mut certificates);
        store.replace(certificates);
        Running {
            manager,
            runtime,
            store,
            lines,
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("lines").clone()
    }

    /// How it stands with the certificate that is called so.
    pub fn state(&self, name: &str) -> State {
        let mut states = self.manager.state().into_iter();
        states
            .find(|state| state.names[0] == name)
            .expect("a state")
    }

    /// Waits for a line of the log, and gives all that came until then.
    pub fn wait_for(&self, text: &str) -> Vec<String> {
        self.wait_for_some(text, 1)
    }

    /// Waits until so many lines have said it.
    pub fn wait_for_some(&self, text: &str, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(text, || {
                lines = self.lines();
                let said = lines.iter().filter(|line| line.contains(text));
                (said.count() >= count).then_some(())
            });
        }));
        assert!(
            found.is_ok(),
            "no {text:?}, but {lines:#?}\n{}",
            self.state_text()
        );
        lines
    }

    fn state_text(&self) -> String {
        let states = self.manager.state();
        states.iter().map(|state| format!("{state}\n")).collect()
    }
}

/// The text of the certificate that is called so.
pub fn stored(folder: &Path, name: &str) -> String {
    let file = folder.join("names").join(name).join("certificate.pem");
    std::fs::read_to_string(file).expect("a certificate")
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
