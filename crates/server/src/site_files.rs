//! Follows the files to which the configuration's sites refer: document roots, error pages, certificates and keys.
//!
//! inotify watches the folders on the path of each file, so that an idle server checks no files, however many sites it
//! has. A site is checked after a change in one of these folders, or on every call if they can't be watched. All sites
//! are checked once in [`FULL_INTERVAL`], since inotify does not report mounts, nor changes through other hard links.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use lowroad_config::SiteRoot;
use lowroad_site::sites::{Site, SiteTable};
use lowroad_store::watch::{FolderWatcher, PathWatch};

use crate::reload;
use crate::running_server::{RunningServer, lock};

/// Interval between checks of all sites.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

/// Follows the files of the current sites.
pub struct SiteFollower {
    /// `None` without inotify.
    watcher: Option<Arc<FolderWatcher>>,
    /// The sites that `watches` belong to.
    sites: Weak<SiteTable>,
    /// The watch of each site, by the site's index. `None`: the site must be checked on the next call.
    watches: Vec<Option<PathWatch>>,
    /// The watcher's mark at the last call, if no site needed a check then.
    settled: Option<u64>,
    last_full: Instant,
}

impl Default for SiteFollower {
    fn default() -> SiteFollower {
        SiteFollower {
            // This watcher is not shared with served files: their watcher has a limited number of folders.
            watcher: FolderWatcher::start(Arc::default()),
            sites: Weak::new(),
            watches: Vec::new(),
            settled: None,
            last_full: Instant::now(),
        }
    }
}

impl SiteFollower {
    /// Reloads the files that may have changed since the last call. Blocks on the disk.
    pub fn follow(&mut self, running: &Mutex<RunningServer>) {
        // The lock is released here, because reading files may block on the disk.
        let (sites, tls, logger) = {
            let running = lock(running);
            (
                running.sites.clone(),
                running.tls.clone(),
                running.logger.clone(),
            )
        };
        // inotify does not report mounts, nor changes through other hard links.
        let is_full = self.last_full.elapsed() >= FULL_INTERVAL;
        if is_full {
            self.last_full = Instant::now();
        }
        let changed = self.take_changed(&sites, is_full);
        let refreshed = changed
            .iter()
            .filter(|number| sites.all[**number].pages.refresh());
        // Subscribers such as the softirq level must drop responses with an outdated error page.
        if refreshed.count() > 0 {
            lock(running).changes.notify();
        }
        if !changed.is_empty() {
            reload::reopen_moved_folders(running, &sites, &changed);
        }
        tls.follow(self.watcher.as_deref().filter(|_| !is_full), &logger);
    }

    /// Returns the indices of sites with files that may have changed, in order, and watches these files for later
    /// changes.
    fn take_changed(&mut self, sites: &Arc<SiteTable>, is_full: bool) -> Vec<usize> {
        // A reload has replaced the sites, so the indices of `watches` have another meaning.
        if is_full || self.sites.as_ptr() != Arc::as_ptr(sites) {
            self.sites = Arc::downgrade(sites);
            self.watches.clear();
            self.watches.resize_with(sites.all.len(), || None);
            self.settled = None;
        }
        // The mark is read before the folders are watched, so that the next call reports a change in between.
        let mark = self.watcher.as_ref().map(|watcher| watcher.mark());
        if mark.is_some() && mark == self.settled {
            return Vec::new();
        }
        let may_have_changed =
            |watch: &Option<PathWatch>| watch.as_ref().is_none_or(|watch| !watch.is_unchanged());
        let numbered = self.watches.iter_mut().zip(&sites.all).enumerate();
        let changed = numbered.filter(|(_, (watch, _))| may_have_changed(watch));
        let changed = changed.map(|(number, (watch, site))| {
            let watcher = self.watcher.as_deref();
            *watch = watcher.and_then(|watcher| PathWatch::new(watcher, paths(site)));
            number
        });
        let changed: Vec<usize> = changed.collect();
        // `settled` is set only if no site needed a check; otherwise the next call checks again.
        self.settled = mark.filter(|_| changed.is_empty());
        changed
    }
}

/// The paths of a site's folders and error pages.
fn paths(site: &Site) -> impl Iterator<Item = PathBuf> {
    let root = match &site.rules.config.root {
        SiteRoot::Folder(folder) | SiteRoot::PerHost { prefix: folder, .. } => Some(folder.clone()),
        SiteRoot::None => None,
    };
    let aliases = site
        .rules
        .config
        .aliases
        .iter()
        .map(|alias| alias.folder.clone());
    root.into_iter().chain(aliases).chain(site.pages.paths())
}
