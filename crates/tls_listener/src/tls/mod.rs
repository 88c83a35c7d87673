//! TLS for the server's listeners: one `TlsEndpoint` for each TLS address, shared by all workers.
//!
//! `certificates::for_address` collects the certificates of an address from all sources. `session` encrypts and
//! decrypts; `fault_log` counts TLS errors of clients.

mod acme;
mod admin;
mod certificates;
mod check;
mod client_authorities;
mod fault_log;
mod files;
mod local_authority;
mod quic;
mod quic_secret;
mod secret_files;
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
use lowroad_store::clock::unix_s;
use lowroad_store::watch::FolderWatcher;
use lowroad_tls::certificates::CertificateStore;
use lowroad_tls::{
    MinimumVersion, PERIOD_S_MAX, TicketFile, TicketKeys, TicketService, TlsAcceptor, TlsClock,
    TlsServerSettings,
};

use crate::certificate_status::CertificateStatus;
use crate::quic_identity::QuicIdentity;
use acme::{AutomaticTls, CertificateSource};
use admin::AdminTls;
use client_authorities::ClientAuthorities;
use fault_log::TlsFaultLog;
use files::KeyPairSet;
use quic::{QuicAcceptor, QuicProcess};

pub use check::{check, check_ticket_keys};
pub use local_authority::trust;
pub use quic::{QuicListener, QuicWorker};

/// The ALPN protocols, in order of preference.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Makes the gateway open files for origin servers (authorities, client keys) through the privileged helper process.
/// Must be called before the other functions of this crate.
pub fn install() {
    lowroad_gateway::proxy::open_files_with(helper::open);
}

/// The TLS endpoints and certificates of one configuration.
#[derive(Clone)]
pub struct TlsListeners(Arc<TlsContext>);

struct TlsContext {
    process: TlsProcess,
    /// The sites with TLS.
    sites: Vec<config::SiteConfig>,
    pairs: Mutex<KeyPairSet>,
    client_authorities: ClientAuthorities,
    endpoints: HashMap<SocketAddr, Arc<TlsEndpoint>>,
    /// `None` if the admin service has no TLS address.
    admin: Option<Arc<AdminTls>>,
    kernel: KernelTls,
}

/// Whether the kernel encrypts responses from long files (kernel TLS).
enum KernelTls {
    /// Not configured.
    Off,
    On,
    /// The kernel does not support TLS; the reason.
    Unsupported(String),
}

/// The state that is kept across reloads.
#[derive(Clone)]
struct TlsProcess {
    clock: TlsClock,
    /// The ticket service. It is created with the first TLS address, since random bytes for keys cost 30 ms of
    /// processor time or more; if the keys are stored in a file, it is created when the server starts.
    tickets: Arc<OnceLock<TicketService>>,
    /// The file that stores the ticket keys across restarts; `None` if not configured.
    ticket_file: Option<Arc<TicketFile>>,
    faults: Arc<TlsFaultLog>,
    automatic: Arc<AutomaticTls>,
    quic: Arc<QuicProcess>,
}

/// The TLS endpoint of one address.
pub struct TlsEndpoint {
    acceptor: TlsAcceptor,
    store: CertificateStore,
    process: TlsProcess,
    /// Whether kernel TLS is configured and supported.
    can_offload: bool,
    /// `None` for the admin service, which has no HTTP/3.
    quic: Option<QuicAcceptor>,
}

impl TlsListeners {
    /// Prepares TLS when the server starts, before it switches to the user of `account`: reading certificates and keys
    /// may need root privileges. Logs warnings about them. Without a file of ticket keys, uses `ticket_keys`, those of the
    /// process from which the server takes over; `quic` is the identity from that process.
    ///
    /// # Errors
    /// The unusable file, and the reason.
    pub fn start(
        config: &Config,
        logger: &ErrorLogger,
        account: Option<&ServerAccount>,
        ticket_keys: Option<&[u8]>,
        quic: Option<QuicIdentity>,
    ) -> Result<TlsListeners, String> {
        let mut process = TlsProcess::new(config, logger, account)?;
        process.quic = Arc::new(QuicProcess::new(quic.or_else(|| {
            let path = config.server.ticket_keys.as_ref();
            let path = path.filter(|_| config.server.http3)?;
            // Without the file, only lost connections take longer to end.
            let secret = quic_secret::read(path, account)
                .inspect_err(|reason| {
                    logger.warn(format_args!("QUIC's secret is not kept: {reason}"))
                })
                .ok()?;
            Some(QuicIdentity {
                secret,
                generation: 0,
            })
        })));
        if let Some(keys) = ticket_keys.and_then(TicketKeys::from_bytes)
            && process.ticket_file.is_none()
        {
            process.make_tickets(keys)?;
        }
        let admin = match &config.admin.tls {
            Some(admin) => {
                let (admin, warnings) = AdminTls::open(admin, &process)?;
                for warning in warnings {
                    logger.warn(format_args!("{warning}"));
                }
                Some(Arc::new(admin))
            }
            None => None,
        };
        TlsListeners::open(config, logger, process, admin, None)
    }

