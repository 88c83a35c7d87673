//! What is asked of from outside, and what its parts share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_tls::certificates::{Certificates, Pair};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

mod demand;
mod entry;
mod note;
mod run;

pub use demand::Denied;
use entry::Entry;

use crate::folder::Folder;
use crate::http::Http;
use crate::issued::Issued;
use crate::name;
use crate::plan::{Jitter, Rate};
use crate::settings::{OnDemand, Problem, Settings};
use crate::state::State;
use crate::tokens::Tokens;

const HOUR_S: u64 = 3600;
const MINUTE_S: u64 = 60;

/// What a listener and a log are told.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// There are other certificates, or challenges: when the callback returns, handshakes must see what
    /// [`Manager::add_to`] adds now.
    Changed,
    /// A line for the log.
    Said(&'a str),
}

type Callback = Box<dyn Fn(&View, Event<'_>) + Send + Sync>;

/// The certificates, for a callback that has no manager yet.
pub struct View(Arc<Shared>);

/// Gets certificates and keeps them. Dropped, it stops; what it has got stays in its folder.
pub struct Manager {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What orders, tasks and questions share.
pub(crate) struct Shared {
    pub settings: Settings,
    pub folder: Folder,
    pub tokens: Tokens,
    callback: Callback,
    /// Something is to be looked at.
    wake: Notify,
    /// Counts what has ended.
    ended: watch::Sender<u64>,
    inner: Mutex<Inner>,
    /// By the authority's place.
    clients: Mutex<Vec<Option<Http>>>,
}

/// What changes.
struct Inner {
    entries: BTreeMap<String, Entry>,
    /// Certificates for `tls-alpn-01`, by name.
    challenges: HashMap<String, Pair>,
    orders: Rate,
    /// Names that were asked for on demand.
    asked: Rate,
    /// Names that are not asked for again before a second, and why.
    denied: HashMap<String, (u64, Denied)>,
}

impl Manager {
    /// Reads what is in the folder, and begins on a runtime. The callback is called from tasks of the runtime; it must
    /// be quick, and must not call the manager, but may use the [`View`]. May block while it reads.
    ///
    /// # Errors
    /// Something is wrong with the settings. A folder that cannot be used is no reason: that is tried again.
    pub fn start(
        settings: Settings,
        runtime: &Handle,
        callback: impl Fn(&View, Event<'_>) + Send + Sync + 'static,
    ) -> Result<Manager, Problem> {
        settings.check()?;
        let sites = settings.checked_sites(&settings.sites)?;
        let per_minute_max = settings
            .on_demand
            .as_ref()
            .map_or(0, |demand| demand.per_minute_max);
        let shared = Arc::new(Shared {
            folder: Folder::new(&settings.folder),
            tokens: Tokens::default(),
            callback: Box::new(callback),
            wake: Notify::new(),
            ended: watch::Sender::new(0),
            inner: Mutex::new(Inner {
                entries: BTreeMap::new(),
                challenges: HashMap::new(),
                orders: Rate::new(settings.orders_per_hour_max, HOUR_S),
                asked: Rate::new(per_minute_max, MINUTE_S),
                denied: HashMap::new(),
            }),
            clients: Mutex::new(vec![None; settings.authorities.len()]),
            settings,
        });
        shared.take_sites(sites);
        shared.take_asked_before();
        let task = runtime.spawn(run::run(shared.clone()));
        Ok(Manager { shared, task })
    }

    /// What workers answer to `http-01`.
    pub fn tokens(&self) -> Tokens {
        self.shared.tokens.clone()
    }

    /// Adds all certificates that there are, and the challenges that are to be shown now.
    pub fn add_to(&self, certificates: &mut Certificates) {
        self.shared.add_to(certificates);
    }

    /// The certificate that is called so (its first name), as for who names nobody.
    pub fn pair(&self, name: &str) -> Option<Pair> {
        self.shared.pair(name)
    }

    /// How it stands with each certificate, by name.
    pub fn state(&self) -> Vec<State> {
        let now_s = self.shared.settings.clock.unix_s();
        let inner = self.shared.inner();
        let entries = inner.entries.values();
        entries
            .map(|entry| entry.state(&self.shared.settings, now_s))
            .collect()
    }

    /// Other names are wanted, as after a reload. Certificates that go stay in the folder.
    ///
    /// # Errors
    /// As with [`Manager::start`]; nothing has changed.
    pub fn replace_sites(&self, sites: &[Vec<String>]) -> Result<(), Problem> {
        let sites = self.shared.settings.checked_sites(sites)?;
        self.shared.take_sites(sites);
        self.shared.changed();
        self.shared.wake.notify_one();
        Ok(())
    }

    /// The operator says that it will go well now: no failure is waited for.
    pub fn retry(&self) {
        for entry in self.shared.inner().entries.values_mut() {
            entry.plan.forgive();
        }
        self.shared.wake.notify_one();
    }

    /// Wants a certificate for a name that a client has asked for, and returns when there is one. May be called for
    /// the same name by many: they share one order. Whoever cannot wait so long stops waiting; the order goes on.
    ///
    /// # Errors
    /// [`Denied`]
    pub async fn on_demand(&self, name: &str) -> Result<(), Denied> {
        demand::get(&self.shared, name).await
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl View {
    /// See [`Manager::add_to`].
    pub fn add_to(&self, certificates: &mut Certificates) {
        self.0.add_to(certificates);
    }

    /// See [`Manager::pair`].
    pub fn pair(&self, name: &str) -> Option<Pair> {
        self.0.pair(name)
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_to(&self, certificates: &mut Certificates) {
        let inner = self.inner();
        for issued in inner
            .entries
            .values()
            .filter_map(|entry| entry.issued.as_ref())
        {
            certificates.add(&issued.pair);
        }
        for (name, pair) in &inner.challenges {
            certificates.add_challenge(name, pair);
        }
    }

    fn pair(&self, name: &str) -> Option<Pair> {
        let name = name::check(name).ok()?;
        let inner = self.inner();
        let issued = inner.entries.get(&name)?.issued.as_ref()?;
        Some(issued.pair.clone())
    }

    fn changed(self: &Arc<Self>) {
        (self.callback)(&View(self.clone()), Event::Changed);
    }

    pub(crate) fn log(self: &Arc<Self>, line: &str) {
        (self.callback)(&View(self.clone()), Event::Said(line));
    }

    /// Shows a certificate of `tls-alpn-01`, or takes it away.
    pub(crate) fn show_challenge(self: &Arc<Self>, name: &str, pair: Option<Pair>) {
        let mut inner = self.inner();
        match pair {
            Some(pair) => inner.challenges.insert(name.into(), pair),
            None => inner.challenges.remove(name),
        };
        drop(inner);
        self.changed();
    }

    /// The client for an authority.
    pub(crate) fn http(&self, place: usize) -> Result<Http, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(http) = &clients[place] {
            return Ok(http.clone());
        }
        let http = Http::new(self.settings.authorities[place].roots.as_deref())?;
        clients[place] = Some(http.clone());
        Ok(http)
    }

    /// The certificate in the folder, if it is for all these names.
    pub(crate) fn stored(&self, key: &str, names: &[String]) -> Option<Issued> {
        self.readable(key).filter(|issued| issued.covers(names))
    }

    fn readable(&self, key: &str) -> Option<Issued> {
        let pem = self.folder.certificate(key)?;
        let file = self.folder.certificate_file(key);
        Issued::read(&pem, &file, self.settings.clock.unix_s()).ok()
    }

    /// These are wanted, and those of on-demand that there are.
    fn take_sites(&self, sites: Vec<(String, Vec<String>)>) {
        let mut kept = std::mem::take(&mut self.inner().entries);
        let mut entries = BTreeMap::new();
        for (key, names) in sites {
            let entry = match kept.remove(&key) {
                Some(entry) if entry.names == names => Entry {
                    on_demand: false,
                    ..entry
                },
                _ => self.read_entry(&key, names, false),
            };
            entries.insert(key, entry);
        }
        kept.retain(|_, entry| entry.on_demand);
        for (key, entry) in kept {
            entries.entry(key).or_insert(entry);
        }
        self.inner().entries = entries;
    }

    /// Certificates that were made on demand are renewed, if somebody still wants them.
    fn take_asked_before(&self) {
        let Some(OnDemand { names_max, .. }) = self.settings.on_demand else {
            return;
        };
        let saved = self.folder.all_saved().into_iter();
        for saved in saved.filter(|saved| saved.on_demand).take(names_max) {
            let [name] = saved.names.as_slice() else {
                continue;
            };
            if !self.inner().entries.contains_key(name) {
                let entry = self.read_entry(name, saved.names.clone(), true);
                self.inner().entries.insert(name.clone(), entry);
            }
        }
    }

    /// An entry with what is known of it.
    fn read_entry(&self, key: &str, names: Vec<String>, on_demand: bool) -> Entry {
        let urls = self.settings.directories();
        let saved = self.folder.saved(key).filter(|saved| saved.names == names);
        let mut entry = Entry::new(names, on_demand, saved, urls);
        // One that is not for all names is better than none.
        if let Some(issued) = self.readable(key) {
            match issued.covers(&entry.names) {
                true => entry
                    .plan
                    .holds(issued.pair.fingerprint(), issued.validity, jitter()),
                false => entry.plan.holds_none(),
            }
            entry.issued = Some(issued);
        } else {
            entry.plan.holds_none();
        }
        entry
    }
}

/// Chance.
pub(crate) fn jitter() -> Jitter {
    let mut bytes = [0; 4];
    // Without randomness nothing else works either.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    Jitter(u32::from_le_bytes(bytes))
}
