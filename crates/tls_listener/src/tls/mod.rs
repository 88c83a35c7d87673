//! TLS of the server's listeners: one `TlsEndpoint` for each TLS address, shared by all workers.
//!
//! `certificates::for_address` collects the certificates of an address from all sources. `session` encrypts and
//! decrypts; `fault_log` counts clients' errors.

mod acme;
mod certificates;
mod check;
mod client_authorities;
mod fault_log;
mod files;
mod local_authority;
mod session;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lowroad_config::{self as config, Config, TlsVersion};
use lowroad_engine::kernel_tls;
use lowroad_engine::tls_session::TlsSession;
use lowroad_log::ErrorLogger;
use lowroad_privileges::account::ServerAccount;
use lowroad_privileges::helper;
use lowroad_store::clock;
use lowroad_store::watch::FolderWatcher;
use lowroad_tls::certificates::CertificateStore;
use lowroad_tls::{
    MinimumVersion, PERIOD_S_MAX, TicketFile, TicketKeys, TicketService, TlsAcceptor, TlsClock,
    TlsServerSettings,
};

use crate::certificate_status::CertificateStatus;
use acme::{AutomaticTls, CertificateSource};
use client_authorities::ClientAuthorities;
use fault_log::TlsFaultLog;
use files::KeyPairSet;

pub use check::{check, check_ticket_keys};
pub use local_authority::trust;

/// The ALPN protocols, in order of preference.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Makes origins' files open with the helper's rights. Must be called before all others.
pub fn install() {
    lowroad_gateway::proxy::open_files_with(helper::open);
}

/// TLS of a server.
#[derive(Clone)]
pub struct TlsListeners(Arc<TlsContext>);

struct TlsContext {
    process: TlsProcess,
    /// The sites with TLS.
    sites: Vec<config::SiteConfig>,
    pairs: Mutex<KeyPairSet>,
    client_authorities: ClientAuthorities,
    endpoints: HashMap<SocketAddr, Arc<TlsEndpoint>>,
    kernel: KernelTls,
}

/// Whether the kernel encrypts long files (kernel TLS).
enum KernelTls {
    /// Not configured.
    Off,
    On,
    /// The kernel does not support it, for this reason.
    Lacking(String),
}

/// The state that outlives a configuration.
#[derive(Clone)]
struct TlsProcess {
    clock: TlsClock,
    /// Created with the first TLS address, since random numbers for keys cost 30 ms of processor time or more; at once
    /// if the keys are stored.
    tickets: Arc<OnceLock<TicketService>>,
    /// Stores the keys across restarts.
    ticket_file: Option<Arc<TicketFile>>,
    faults: Arc<TlsFaultLog>,
    automatic: Arc<AutomaticTls>,
}

/// The TLS endpoint of one address.
pub struct TlsEndpoint {
    acceptor: TlsAcceptor,
    store: CertificateStore,
    process: TlsProcess,
    /// Kernel TLS is configured and supported.
    can_offload: bool,
}

impl TlsListeners {
    /// TLS of a server that starts, and becomes the user of `account` later. Reads certificates and keys, so it may
    /// need root rights. Logs warnings about them.
    ///
    /// # Errors
    /// The unusable file, and the reason.
    pub fn start(
        config: &Config,
        logger: &ErrorLogger,
        account: Option<&ServerAccount>,
    ) -> Result<TlsListeners, String> {
        let process = TlsProcess::new(config, logger, account)?;
        TlsListeners::open(config, logger, process, None)
    }

    /// TLS of a new configuration of a running server. Files that have not changed are not read again.
    ///
    /// # Errors
    /// The unusable file, and the reason.
    pub fn reload(
        config: &Config,
        logger: &ErrorLogger,
        previous: &TlsListeners,
    ) -> Result<TlsListeners, String> {
        let previous_context = &*previous.0;
        TlsListeners::open(
            config,
            logger,
            previous_context.process.clone(),
            Some(previous_context),
        )
    }

    fn open(
        config: &Config,
        logger: &ErrorLogger,
        process: TlsProcess,
        previous: Option<&TlsContext>,
    ) -> Result<TlsListeners, String> {
        process.clock.set(unix_s());
        let sites = config.sites.iter().filter(|it| it.tls.is_some());
        let sites: Vec<config::SiteConfig> = sites.cloned().collect();
        let (pairs, warnings) = {
            // The lock is held only while certificates in use are compared with the new configuration.
            let previous_pairs =
                previous.map(|it| it.pairs.lock().unwrap_or_else(PoisonError::into_inner));
            KeyPairSet::read(&sites, process.clock.unix_s(), previous_pairs.as_deref())?
        };
        let previous_authorities = previous.map(|context| &context.client_authorities);
        let (client_authorities, authority_warnings) =
            ClientAuthorities::read(&sites, previous_authorities)?;
        for warning in warnings.into_iter().chain(authority_warnings) {
            logger.warn(format_args!("{warning}"));
        }
        let kernel = KernelTls::new(config.server.kernel_tls, logger);
        let mut offers = HashMap::new();
        // Several sites may share an address, and then one endpoint.
        for address in sites.iter().flat_map(config::SiteConfig::tls_addresses) {
            if !offers.contains_key(address) {
                let mut offer =
                    TlsEndpoint::new(*address, &sites, &pairs, &client_authorities, &process)?;
                offer.can_offload = matches!(kernel, KernelTls::On);
                offers.insert(*address, Arc::new(offer));
            }
        }
        Ok(TlsListeners(Arc::new(TlsContext {
            process,
            sites,
            pairs: Mutex::new(pairs),
            client_authorities,
            endpoints: offers,
            kernel,
        })))
    }

