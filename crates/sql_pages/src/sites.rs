//! The templates of all sites, and who is told when those of one have changed. They are looked at when a page is asked for,
//! and, where responses may be kept that were made of them, all the time. Knows nothing of what is kept.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::templates::{Templates, lock};

/// How often files are looked at.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// So many times as long as a look is at least the pause behind it. By the clock, so a busy machine has longer looks.
const PAUSE_MIN: u32 = 10;

/// Sites that are known at a time; a server with a folder for each host name may have many.
const SITES_MAX: usize = 1_024;

/// The templates of all sites, by the sites' folders.
#[derive(Default)]
pub struct Sites {
    sites: RwLock<HashMap<Arc<Path>, Arc<Site>>>,
    /// Those so far have had other numbers.
    numbers: AtomicU64,
    listener: OnceLock<Listener>,
    /// Somebody looks all the time.
    is_watched: AtomicBool,
}

/// Is told the name of a site whose templates have changed.
pub type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// The templates of a site.
pub struct Site {
    /// The tag of responses made of them, see [`Response::made_from`](lowroad_handler::Response::made_from).
    pub name: Arc<str>,
    root: Arc<Path>,
    current: Mutex<(Arc<Templates>, Instant)>,
    /// What is made of them may be kept.
    is_kept: AtomicBool,
}

impl Sites {
    /// Who is told of changes; there is one.
    pub fn tell(&self, listener: Listener) {
        let is_first = self.listener.set(listener).is_ok();
        debug_assert!(is_first, "there is one");
    }

    /// The site in a folder, and its templates as they are now, give or take the time between two looks.
    pub fn of(&self, root: &Arc<Path>) -> (Arc<Site>, Arc<Templates>) {
        let known = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        let site = known.get(root).cloned();
        drop(known);
        let site = site.unwrap_or_else(|| self.add(root));
        let templates = self.current(&site);
        (site, templates)
    }

    fn add(&self, root: &Arc<Path>) -> Arc<Site> {
        let mut sites = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        if sites.len() >= SITES_MAX {
            // Nobody looks at them any more.
            sites.drain().for_each(|(_, site)| self.has_changed(&site));
        }
        let site = sites.entry(root.clone()).or_insert_with(|| {
            let number = self.numbers.fetch_add(1, Relaxed);
            Arc::new(Site::new(root.clone(), number))
        });
        site.clone()
    }

    fn current(&self, site: &Site) -> Arc<Templates> {
        let mut current = lock(&site.current);
        let (templates, checked) = &mut *current;
        if checked.elapsed() >= CHECK_EVERY {
            if templates.have_changed() {
                // What is made of the new ones says so anew.
                site.is_kept.store(false, SeqCst);
                *templates = Arc::new(Templates::new(site.root.clone()));
                self.has_changed(site);
            }
            *checked = Instant::now();
        }
        templates.clone()
    }

    fn has_changed(&self, site: &Site) {
        if let Some(tell) = self.listener.get() {
            tell(&site.name);
        }
    }

    /// What was made of a site's templates may be kept: from now on they are looked at all the time. In a task of tokio.
    pub fn keeps(self: &Arc<Self>, site: &Site) {
        site.is_kept.store(true, SeqCst);
        if self.listener.get().is_some() && !self.is_watched.swap(true, SeqCst) {
            tokio::spawn(Watch(self.clone()).run());
        }
    }

    /// Looks at the templates of which something may be kept.
    fn look(&self) {
        let sites = self.sites.read().unwrap_or_else(PoisonError::into_inner);
        let kept = sites.values().filter(|site| site.is_kept.load(SeqCst));
        let kept: Vec<_> = kept.cloned().collect();
        drop(sites);
        for site in kept {
            self.current(&site);
        }
    }
}

/// Looks all the time. Whoever comes after its end may begin anew.
struct Watch(Arc<Sites>);

impl Watch {
    async fn run(self) {
        let mut pause = CHECK_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let sites = self.0.clone();
            let look = move || {
                let began = Instant::now();
                sites.look();
                began.elapsed()
            };
            // Files may be far away.
            let Ok(took) = tokio::task::spawn_blocking(look).await else {
                return;
            };
            pause = CHECK_EVERY.max(took * PAUSE_MIN);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.is_watched.store(false, SeqCst);
    }
}

impl Site {
    fn new(root: Arc<Path>, number: u64) -> Site {
        let templates = Arc::new(Templates::new(root.clone()));
        Site {
            // No program's tag has a control character.
            name: format!("\u{1}templates {number}").into(),
            root,
            current: Mutex::new((templates, Instant::now())),
            is_kept: AtomicBool::new(false),
        }
    }
}
