//! The state of the level in front of this server, for `lowroad status` and metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_site::url_table::{UrlSnapshot, UrlTable};

use super::super::url_hits;
use super::denials::DenialFeed;
use crate::deny_list::DenyList;
use crate::level::{LevelHealth, LevelReport};
use crate::level_sites::LevelSites;

/// The level's state.
#[derive(Default)]
pub struct LevelHealthState {
    state: Mutex<HealthRecord>,
    report: Mutex<LevelReport>,
    /// The URLs of the reports; `None` before the first one.
    urls: Mutex<Option<UrlTable>>,
    /// The hits by name of the site.
    site_hits: Mutex<BTreeMap<String, u64>>,
    /// The sites of the server; `None` until it has started.
    sites: Mutex<Option<Arc<LevelSites>>>,
    /// The clients that the level drops.
    denials: DenialFeed,
    /// Whether the server has begun to end the level.
    is_ending: AtomicBool,
}

#[derive(Default)]
struct HealthRecord {
    /// How often a daemon has reported readiness.
    starts: u64,
    current: CurrentHealth,
}

#[derive(Default)]
enum CurrentHealth {
    #[default]
    Starting,
    Attached,
    /// The daemon has ended and will be restarted. The text describes how it ended.
    Gone(String),
    /// The level was not started, or its processes have ended. The text gives the reason.
    Off(String),
}

/// The state's text after the processes have ended.
pub const OFF: &str = "off: its processes have ended; restart the server to start it again";

impl LevelHealth for LevelHealthState {
    fn report(&self) -> LevelReport {
        let report = self.report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn urls(&self, now_ms: u64) -> UrlSnapshot {
        let urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let table = urls.as_ref();
        table.map_or_else(UrlSnapshot::default, |it| it.snapshot(now_ms))
    }

    fn site_hits(&self) -> BTreeMap<String, u64> {
        let hits = self.site_hits.lock();
        hits.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_sites(&self, sites: LevelSites) {
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sites));
    }

    fn set_denied(&self, list: &DenyList) {
        self.denials.set(list.clone());
    }

    fn text(&self) -> String {
        let state = self.state();
        // The first start is not a restart.
        let restarts = state.starts.saturating_sub(1);
        match &state.current {
            CurrentHealth::Starting => "starting".into(),
            CurrentHealth::Attached if restarts > 0 => {
                format!("attached, restarts: {restarts}")
            }
            CurrentHealth::Attached => "attached".into(),
            CurrentHealth::Gone(description) => {
                format!("ended: {description}; restarts before: {restarts}")
            }
            CurrentHealth::Off(text) => text.clone(),
        }
    }
}

impl LevelHealthState {
    /// The sites of the server.
    pub fn sites(&self) -> Option<Arc<LevelSites>> {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.clone()
    }

    /// Records a report of the level's numbers.
    pub fn record_report(&self, report: LevelReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// Records a report of hits by URL ([`url_hits::to_line`]).
    pub fn record_urls(&self, line: &str, now_ms: u64) {
        let mut urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let table = urls.get_or_insert_with(|| UrlTable::new(now_ms));
        url_hits::record_line(line, table, now_ms);
    }

    /// Adds a report of hits by host ([`url_hits::to_line`]) to those of the sites. The number of names is bounded like
    /// that of sites in all metrics.
    pub fn record_hosts(&self, line: &str) {
        let sites = self.sites();
        let hits = self.site_hits.lock();
        let mut hits = hits.unwrap_or_else(PoisonError::into_inner);
        url_hits::read_hosts(line, |host, count| {
            let site = sites.as_deref().map_or("", |sites| sites.label(host));
            // A name is copied only for its first hits.
            match hits.get_mut(site) {
                Some(sum) => *sum += count,
                None => drop(hits.insert(site.to_owned(), count)),
            }
        });
    }

    /// The clients that the level drops.
    pub fn denials(&self) -> &DenialFeed {
        &self.denials
    }

    /// Records that a daemon is ready. Returns the number of restarts so far.
    pub fn record_attached(&self) -> u64 {
        self.denials.record_attached();
        let mut state = self.state();
        state.starts += 1;
        state.current = CurrentHealth::Attached;
        state.starts - 1
    }

    /// Records that the daemon has ended and will be restarted.
    pub fn record_gone(&self, description: &str) {
        self.state().current = CurrentHealth::Gone(description.into());
    }

    /// Records that the processes have ended. Returns whether their end is unexpected.
    pub fn record_off(&self) -> bool {
        self.state().current = CurrentHealth::Off(OFF.into());
        !self.is_ending.load(Ordering::Relaxed)
    }

    /// Records that the level was not started.
    pub fn record_unavailable(&self, text: &str) {
        self.state().current = CurrentHealth::Off(text.into());
    }

    /// Records that the server is ending the level, so the end of its processes is expected.
    pub fn record_ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, HealthRecord> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