    /// Prepares TLS for a new configuration of a running server; unreadable files are replaced by their contents in
    /// `previous`.
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
            previous_context.admin.clone(),
            Some(previous_context),
        )
    }

    fn open(
        config: &Config,
        logger: &ErrorLogger,
        process: TlsProcess,
        admin: Option<Arc<AdminTls>>,
        previous: Option<&TlsContext>,
    ) -> Result<TlsListeners, String> {
        process.clock.set(unix_s());
        let sites = config.sites.iter().filter(|it| it.tls.is_some());
        let sites: Vec<config::SiteConfig> = sites.cloned().collect();
        let (pairs, warnings) = {
            // The lock is held only while the certificates of the previous configuration are compared with the new one.
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
        // Sites that share an address share its endpoint.
        for address in sites.iter().flat_map(config::SiteConfig::tls_addresses) {
            if !offers.contains_key(address) {
                let mut offer =
                    TlsEndpoint::new(*address, &sites, &pairs, &client_authorities, &process)?;
                offer.can_offload = matches!(kernel, KernelTls::On);
                offer.quic = Some(QuicAcceptor::new(&offer.acceptor, config));
                offers.insert(*address, Arc::new(offer));
            }
        }
        Ok(TlsListeners(Arc::new(TlsContext {
            process,
            sites,
            pairs: Mutex::new(pairs),
            client_authorities,
            endpoints: offers,
            admin,
            kernel,
        })))
    }

    /// The ticket keys, for a process that takes over; `None` if there was no TLS address yet.
    pub fn ticket_keys(&self) -> Option<Vec<u8>> {
        let tickets = self.0.process.tickets.get()?;
        Some(tickets.keys().to_bytes().to_vec())
    }

    /// The identity of QUIC; `None` if there was no listener with HTTP/3 yet.
    pub fn quic_identity(&self) -> Option<QuicIdentity> {
        self.0.process.quic.known_identity()
    }

    /// The endpoint of an address; `None` if the address does not use TLS.
    pub fn endpoint(&self, address: SocketAddr) -> Option<Arc<TlsEndpoint>> {
        self.0.endpoints.get(&address).cloned()
    }

    /// The endpoint of the admin service; `None` if its address does not use TLS.
    pub fn admin_endpoint(&self) -> Option<Arc<TlsEndpoint>> {
        self.0.admin.as_ref().map(|admin| admin.endpoint().clone())
    }

    /// Reloads changed certificates and keys; existing connections keep theirs. Unchanged files in watched folders are
    /// not checked; without a watcher, all files are. Stores the ticket keys if configured. Blocks on the disk.
    pub fn follow(&self, watcher: Option<&FolderWatcher>, logger: &ErrorLogger) {
        self.0.process.keep_ticket_keys(logger);
        self.0.process.automatic.follow(watcher);
        if let Some(admin) = &self.0.admin {
            admin.follow(watcher, logger);
        }
        let mut pairs = self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        if !pairs.follow(watcher, unix_s(), logger) {
            return;
        }
        // The lock is released, since `publish` takes it again.
        drop(pairs);
        let automatic = self.0.process.automatic.source();
        self.0
            .publish(automatic.as_deref().map(|it| it as &dyn CertificateSource));
    }

    /// Starts obtaining and renewing automatic certificates. Must be called when this configuration is in use and root
    /// privileges have been dropped.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn keep(&self, config: &Config, logger: &ErrorLogger) -> Result<(), String> {
        self.0
            .process
            .automatic
            .apply_config(config, &self.0, logger)
    }

    /// The response to an authority's validation request, below `/.well-known/acme-challenge/`.
    pub fn challenge(&self, token: &[u8]) -> Option<Arc<str>> {
        let token = std::str::from_utf8(token).ok()?;
        self.0.process.automatic.challenge(token)
    }

    /// The lines for `lowroad status`.
    pub fn status(&self) -> Vec<(&'static str, String)> {
        if self.0.endpoints.is_empty() && self.0.admin.is_none() {
            return Vec::new();
        }
        let pairs = self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let automatic = self.0.process.automatic.texts();
        let admin = self.0.admin.iter().map(|admin| admin.text());
        let certificates = pairs.texts().chain(admin).chain(automatic);
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

    /// The certificates in use, and those that have not been obtained yet.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        let pairs = self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let automatic = self.0.process.automatic.certificates();
        let admin = self.0.admin.iter().map(|admin| admin.status());
        pairs.status().chain(admin).chain(automatic).collect()
    }

    /// Makes the renewal of the automatic certificate with this name due. Returns whether there is such a certificate.
    pub fn renew(&self, name: &str) -> bool {
        self.0.process.automatic.renew(name)
    }

    /// The counters of TLS errors of clients.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.process.faults.counters().collect()
    }
}

