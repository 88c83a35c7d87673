//! TLS of the admin service's address: one certificate from files, which is followed like those of the sites, and the
//! authorities of client certificates.

use std::sync::{Arc, Mutex, PoisonError};

use lowroad_config::{AdminTlsConfig, CertificateFiles};
use lowroad_log::ErrorLogger;
use lowroad_privileges::helper;
use lowroad_store::watch::FolderWatcher;
use lowroad_tls::certificates::{CertificateMap, CertificatePair, CertificateStore};
use lowroad_tls::{ClientVerification, TlsAcceptor, TlsServerSettings};

use super::files::LoadedCertificate;
use super::{PROTOCOLS, TlsEndpoint, TlsProcess, unix_s};
use crate::certificate_status::CertificateStatus;

/// The TLS endpoint of the admin service. It lasts from the start to the end of the process, since a reload does not
/// change `[admin]`.
pub struct AdminTls {
    endpoint: Arc<TlsEndpoint>,
    certificate: Mutex<LoadedCertificate>,
}

impl AdminTls {
    /// Reads the files. Also returns warnings about the certificate.
    ///
    /// # Errors
    /// The unusable file, and the reason.
    pub fn open(
        config: &AdminTlsConfig,
        process: &TlsProcess,
    ) -> Result<(AdminTls, Vec<String>), String> {
        let (certificate, warnings) = read_certificate(config)?;
        let store = CertificateStore::new(certificates(certificate.pair()));
        let mut settings = TlsServerSettings::new(store.clone(), process.clock.clone());
        settings.protocols = PROTOCOLS.map(str::to_owned).to_vec();
        settings.tickets = Some(process.tickets()?);
        settings.clients = clients(config)?;
        let endpoint = TlsEndpoint {
            acceptor: acceptor(config, &settings)?,
            store,
            // Without automatic certificates: a failed handshake must not request any.
            process: TlsProcess {
                automatic: Arc::default(),
                ..process.clone()
            },
            can_offload: false,
            quic: None,
        };
        let tls = AdminTls {
            endpoint: Arc::new(endpoint),
            certificate: Mutex::new(certificate),
        };
        Ok((tls, warnings))
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<TlsEndpoint> {
        &self.endpoint
    }

    /// Reloads a changed certificate.
    pub fn follow(&self, watcher: Option<&FolderWatcher>, logger: &ErrorLogger) {
        let mut certificate = self.lock();
        if certificate.follow(watcher, unix_s(), logger) {
            let map = certificates(certificate.pair());
            self.endpoint.store.replace(map);
        }
    }

    /// The certificate, for metrics.
    pub fn status(&self) -> CertificateStatus {
        self.lock().status()
    }

    /// A line about the certificate, for `lowroad status`.
    pub fn text(&self) -> String {
        self.lock().text()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LoadedCertificate> {
        self.certificate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The problems that prevent the start of the server, and warnings.
pub fn check(config: &AdminTlsConfig) -> (Vec<String>, Vec<String>) {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    match read_certificate(config) {
        Ok((_, found)) => warnings.extend(found),
        Err(problem) => problems.push(problem),
    }
    let acceptor = clients(config).and_then(|clients| {
        let store = CertificateStore::new(CertificateMap::new());
        let mut settings = TlsServerSettings::new(store, lowroad_tls::TlsClock::new(unix_s()));
        settings.clients = clients;
        acceptor(config, &settings)
    });
    problems.extend(acceptor.err());
    (problems, warnings)
}

fn read_certificate(config: &AdminTlsConfig) -> Result<(LoadedCertificate, Vec<String>), String> {
    let files = CertificateFiles {
        certificate: config.certificate.clone(),
        key: config.key.clone(),
        staple: None,
    };
    let (certificate, warnings) = LoadedCertificate::read(super::files::files(&files), unix_s())
        .map_err(|problem| format!("admin: {problem}"))?;
    let warnings = warnings.iter().map(|warning| format!("admin: {warning}"));
    Ok((certificate, warnings.collect()))
}

fn clients(config: &AdminTlsConfig) -> Result<ClientVerification, String> {
    let Some(clients) = &config.clients else {
        return Ok(ClientVerification::None);
    };
    let path = &clients.authorities;
    let pem = helper::read(path)
        .map_err(|error| format!("admin: client_ca: {}: {error}", path.display()))?;
    Ok(ClientVerification::Require(pem))
}

fn acceptor(config: &AdminTlsConfig, settings: &TlsServerSettings) -> Result<TlsAcceptor, String> {
    TlsAcceptor::new(settings).map_err(|error| match &config.clients {
        // Only the authorities of clients can be unusable.
        Some(clients) => format!(
            "admin: client_ca: {}: {error}",
            clients.authorities.display()
        ),
        None => format!("admin: {error}"),
    })
}

/// Every client gets the certificate, with any name or none.
fn certificates(pair: &CertificatePair) -> CertificateMap {
    let mut certificates = CertificateMap::new();
    certificates.add(pair);
    certificates.add_default(pair);
    certificates
}
