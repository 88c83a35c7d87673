//! Test helpers: a temporary folder, and a running manager with recorded events.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lowroad_acme::{
    AcmeEvent, AcmeSettings, CertificateManager, CertificateState, CertificateView, Severity,
};
use lowroad_testkit::wait_until;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use tokio::runtime::Runtime;

pub mod fake;
pub mod pebble;
pub mod web;

/// A folder that is removed on drop.
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

/// A manager with its own runtime, as in a server.
pub struct Running {
    pub manager: CertificateManager,
    pub runtime: Runtime,
    /// The certificates as a listener would use them.
    pub store: CertificateStore,
    log: Arc<Mutex<Vec<(Severity, String)>>>,
}

impl Running {
    pub fn start(settings: AcmeSettings) -> Running {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let store = CertificateStore::default();
        let log = Arc::new(Mutex::new(Vec::new()));
        let recording_callback = recording_callback(&store, &log);
        let manager = CertificateManager::start(settings, runtime.handle(), recording_callback)
            .expect("settings");
        let mut certificates = CertificateMap::new();
        manager.add_to(&mut certificates);
        store.replace(certificates);
        Running {
            manager,
            runtime,
            store,
            log,
        }
    }

    /// Replaces the manager by one with other settings, like a reload.
    pub fn succeed(&mut self, settings: AcmeSettings) {
        let recording_callback = recording_callback(&self.store, &self.log);
        let next = CertificateManager::succeed(
            &self.manager,
            settings,
            self.runtime.handle(),
            recording_callback,
        );
        self.manager = next.expect("settings");
        let mut certificates = CertificateMap::new();
        self.manager.add_to(&mut certificates);
        self.store.replace(certificates);
    }

    pub fn log(&self) -> Vec<(Severity, String)> {
        self.log.lock().expect("lines").clone()
    }

    /// Waits for a log line, and returns its severity.
    pub fn severity(&self, text: &str) -> Severity {
        self.wait_for(text);
        let mut log = self.log().into_iter();
        let (severity, _) = log.find(|(_, line)| line.contains(text)).expect("a line");
        severity
    }

    /// The value of a counter or gauge.
    pub fn count(&self, name: &str) -> u64 {
        let mut counts = self.manager.counts().into_iter();
        let (_, value) = counts.find(|(known, _)| *known == name).expect("a name");
        value
    }

    pub fn lines(&self) -> Vec<String> {
        self.log().into_iter().map(|(_, line)| line).collect()
    }

    /// The state of the certificate with this first name.
    pub fn state(&self, name: &str) -> CertificateState {
        let mut states = self.manager.state().into_iter();
        states
            .find(|state| state.names[0] == name)
            .expect("a state")
    }

    /// Waits for a log line, and returns all lines so far.
    pub fn wait_for(&self, text: &str) -> Vec<String> {
        self.wait_for_some(text, 1)
    }

    /// Waits until this number of log lines contain the text.
    pub fn wait_for_some(&self, text: &str, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(text, || {
                lines = self.lines();
                let matching_lines = lines.iter().filter(|line| line.contains(text));
                (matching_lines.count() >= count).then_some(())
            });
        }));
        assert!(
            found.is_ok(),
            "no {text:?}, but {lines:#?}\n{}",
            self.state_text()
        );
        lines
    }

    /// Waits until all due work is done. Needs two checks, since one may just have started.
    pub fn wait_until_idle(&self) {
        let checks = || self.count("acme.file_checks");
        for _ in 0..2 {
            let before = checks();
            self.manager.check_files();
            wait_until("a check of files", || (checks() > before).then_some(()));
        }
    }

    /// Waits until the state of a certificate is stored in the folder.
    pub fn wait_until_saved(&self, folder: &Path, name: &str) {
        let file = folder.join("names").join(name).join("state.json");
        let pair = self.manager.pair(name).expect("a certificate");
        wait_until("a saved state", || {
            let text = std::fs::read_to_string(&file).ok()?;
            text.contains(pair.fingerprint()).then_some(())
        });
    }

    fn state_text(&self) -> String {
        let states = self.manager.state();
        states.iter().map(|state| format!("{state}\n")).collect()
    }
}

/// A callback that updates the store and records log lines.
fn recording_callback(
    store: &CertificateStore,
    log: &Arc<Mutex<Vec<(Severity, String)>>>,
) -> impl Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync + 'static {
    let (store, log) = (store.clone(), log.clone());
    move |view, event| match event {
        AcmeEvent::Changed => {
            let mut certificates = CertificateMap::new();
            view.add_to(&mut certificates);
            store.replace(certificates);
        }
        AcmeEvent::Message(severity, line) => {
            log.lock().expect("lines").push((severity, line.into()));
        }
    }
}

/// The PEM file of the certificate with this first name.
pub fn stored(folder: &Path, name: &str) -> String {
    let file = folder.join("names").join(name).join("certificate.pem");
    std::fs::read_to_string(file).expect("a certificate")
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
