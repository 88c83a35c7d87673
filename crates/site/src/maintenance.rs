//! The maintenance mode of sites: the admin service or a file turns it on, and requests without an exception get 503.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use lowroad_config::MaintenanceConfig;
use lowroad_request_conditions::{ConditionInput, ConditionSet, FileSwitch, FindSwitch};

/// The maintenance mode of a site.
#[derive(Default)]
pub struct MaintenanceMode {
    /// Whether the admin service has turned it on.
    switch: Arc<AtomicBool>,
    file: Option<Arc<FileSwitch>>,
    exceptions: Vec<ConditionSet>,
    /// The value of Retry-After, in seconds.
    pub retry_after_s: u64,
}

/// The switches of the admin service by the names of sites. They survive reloads.
#[derive(Default)]
pub struct MaintenanceSwitches(Mutex<HashMap<String, Arc<AtomicBool>>>);

impl MaintenanceMode {
    /// The mode of a site with this switch.
    pub fn new(
        config: &MaintenanceConfig,
        switch: Arc<AtomicBool>,
        find_switch: FindSwitch<'_>,
    ) -> MaintenanceMode {
        // The switch is that of the site's previous mode, so that a reload does not end it.
        let exceptions = config.exceptions.iter();
        MaintenanceMode {
            switch,
            file: config.file.as_deref().map(find_switch),
            exceptions: exceptions
                .map(|it| ConditionSet::new(it, find_switch))
                .collect(),
            retry_after_s: config.retry_after_s,
        }
    }

    /// Whether the mode is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.switch.load(Relaxed) || self.file.as_ref().is_some_and(|file| file.exists())
    }

    /// Whether a file turns the mode on, which the level below does not notice.
    #[inline]
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether a request is answered in spite of the mode.
    pub fn has_exception(&self, input: &ConditionInput<'_>) -> bool {
        self.exceptions.iter().any(|set| set.is_met(input))
    }

    /// Turns the mode on or off, as far as the admin service decides. Returns whether it has changed.
    pub fn set(&self, is_on: bool) -> bool {
        self.switch.swap(is_on, Relaxed) != is_on
    }
}

impl MaintenanceSwitches {
    /// The switch of the site with this name.
    pub fn find(&self, site: &str) -> Arc<AtomicBool> {
        let mut switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The names of removed sites are kept: they are few, and a site may be added again.
        switches.entry(site.to_owned()).or_default().clone()
    }

    /// The names of the sites with a switch that is on.
    pub fn switched_on(&self) -> Vec<String> {
        let switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let on = switches.iter().filter(|(_, switch)| switch.load(Relaxed));
        on.map(|(site, _)| site.clone()).collect()
    }
}