    /// The endpoint of an address of the configuration, if it uses TLS.
    pub fn endpoint(&self, address: SocketAddr) -> Option<Arc<TlsEndpoint>> {
        self.0.endpoints.get(&address).cloned()
    }

    /// Reloads changed certificates and keys; connections keep theirs. Unchanged files in watched folders are not
    /// checked; without a watcher all are. Stores the ticket keys if configured. Blocks on the disk.
    pub fn follow(&self, watcher: Option<&FolderWatcher>, logger: &ErrorLogger) {
        self.0.process.keep_ticket_keys(logger);
        self.0.process.automatic.follow(watcher);
        let mut pairs = self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        if !pairs.follow(watcher, unix_s(), logger) {
            return;
        }
        // Released, since `publish` takes the lock again.
        drop(pairs);
        let automatic = self.0.process.automatic.source();
        self.0
            .publish(automatic.as_deref().map(|it| it as &dyn CertificateSource));
    }

    /// Obtains and renews the automatic certificates. Must be called when this configuration is in force and root
    /// rights were dropped.
    ///
    /// # Errors
    /// The fault of the settings.
    pub fn keep(&self, config: &Config, logger: &ErrorLogger) -> Result<(), String> {
        self.0.process.automatic.keep(config, &self.0, logger)
    }

    /// The response to an authority's validation request, below `/.well-known/acme-challenge/`.
    pub fn challenge(&self, token: &[u8]) -> Option<Arc<str>> {
        let token = std::str::from_utf8(token).ok()?;
        self.0.process.automatic.challenge(token)
    }

    /// The lines for `lowroad status`.
    pub fn status(&self) -> Vec<(&'static str, String)> {
        if self.0.endpoints.is_empty() {
            return Vec::new();
        }
        let pairs = self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let automatic = self.0.process.automatic.texts();
        let certificates = pairs.texts().chain(automatic);
        let certificates = certificates.map(|text| ("certificate", text));
        let kernel = self.0.kernel.status_text().map(|text| ("tls.kernel", text));
        let counts = self.0.process.automatic.counts().into_iter();
        let counts = counts.map(|(name, value)| (name, value.to_string()));
        let faults = self.0.process.faults.texts();
        certificates
            .chain(kernel)
            .chain(counts)
            .chain(faults)
            .collect()
    }

    /// The certificates in use and those to be obtained.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        let pairs = self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let automatic = self.0.process.automatic.certificates();
        pairs.status().chain(automatic).collect()
    }

    /// The counters of clients' errors.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.process.faults.counters().collect()
    }
}

impl KernelTls {
    /// Tests kernel support, if kernel TLS is configured. With root rights the kernel may load the module.
    fn new(is_enabled: bool, logger: &ErrorLogger) -> KernelTls {
        if !is_enabled {
            return KernelTls::Off;
        }
        // Tested once here, since a missing module would fail for each connection.
        match kernel_tls::probe() {
            Ok(()) => KernelTls::On,
            Err(error) => {
                logger.warn(format_args!(
                    "kernel_tls: the kernel can't encrypt, so the server does: {error} (is the \
                     module \"tls\" available?)"
                ));
                KernelTls::Lacking(error.to_string())
            }
        }
    }

    fn status_text(&self) -> Option<String> {
        match self {
            KernelTls::Off => None,
            KernelTls::On => Some("in use".into()),
            KernelTls::Lacking(reason) => Some(format!("not in use: {reason}")),
        }
    }
}

impl TlsContext {
    /// Sets the current certificates of all endpoints.
    fn publish(&self, automatic: Option<&dyn CertificateSource>) {
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, offer) in &self.endpoints {
            let certificates = certificates::for_address(*address, &self.sites, &pairs, automatic);
            // Replaced as a whole, so that a handshake sees either the old or the new set.
            offer.store.replace(certificates);
        }
    }
}

impl TlsProcess {
    fn new(
        config: &Config,
        logger: &ErrorLogger,
        account: Option<&ServerAccount>,
    ) -> Result<TlsProcess, String> {
        let process = TlsProcess {
            clock: TlsClock::new(unix_s()),
            tickets: Arc::default(),
            ticket_file: None,
            faults: Arc::new(TlsFaultLog::new(logger.clone())),
            automatic: Arc::default(),
        };
        let Some(path) = &config.server.ticket_keys else {
            return Ok(process);
        };
        // At the start the file is opened with root rights, and belongs to the later user.
        let opened = match account {
            Some(account) => account.open_secret(path, TicketFile::open),
            None => TicketFile::open(path).map_err(|error| error.to_string()),
        };
        let read =
            opened.and_then(|file| TicketFile::read(file, PERIOD_S_MAX, process.clock.unix_s()));
        let (file, keys) =
            read.map_err(|reason| format!("ticket_keys: {}: {reason}", path.display()))?;
        process.make_tickets(keys)?;
        Ok(TlsProcess {
            ticket_file: Some(Arc::new(file)),
            ..process
        })
    }

