//! The templates of all sites, and notification of their changes. Files are checked when a page is requested; where
//! responses made of them may be cached, they are polled all the time. Independent of the cache.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::templates::{TemplateSet, lock};

/// How often files are checked.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The pause after a check is at least this many times its duration, so that slow file systems are checked less often.
const PAUSE_MIN: u32 = 10;

/// The most sites in memory; a server with a folder for each host name may have many.
const SITES_MAX: usize = 1_024;

/// The templates of all sites, by folder.
#[derive(Default)]
pub struct TemplateSites {
    sites: RwLock<HashMap<Arc<Path>, Arc<TemplateSite>>>,
    /// The last number given to a site; each gets a new one.
    numbers: AtomicU64,
    listener: OnceLock<TemplateListener>,
    /// A task polls all the time.
    is_watched: AtomicBool,
}

/// Called with the tag of a site when its templates have changed.
pub type TemplateListener = Box<dyn Fn(&str) + Send + Sync>;

/// The templates of a site.
pub struct TemplateSite {
    /// The tag of responses made of them, see [`Response::made_from`](lowroad_handler::Response::made_from).
    pub name: Arc<str>,
    root: Arc<Path>,
    current: Mutex<(Arc<TemplateSet>, Instant)>,
    /// Responses made of its templates may be cached.
    is_cached: AtomicBool,
}

impl TemplateSites {
    /// Sets the listener of changes. It can be set once.
    pub fn set_listener(&self, listener: TemplateListener) {
        let is_first = self.listener.set(listener).is_ok();
        debug_assert!(is_first, "there is one");
    }

    /// The site in a folder and its templates, at most one check interval old.
    pub fn site_templates(&self, root: &Arc<Path>) -> (Arc<TemplateSite>, Arc<TemplateSet>) {
        let sites = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        let site = sites.get(root).cloned();
        // Released before `add`, which takes the write lock.
        drop(sites);
        let site = site.unwrap_or_else(|| self.add(root));
        let templates = self.current(&site);
        (site, templates)
    }

    fn add(&self, root: &Arc<Path>) -> Arc<TemplateSite> {
        let mut sites = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        // Bounds the memory of servers with a folder for each host name.
        if sites.len() >= SITES_MAX {
            // The evicted sites are no longer watched, so responses made of them are invalidated now.
            sites.drain().for_each(|(_, site)| self.has_changed(&site));
        }
        // Another thread may have added it since the read lock was released.
        let site = sites.entry(root.clone()).or_insert_with(|| {
            let number = self.numbers.fetch_add(1, Relaxed);
            Arc::new(TemplateSite::new(root.clone(), number))
        });
        site.clone()
    }

    fn current(&self, site: &TemplateSite) -> Arc<TemplateSet> {
        // Checked under the lock, so that concurrent requests check once.
        let mut current = lock(&site.current);
        let (templates, checked_at) = &mut *current;
        if checked_at.elapsed() >= CHECK_EVERY {
            if templates.have_changed() {
                // Responses made of the new templates set it again.
                site.is_cached.store(false, SeqCst);
                // A new engine: parsed templates cannot be removed from the old one, which requests may still use.
                *templates = Arc::new(TemplateSet::new(site.root.clone()));
                self.has_changed(site);
            }
            // The interval starts after the check, which may be slow.
            *checked_at = Instant::now();
        }
        templates.clone()
    }

    fn has_changed(&self, site: &TemplateSite) {
        if let Some(notify) = self.listener.get() {
            notify(&site.name);
        }
    }

    /// Responses made of a site's templates may be cached, so its templates are polled from now on. Needs a tokio
    /// runtime.
    pub fn mark_cached(self: &Arc<Self>, site: &TemplateSite) {
        site.is_cached.store(true, SeqCst);
        // Needed only if a cache must learn of changes.
        if self.listener.get().is_some() && !self.is_watched.swap(true, SeqCst) {
            tokio::spawn(TemplateWatch(self.clone()).run());
        }
    }

    /// Checks the templates of sites with cacheable responses.
    fn check_cached(&self) {
        let sites = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        let cached = sites.values().filter(|site| site.is_cached.load(SeqCst));
        let cached: Vec<_> = cached.cloned().collect();
        // Released, since a check may wait for the disk.
        drop(sites);
        for site in cached {
            self.current(&site);
        }
    }
}

/// Polls all the time. When it ends, a new one may start.
struct TemplateWatch(Arc<TemplateSites>);

impl TemplateWatch {
    async fn run(self) {
        let mut pause = CHECK_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let sites = self.0.clone();
            let check = move || {
                let started_at = Instant::now();
                sites.check_cached();
                started_at.elapsed()
            };
            // A network file system may block.
            let Ok(duration) = tokio::task::spawn_blocking(check).await else {
                return;
            };
            pause = CHECK_EVERY.max(duration * PAUSE_MIN);
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
            // The control character keeps it distinct from tags set by programs.
            name: format!("\u{1}templates {number}").into(),
            root,
            current: Mutex::new((templates, Instant::now())),
            is_cached: AtomicBool::new(false),
        }
    }
}
