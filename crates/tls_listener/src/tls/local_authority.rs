//! The local certificate authority for development: finds its folder, and signs the sites' certificates.

use std::path::PathBuf;

use lowroad_config::{self as config, SiteName};
use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::CertificatePair;

/// Signs a certificate for the names of a site.
pub fn sign(site: &config::SiteConfig, unix_s: u64) -> Result<CertificatePair, String> {
    let authority = authority(unix_s)?;
    let names = site.names.iter().filter_map(|name| match name {
        // The brackets of an IPv6 address belong to the URL, not to the certificate's name.
        SiteName::Exact(host) => Some(host.trim_matches(['[', ']']).to_string()),
        SiteName::Wildcard(host) => Some(format!("*.{host}")),
        SiteName::Default => None,
    });
    let addresses = site.tls_addresses().iter().map(|address| address.ip());
    // The certificate also contains the site's addresses, for clients that connect without a name.
    let addresses = addresses.filter(|ip| !ip.is_unspecified());
    let mut names: Vec<String> = names.chain(addresses.map(|ip| ip.to_string())).collect();
    // An address may also be one of the site's names.
    names.sort();
    names.dedup();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    authority
        .sign(&names, unix_s)
        .map_err(|error| error.to_string())
}

/// Instructions for trusting the authority on this machine. Creates the authority if it does not exist.
///
/// # Errors
/// The authority is unavailable.
pub fn trust() -> Result<String, String> {
    Ok(authority(super::unix_s())?.how_to_trust())
}

fn authority(unix_s: u64) -> Result<LocalAuthority, String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    LocalAuthority::open(&folder(), host.trim(), unix_s)
        .map_err(|error| format!("the local authority: {error}"))
}

/// The authority's folder in the user's data folder, or in the system's if no user is known.
fn folder() -> PathBuf {
    let variable = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        // Relative paths in these variables are ignored (XDG Base Directory Specification).
        value.filter(|path| path.is_absolute())
    };
    let data = variable("XDG_DATA_HOME");
    let data = data.or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_else(|| "/var/lib".into())
        .join("lowroad/authority")
}
