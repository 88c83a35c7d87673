//! The templates of all sites; reports when they change. Files are checked when a page is requested. The files of sites
//! with cacheable responses are also polled. This module is independent of the cache.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::templates::{TemplateSet, lock};

/// The minimum interval between two checks of a site's files.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// After a check, the pause is at least this many times the duration of the check, which can be long on slow file
/// systems.
const PAUSE_FACTOR: u32 = 10;

/// The maximum number of sites in memory, for servers with a folder per host name.
const SITES_MAX: usize = 1_024;

/// The templates of all sites, by folder.
#[derive(Default)]
pub struct TemplateSites {
    sites: RwLock<HashMap<Arc<Path>, Arc<TemplateSite>>>,
    /// The number for the next site, which becomes part of the site's name.
    numbers: AtomicU64,
    listener: OnceLock<TemplateListener>,
    /// Whether a task is polling.
    is_watched: AtomicBool,
}

/// The callback for changes: gets the name of a site with changed templates.
pub type TemplateListener = Box<dyn Fn(&str) + Send + Sync>;

/// The templates of one site.
pub struct TemplateSite {
    /// The tag of responses rendered with these templates; see
    /// [`Response::made_from`](lowroad_handler::Response::made_from).
    pub name: Arc<str>,
    root: Arc<Path>,
    current: Mutex<(Arc<TemplateSet>, Instant)>,
    /// Whether responses rendered with these templates may be cached.
    is_cached: AtomicBool,
}

impl TemplateSites {
    /// Sets the callback for changes. Can be called once.
    pub fn set_listener(&self, listener: TemplateListener) {
        let is_first = self.listener.set(listener).is_ok();
        debug_assert!(is_first, "there is one");
    }

    /// The site in a folder, with its templates; their files were checked within the last check interval.
    pub fn site_templates(&self, root: &Arc<Path>) -> (Arc<TemplateSite>, Arc<TemplateSet>) {
        let sites = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        let site = sites.get(root).cloned();
        // The read lock is released before `add`, which takes the write lock.
        drop(sites);
        let site = site.unwrap_or_else(|| self.add(root));
        let templates = self.current(&site);
        (site, templates)
    }

    fn add(&self, root: &Arc<Path>) -> Arc<TemplateSite> {
        let mut sites = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        // The limit bounds memory on servers with a folder per host name.
        if sites.len() >= SITES_MAX {
            // Evicted sites are no longer polled, so cached responses of their templates are invalidated now.
            sites
                .drain()
                .for_each(|(_, site)| self.notify_change(&site));
        }
        // Another thread may have added the site since the read lock was released.
        let site = sites.entry(root.clone()).or_insert_with(|| {
            let number = self.numbers.fetch_add(1, Relaxed);
            Arc::new(TemplateSite::new(root.clone(), number))
        });
        site.clone()
    }

    fn current(&self, site: &TemplateSite) -> Arc<TemplateSet> {
        // The files are checked under the lock, so that concurrent requests check only once.
        let mut current = lock(&site.current);
        let (templates, checked_at) = &mut *current;
        if checked_at.elapsed() >= CHECK_INTERVAL {
            if templates.have_changed() {
                // The next cacheable response sets `is_cached` again.
                site.is_cached.store(false, SeqCst);
                // A new engine is created: compiled templates cannot be removed from the old engine, which requests may
                // still use.
                *templates = Arc::new(TemplateSet::new(site.root.clone()));
                self.notify_change(site);
            }
            // The interval starts after the check, which can be slow.
            *checked_at = Instant::now();
        }
        templates.clone()
    }

    fn notify_change(&self, site: &TemplateSite) {
        if let Some(notify) = self.listener.get() {
            notify(&site.name);
        }
    }

    /// Starts polling a site's templates, because responses rendered with them may be cached. Needs a tokio runtime.
    pub fn mark_cached(self: &Arc<Self>, site: &TemplateSite) {
        site.is_cached.store(true, SeqCst);
        // The task is needed only if a cache must be notified of changes.
        if self.listener.get().is_some() && !self.is_watched.swap(true, SeqCst) {
            tokio::spawn(TemplateWatch(self.clone()).run());
        }
    }

    /// Checks the templates of sites with cacheable responses.
    fn check_cached(&self) {
        let sites = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        let cached = sites.values().filter(|site| site.is_cached.load(SeqCst));
        let cached: Vec<_> = cached.cloned().collect();
        // The lock is released, since a check may wait for the disk.
        drop(sites);
        for site in cached {
            self.current(&site);
        }
    }
}

/// The polling task. If it ends, another task can be started.
struct TemplateWatch(Arc<TemplateSites>);

impl TemplateWatch {
    async fn run(self) {
        let mut pause = CHECK_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let sites = self.0.clone();
            let check = move || {
                let started_at = Instant::now();
                sites.check_cached();
                started_at.elapsed()
            };
            // The check runs on another thread, since a network file system may block.
            let Ok(duration) = tokio::task::spawn_blocking(check).await else {
                return;
            };
            pause = CHECK_INTERVAL.max(duration * PAUSE_FACTOR);
        }
    }
}

impl Drop for TemplateWatch {
    fn drop(&mut self) {
        self.0.is_watched.store(false, SeqCst);
    }
}

impl TemplateSite {
    fn new(root: Arc<Path>, number: u64) -> TemplateSite {
        let templates = Arc::new(TemplateSet::new(root.clone()));
        TemplateSite {
            // The control character prevents collisions with tags set by handlers.
            name: format!("\u{1}templates {number}").into(),
            root,
            current: Mutex::new((templates, Instant::now())),
            is_cached: AtomicBool::new(false),
        }
    }
}
