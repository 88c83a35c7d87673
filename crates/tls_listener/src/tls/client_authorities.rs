//! Reads the files of the certificate authorities that verify client certificates (`client_ca`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lowroad_config::{self as config, ClientAuthConfig};
use lowroad_privileges::helper;

/// The contents (PEM) of each file.
#[derive(Default)]
pub struct ClientAuthorities(HashMap<PathBuf, Vec<u8>>);

impl ClientAuthorities {
    /// Reads the files of all sites. If a file has become unreadable, its contents from `previous` stay in use, with a
    /// warning.
    ///
    /// # Errors
    /// The unreadable files, one line each.
    pub fn read(
        sites: &[config::SiteConfig],
        previous: Option<&ClientAuthorities>,
    ) -> Result<(ClientAuthorities, Vec<String>), String> {
        let (mut read, mut fatal) = (ClientAuthorities::default(), Vec::new());
        let mut warnings = Vec::new();
        let settings = sites.iter().filter_map(|site| site.tls.as_ref());
        for path in settings.filter_map(|tls| path(&tls.clients)) {
            // Several sites may use the same file.
            if read.0.contains_key(path) {
                continue;
            }
            let in_use = previous.and_then(|previous| previous.0.get(path));
            let pem = match (helper::read(path), in_use) {
                (Ok(pem), _) => pem,
                (Err(error), Some(in_use)) => {
                    warnings.push(format!(
                        "the previous client authorities stay in use: {}: {error}",
                        path.display()
                    ));
                    in_use.clone()
                }
                (Err(error), None) => {
                    fatal.push(format!("client_ca: {}: {error}", path.display()));
                    continue;
                }
            };
            read.0.insert(path.to_owned(), pem);
        }
        match fatal.is_empty() {
            true => Ok((read, warnings)),
            false => Err(fatal.join("\n")),
        }
    }

    /// A site's settings for the verification of client certificates.
    pub fn settings(&self, clients: &ClientAuthConfig) -> lowroad_tls::ClientVerification {
        let pem = |path: &PathBuf| self.0.get(path).cloned().unwrap_or_default();
        match clients {
            ClientAuthConfig::None => lowroad_tls::ClientVerification::None,
            ClientAuthConfig::Request(path) => lowroad_tls::ClientVerification::Request(pem(path)),
            ClientAuthConfig::Require(path) => lowroad_tls::ClientVerification::Require(pem(path)),
        }
    }
}

/// The file of a site's client authorities.
pub fn path(clients: &ClientAuthConfig) -> Option<&Path> {
    match clients {
        ClientAuthConfig::None => None,
        ClientAuthConfig::Request(path) | ClientAuthConfig::Require(path) => Some(path),
    }
}
