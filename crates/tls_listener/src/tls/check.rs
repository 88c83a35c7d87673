//! The checks of `lowroad check` for certificates and keys.

use std::path::Path;

use lowroad_privileges::account;

use lowroad_config::{self as config, AcmeConfig, Config};
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{TicketFile, TlsAcceptor, TlsClock, TlsServerSettings};

use super::client_authorities::{self, ClientAuthorities};
use super::files::KeyPairSet;
use super::unix_s;

/// Reads all files that a configuration names. Returns the errors that prevent the server's start, then the warnings,
/// one line each.
pub fn check(config: &Config) -> (Vec<String>, Vec<String>) {
    let sites = config.sites.iter().filter(|site| site.tls.is_some());
    let sites: Vec<config::SiteConfig> = sites.cloned().collect();
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    match KeyPairSet::read(&sites, unix_s(), None) {
        Ok((_, found)) => warnings.extend(found),
        Err(fatal) => problems.push(fatal),
    }
    let names = super::acme::automatic_names(config);
    let is_wanted = |acme: &&AcmeConfig| !names.is_empty() || acme.on_demand.is_some();
    if let Some(acme) = config.acme.as_ref().filter(is_wanted) {
        // The server writes these files after it has dropped root privileges, so the check runs without them, too.
        match account::test_as_server(config, || check_acme(acme, names)) {
            Ok(Ok(found)) => warnings.extend(found),
            Ok(Err(problem)) => problems.push(problem),
            Err(warning) => warnings.push(format!("acme: {warning}")),
        }
    }
    match ClientAuthorities::read(&sites, None) {
        Ok((authorities, _)) => problems.extend(client_problems(&sites, &authorities)),
        Err(fatal) => problems.push(fatal),
    }
    if let Some(admin) = &config.admin.tls {
        let (admin_problems, admin_warnings) = super::admin::check(admin);
        problems.extend(admin_problems);
        warnings.extend(admin_warnings);
    }
    (problems, warnings)
}

/// The problem of the file of ticket keys (`ticket_keys`), if any.
pub fn check_ticket_keys(path: &Path) -> Result<(), String> {
    match path.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => TicketFile::check(path),
        Err(error) => Err(error.to_string()),
    }
}

/// The errors of sites with client authorities that cannot verify any certificate.
fn client_problems(sites: &[config::SiteConfig], authorities: &ClientAuthorities) -> Vec<String> {
    let tls = sites.iter().filter_map(|site| site.tls.as_ref());
    let problem = |tls: &config::TlsConfig| {
        let path = client_authorities::path(&tls.clients)?;
        // Building an acceptor, as the server does when it starts, finds all errors of the authorities.
        let store = CertificateStore::new(CertificateMap::new());
        let mut settings = TlsServerSettings::new(store, TlsClock::new(unix_s()));
        settings.clients = authorities.settings(&tls.clients);
        let error = TlsAcceptor::new(&settings).err()?;
        Some(format!("client_ca: {}: {error}", path.display()))
    };
    tls.filter_map(problem).collect()
}

/// Checks the settings of automatic certificates without contacting an authority. Returns warnings.
///
/// # Errors
/// An error that prevents the server's start.
fn check_acme(acme: &AcmeConfig, names: Vec<Vec<String>>) -> Result<Vec<String>, String> {
    let settings = super::acme::settings(acme, names)?;
    settings
        .check()
        .map_err(|problem| format!("acme: {problem}"))?;
    let found = settings.file_problems().into_iter();
    Ok(found.map(|warning| format!("acme: {warning}")).collect())
}
