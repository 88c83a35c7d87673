//! Traffic classes: finds the class of a request (`index`), counts its requests, and queues calls of handlers
//! (`class_wait`), which `lowroad_limits` schedules.

mod class_wait;
mod conditions;
mod index;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_config as config;
use lowroad_http::request::Request;
use lowroad_limits::{
    CallBounds, ClassRules, ClassScheduler, TokenBucket, WaitCell, retry_after_s,
};

use index::ClassIndex;

/// The traffic classes of a configuration, at least one.
pub struct ClassTable {
    /// In the order of matching; the last class matches all requests.
    all: Vec<TrafficClass>,
    index: ClassIndex,
    bounds: CallBounds,
    scheduler: Mutex<ClassScheduler<Arc<WaitCell>>>,
}

/// One class.
pub struct TrafficClass {
    rules: config::ClassConfig,
    bucket: Option<TokenBucket>,
    /// The counters of the class.
    pub counts: ClassCounters,
}

/// The counters of a class.
#[derive(Default)]
pub struct ClassCounters {
    /// All requests.
    pub requests: AtomicU64,
    /// Requests that exceeded the rate.
    pub limited: AtomicU64,
    /// Started calls.
    pub started: AtomicU64,
    /// Started calls that had to wait.
    pub waited: AtomicU64,
    /// Calls that were refused, or evicted from the queue, because the queue was full.
    pub shed: AtomicU64,
    /// Calls that waited too long and were refused.
    pub late: AtomicU64,
}

/// The class of a request.
#[derive(Clone)]
pub struct ClassChoice {
    classes: Arc<ClassTable>,
    number: usize,
}

impl ClassTable {
    /// The classes of a configuration; `None` if it has none. Unchanged classes are reused.
    pub fn from_rules(
        config: &config::Config,
        previous: Option<&Arc<ClassTable>>,
    ) -> Option<Arc<ClassTable>> {
        if config.classes.is_empty() {
            return None;
        }
        // If the last class has no conditions, the implicit class is not needed.
        let implicit_class = match config.classes.last() {
            Some(last) if last.members.is_everything() => None,
            _ => Some(config::ClassConfig::new(config::ClassConfig::OTHERS.into())),
        };
        let rules: Vec<&config::ClassConfig> =
            config.classes.iter().chain(&implicit_class).collect();
        let bounds = CallBounds {
            calls_max: config.limits.calls_max,
            waiting_max: config.limits.calls_waiting_max,
        };
        // Reused, so that calls in progress count against the limits after a reload.
        let unchanged = previous.filter(|previous| previous.has_same_rules(&rules, bounds));
        Some(match unchanged {
            Some(unchanged) => unchanged.clone(),
            None => Arc::new(ClassTable::new(&rules, bounds)),
        })
    }

    fn new(rules: &[&config::ClassConfig], bounds: CallBounds) -> ClassTable {
        let scheduler_rules: Vec<ClassRules> = rules
            .iter()
            .map(|class| ClassRules {
                weight: class.weight,
                calls_max: class.concurrency_max.unwrap_or(bounds.calls_max),
                waiting_max: class.queue_len_max,
                deadline_ms: class.deadline_ms,
            })
            .collect();
        let class = |rules: &&config::ClassConfig| TrafficClass {
            rules: (*rules).clone(),
            bucket: rules.rate.map(TokenBucket::new),
            counts: ClassCounters::default(),
        };
        ClassTable {
            all: rules.iter().map(class).collect(),
            index: ClassIndex::new(rules),
            bounds,
            scheduler: Mutex::new(ClassScheduler::new(bounds, &scheduler_rules)),
        }
    }

    fn has_same_rules(&self, rules: &[&config::ClassConfig], bounds: CallBounds) -> bool {
        self.bounds == bounds
            && self
                .all
                .iter()
                .map(|class| &class.rules)
                .eq(rules.iter().copied())
    }

    /// Finds the class of a request for a decoded path from an address.
    pub fn choose(
        self: &Arc<Self>,
        request: &Request<'_>,
        path: &[u8],
        peer: IpAddr,
    ) -> ClassChoice {
        let first = self.index.class(request, path, peer);
        ClassChoice {
            classes: self.clone(),
            // The last class matches all requests.
            number: first.unwrap_or(self.all.len() - 1),
        }
    }

    /// The counters and the current calls of each class, with names like `gold.requests`.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let mut list = Vec::new();
        for (number, class) in self.all.iter().enumerate() {
            let (under_way, waiting) = self.lock().counts(number);
            let counts = class.counts.list();
            let current = [("under_way", under_way as u64), ("waiting", waiting as u64)];
            for (name, value) in counts.into_iter().chain(current) {
                list.push((format!("{}.{name}", class.rules.name), value));
            }
        }
        list
    }

    fn lock(&self) -> MutexGuard<'_, ClassScheduler<Arc<WaitCell>>> {
        self.scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClassCounters {
    fn list(&self) -> [(&'static str, u64); 6] {
        let load = |count: &AtomicU64| count.load(Relaxed);
        [
            ("requests", load(&self.requests)),
            ("beyond_rate", load(&self.limited)),
            ("calls", load(&self.started)),
            ("waited", load(&self.waited)),
            ("shed", load(&self.shed)),
            ("too_late", load(&self.late)),
        ]
    }
}

impl ClassChoice {
    /// The class.
    pub fn class(&self) -> &TrafficClass {
        &self.classes.all[self.number]
    }

    /// The class, and its current calls, as text.
    pub fn text(&self) -> String {
        let class = self.class();
        let (under_way, waiting) = self.classes.lock().counts(self.number);
        format!(
            "{}, weight {}; {under_way} calls in progress, {waiting} waiting",
            class.rules.name, class.rules.weight
        )
    }
}

impl TrafficClass {
    /// Takes one request from the rate of the class.
    ///
    /// # Errors
    /// The rate is exceeded; the value is the number of seconds until the next request is permitted.
    pub fn take(&self, now_ms: u64) -> Result<(), u64> {
        let Some(bucket) = &self.bucket else {
            return Ok(());
        };
        bucket.take(now_ms).map_err(retry_after_s)
    }
}