    /// The ticket service of all addresses.
    fn tickets(&self) -> Result<TicketService, String> {
        if let Some(tickets) = self.tickets.get() {
            return Ok(tickets.clone());
        }
        let keys = TicketKeys::new(PERIOD_S_MAX, self.clock.unix_s());
        self.make_tickets(keys.map_err(no_keys)?)
    }

    fn make_tickets(&self, keys: TicketKeys) -> Result<TicketService, String> {
        let tickets = TicketService::new(keys, self.clock.clone()).map_err(no_keys)?;
        // Another thread may have made the tickets meanwhile; then its keys are used.
        Ok(self.tickets.get_or_init(|| tickets).clone())
    }

    /// Stores the ticket keys. Called periodically, since a new key period may begin without a handshake.
    fn keep_ticket_keys(&self, logger: &ErrorLogger) {
        let (Some(file), Some(tickets)) = (&self.ticket_file, self.tickets.get()) else {
            return;
        };
        // The period of a key depends on the time, which only handshakes set otherwise.
        self.clock.set(unix_s());
        if let Err(error) = file.store(&tickets.keys()) {
            logger.error(format_args!("ticket_keys can't be written: {error}"));
        }
    }
}

impl TlsEndpoint {
    fn new(
        address: SocketAddr,
        sites: &[config::SiteConfig],
        pairs: &KeyPairSet,
        client_authorities: &ClientAuthorities,
        process: &TlsProcess,
    ) -> Result<TlsEndpoint, String> {
        let automatic = process.automatic.source();
        let automatic = automatic.as_deref().map(|it| it as &dyn CertificateSource);
        let store =
            CertificateStore::new(certificates::for_address(address, sites, pairs, automatic));
        let mut settings = TlsServerSettings::new(store.clone(), process.clock.clone());
        settings.protocols = PROTOCOLS.map(str::to_owned).to_vec();
        settings.tickets = Some(process.tickets()?);
        // The check of the configuration ensures that all sites of an address have the same settings.
        let has_address = |site: &&config::SiteConfig| site.tls_addresses().contains(&address);
        let tls = sites
            .iter()
            .find(has_address)
            .and_then(|it| it.tls.as_ref());
        if let Some(tls) = tls {
            settings.version_min = match tls.version_min {
                TlsVersion::Tls12 => MinimumVersion::Tls12,
                TlsVersion::Tls13 => MinimumVersion::Tls13,
            };
            settings.clients = client_authorities.settings(&tls.clients);
        }
        let acceptor = TlsAcceptor::new(&settings);
        Ok(TlsEndpoint {
            acceptor: acceptor.map_err(|error| format!("TLS at {address}: client_ca: {error}"))?,
            store,
            process: process.clone(),
            can_offload: false,
        })
    }

    /// The TLS session of a new connection.
    pub fn new_session(self: &Arc<Self>) -> Box<dyn TlsSession> {
        self.process.clock.set(unix_s());
        Box::new(session::ListenerSession::new(self))
    }

    /// Requests a certificate for the name of a failed handshake.
    fn request_on_demand(&self, server_name: &str) {
        let name = server_name.to_ascii_lowercase();
        if !self.store.current().covers(&name) {
            self.process.automatic.request_on_demand(&name);
        }
    }

    /// Whether the connection was made for another name than `host`, with other certificates (421, RFC 9110 §15.5.20).
    pub fn is_misdirected(&self, server_name: Option<&str>, host: &str) -> bool {
        !self.store.current().is_same(server_name, host)
    }
}

fn no_keys(error: impl std::fmt::Display) -> String {
    format!("can't create ticket keys: {error}")
}

fn unix_s() -> u64 {
    u64::try_from(clock::unix_ns() / 1_000_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_log::{LogDestination, LogLevel, LogWriter};
    use std::path::Path;

    /// Random numbers for keys would be the largest part of the cost of a start.
    #[test]
    fn without_tls_no_keys_for_tickets_are_made() {
        let text = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"/srv\"\n";
        let config = config::parse(text, Path::new("lowroad.toml")).expect("a configuration");
        let log = LogWriter::open(&LogDestination::File("/dev/null".into())).expect("a log");
        let logger = ErrorLogger::new(log.sink(), LogLevel::Error);
        let tls = TlsListeners::start(&config, &logger, None).expect("nothing to open");
        assert!(tls.0.process.tickets.get().is_none());
        tls.0.process.tickets().expect("random numbers");
        assert!(tls.0.process.tickets.get().is_some());
    }
}
