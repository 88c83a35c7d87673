//! The files that a configuration names and that root may have to open for the server.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use lowroad_config::{
    AdminConfig, ClientAuthConfig, Config, ExternalKey, LogTarget, RouteConfig, RuleAction,
    SiteConfig, TokenKeys,
};

/// Sets of absolute paths.
#[derive(Default)]
pub struct NamedFiles {
    /// Certificates, keys, password files, certificate authorities, secrets, and the configuration itself.
    pub read: HashSet<PathBuf>,
    /// Logs.
    pub append: HashSet<PathBuf>,
}

impl NamedFiles {
    /// The files that the configuration names, and its own.
    pub fn from_config(config: &Config) -> NamedFiles {
        let own = config.document.files.iter().map(PathBuf::as_path);
        let own = own.chain(config.document.secret_files());
        let mut read: HashSet<PathBuf> = own.filter_map(absolute).collect();
        for site in &config.sites {
            read.extend(site_files(site).filter_map(absolute));
        }
        let maps = config.maps.iter().filter_map(|map| map.file.as_ref());
        read.extend(maps.filter_map(|file| absolute(&file.path)));
        read.extend(admin_files(&config.admin).filter_map(absolute));
        let authorities = config.acme.iter().flat_map(|acme| &acme.authorities);
        let external = authorities.filter_map(|authority| match &authority.external {
            Some((_, ExternalKey::File(file))) => Some(file),
            Some((_, ExternalKey::Text(_))) | None => None,
        });
        read.extend(external.filter_map(absolute));
        let access = config.log.access.iter().map(|access| &access.path);
        let logs = std::iter::once(&config.log.error).chain(access);
        let logs = logs.filter_map(|target| match target {
            LogTarget::File(path) => absolute(path),
            LogTarget::Stdout | LogTarget::Stderr | LogTarget::Messages(_) => None,
        });
        NamedFiles {
            read,
            append: logs.collect(),
        }
    }
}

/// The files of the admin service's TLS. Its tokens are read only at the start.
fn admin_files(admin: &AdminConfig) -> impl Iterator<Item = &PathBuf> {
    let tls = admin.tls.iter();
    tls.flat_map(|tls| {
        let authorities = tls.clients.iter().map(|clients| &clients.authorities);
        authorities.chain([&tls.certificate, &tls.key])
    })
}

fn site_files(site: &SiteConfig) -> impl Iterator<Item = &PathBuf> {
    let tls = site.tls.iter();
    let certificates = tls.clone().flat_map(|tls| &tls.certificates);
    let certificates = certificates.flat_map(|files| {
        let all = [
            Some(&files.certificate),
            Some(&files.key),
            files.staple.as_ref(),
        ];
        all.into_iter().flatten()
    });
    let clients = tls.filter_map(|tls| match &tls.clients {
        ClientAuthConfig::None => None,
        ClientAuthConfig::Request(path) | ClientAuthConfig::Require(path) => Some(path),
    });
    let authentications = site.access.iter().filter_map(|rule| match &rule.action {
        RuleAction::Auth(auth) => Some(auth),
        _ => None,
    });
    let users = authentications
        .clone()
        .filter_map(|auth| Some(&auth.password.as_ref()?.file));
    let tokens = authentications
        .clone()
        .filter_map(|auth| auth.token.as_ref());
    let keys = tokens.clone().filter_map(|token| match &token.keys {
        TokenKeys::File(file) => Some(file),
        _ => None,
    });
    // The keys of a URL are in no file, but the certificates of its server are.
    let key_servers = tokens.filter_map(|token| match &token.keys {
        TokenKeys::Url(origin, _) => Some(&origin.tls),
        _ => None,
    });
    let auth_servers = authentications.filter_map(|auth| Some(&auth.forward.as_ref()?.origin.tls));
    let origins = site.routes.iter().flat_map(RouteConfig::origins);
    let origins = origins.map(|origin| &origin.tls);
    let origins = origins.chain(auth_servers).chain(key_servers);
    let origins = origins.flat_map(|tls| {
        let identity = tls
            .identity
            .iter()
            .flat_map(|(certificate, key)| [certificate, key]);
        tls.authorities.iter().chain(identity)
    });
    certificates
        .chain(clients)
        .chain(users)
        .chain(keys)
        .chain(origins)
}

fn absolute(path: impl AsRef<Path>) -> Option<PathBuf> {
    std::path::absolute(path).ok()
}