impl KernelTls {
    /// Tests whether the kernel supports TLS, if kernel TLS is configured. With root privileges, the test can load the
    /// kernel module.
    fn new(is_enabled: bool, logger: &ErrorLogger) -> KernelTls {
        if !is_enabled {
            return KernelTls::Off;
        }
        // Tested once, since without the module each connection would fail to enable kernel TLS.
        match kernel_tls::probe() {
            Ok(()) => KernelTls::On,
            Err(error) => {
                logger.warn(format_args!(
                    "kernel_tls: the kernel can't encrypt, so the server does: {error} (is the \
                     module \"tls\" available?)"
                ));
                KernelTls::Unsupported(error.to_string())
            }
        }
    }

    fn status_text(&self) -> Option<String> {
        match self {
            KernelTls::Off => None,
            KernelTls::On => Some("in use".into()),
            KernelTls::Unsupported(reason) => Some(format!("not in use: {reason}")),
        }
    }
}

impl TlsContext {
    /// Installs the current certificates in all endpoints.
    fn publish(&self, automatic: Option<&dyn CertificateSource>) {
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, offer) in &self.endpoints {
            let certificates = certificates::for_address(*address, &self.sites, &pairs, automatic);
            // The map is replaced as a whole, so that a handshake sees either the old or the new certificates.
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
            quic: Arc::default(),
        };
        let Some(path) = &config.server.ticket_keys else {
            return Ok(process);
        };
        // When the server starts, the file is opened with root privileges, and given to the user that the server
        // switches to.
        let opened = secret_files::open(path, account);
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

    /// The ticket service, shared by all addresses.
    fn tickets(&self) -> Result<TicketService, String> {
        if let Some(tickets) = self.tickets.get() {
            return Ok(tickets.clone());
        }
        let keys = TicketKeys::new(PERIOD_S_MAX, self.clock.unix_s());
        self.make_tickets(keys.map_err(no_keys)?)
    }

    fn make_tickets(&self, keys: TicketKeys) -> Result<TicketService, String> {
        let tickets = TicketService::new(keys, self.clock.clone()).map_err(no_keys)?;
        // If another thread has created the service in the meantime, its keys are used.
        Ok(self.tickets.get_or_init(|| tickets).clone())
    }

    /// Stores the ticket keys. Called periodically, since a new key period can begin without any handshake.
    fn keep_ticket_keys(&self, logger: &ErrorLogger) {
        let (Some(file), Some(tickets)) = (&self.ticket_file, self.tickets.get()) else {
            return;
        };
        // The key period depends on the clock, which is otherwise set by handshakes only.
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
        // The configuration check ensures that all sites of an address have the same TLS settings.
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
        let clients = tls.and_then(|tls| client_authorities::path(&tls.clients));
        let describe = |error| match clients {
            Some(path) => format!("TLS at {address}: client_ca: {}: {error}", path.display()),
            None => format!("TLS at {address}: {error}"),
        };
        Ok(TlsEndpoint {
            acceptor: acceptor.map_err(describe)?,
            quic: None,
            store,
            process: process.clone(),
            can_offload: false,
        })
    }

    /// Creates the TLS session of a new connection.
    pub fn new_session(self: &Arc<Self>) -> Box<dyn TlsSession> {
        self.process.clock.set(unix_s());
        Box::new(session::ListenerSession::new(self))
    }

    /// Requests a certificate after a handshake has failed because `server_name` has none.
    fn request_on_demand(&self, server_name: &str) {
        let name = server_name.to_ascii_lowercase();
        // Called after any failed handshake: if there is a certificate, the failure had another reason.
        if !self.store.current().covers(&name) {
            self.process.automatic.request_on_demand(&name);
        }
    }

    /// Whether a handshake with this name, or without one, is refused for lack of a certificate.
    pub fn refuses(&self, server_name: Option<&str>) -> bool {
        self.store.current().refuses(server_name)
    }

    /// Whether a request for `host` must be answered with 421 (RFC 9110 §15.5.20): the connection's SNI is another
    /// name, which selects other certificates.
    pub fn is_misdirected(&self, server_name: Option<&str>, host: &str) -> bool {
        !self.store.current().is_same(server_name, host)
    }
}

fn no_keys(error: impl std::fmt::Display) -> String {
    format!("can't create ticket keys: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_log::{LogDestination, LogLevel, LogWriter};
    use std::path::Path;

    /// Without TLS, generating ticket keys would be the largest part of the time that a start takes.
    #[test]
    fn ticket_keys_are_created_on_first_use_only() {
        let text = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"/srv\"\n";
        let config = config::parse(text, Path::new("lowroad.toml")).expect("a configuration");
        let log = LogWriter::open(&LogDestination::File("/dev/null".into())).expect("a log");
        let logger = ErrorLogger::new(log.sink(), LogLevel::Error);
        let tls = TlsListeners::start(&config, &logger, None, None, None).expect("nothing to open");
        assert!(tls.0.process.tickets.get().is_none());
        tls.0.process.tickets().expect("random numbers");
        assert!(tls.0.process.tickets.get().is_some());
    }
}
