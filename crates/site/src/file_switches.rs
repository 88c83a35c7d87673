//! Keeps the switches of files in conditions up to date, so that no worker accesses a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use lowroad_request_conditions::FileSwitch;

/// The time between two checks. Changes are noticed within a second, as for all files.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The switches of all sites, by path. A switch that no condition uses any more is forgotten.
#[derive(Default)]
pub struct FileSwitches(Arc<Mutex<HashMap<PathBuf, Weak<FileSwitch>>>>);

impl FileSwitches {
    /// The switch of a file. Blocks on the disk if it is new. The first switch starts the thread that checks all.
    pub fn find(&self, path: &Path) -> Arc<FileSwitch> {
        let mut switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(switch) = switches.get(path).and_then(Weak::upgrade) {
            return switch;
        }
        let switch = Arc::new(FileSwitch::new(path.into(), exists(path)));
        if switches.is_empty() {
            self.start_checks();
        }
        switches.insert(path.into(), Arc::downgrade(&switch));
        switch
    }

    fn start_checks(&self) {
        let switches = Arc::downgrade(&self.0);
        let name = "file-switches".to_string();
        let check = move || {
            loop {
                thread::sleep(CHECK_INTERVAL);
                let Some(switches) = switches.upgrade() else {
                    return;
                };
                let mut switches = switches.lock().unwrap_or_else(PoisonError::into_inner);
                switches.retain(|_, switch| check(switch));
                // The next switch starts another thread.
                if switches.is_empty() {
                    return;
                }
            }
        };
        // Without the thread the switches keep their first state; starting fails only if the system has no threads left.
        drop(thread::Builder::new().name(name).spawn(check));
    }
}

/// Checks a file. Returns whether its switch is still in use.
fn check(switch: &Weak<FileSwitch>) -> bool {
    let Some(switch) = switch.upgrade() else {
        return false;
    };
    switch.set(exists(switch.path()));
    true
}

fn exists(path: &Path) -> bool {
    // A file in a folder without permission counts as missing.
    path.symlink_metadata().is_ok()
}
