//! What `lowroad check` says of certificates and keys.

use lowroad_config::{self as config, ClientCertificates, Config};

use super::files::Pairs;
use super::{clients, unix_s};

/// Reads all files that a configuration names. Returns the errors that keep the server from starting, and the warnings, a
/// line each.
pub fn check(config: &Config) -> (Vec<String>, Vec<String>) {
    let sites = config.sites.iter().filter(|site| site.tls.is_some());
    let sites: Vec<config::Site> = sites.cloned().collect();
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    match Pairs::read(&sites, unix_s()) {
        Ok((_, doubts)) => warnings.extend(doubts),
        Err(fatal) => problems.push(fatal),
    }
    if let Some(acme) = &config.acme {
        let settings = super::automatic::settings(acme, Vec::new());
        let checked =
            settings.and_then(|it| it.check().map_err(|problem| format!("acme: {problem}")));
        problems.extend(checked.err());
    }
    for tls in sites.iter().filter_map(|site| site.tls.as_ref()) {
        if tls.clients != ClientCertificates::None
            && let Err(error) = clients(&tls.clients)
        {
            problems.push(format!("client_ca: {error}"));
        }
    }
    (problems, warnings)
}
