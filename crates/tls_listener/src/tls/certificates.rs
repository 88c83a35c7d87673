//! Collects the certificates of an address from all sources: files, the local authority, and ACME.

use std::net::SocketAddr;

use lowroad_config::{self as config, SiteName};
use lowroad_tls::certificates::CertificateMap;

use super::acme::CertificateSource;
use super::files::KeyPairSet;

/// The certificates of an address. Called again whenever a certificate changes.
pub fn for_address(
    address: SocketAddr,
    sites: &[config::SiteConfig],
    pairs: &KeyPairSet,
    automatic: Option<&dyn CertificateSource>,
) -> CertificateMap {
    let mut certificates = CertificateMap::new();
    let sites_here = || {
        let has_address = |site: &&config::SiteConfig| site.tls_addresses().contains(&address);
        sites.iter().filter(has_address)
    };
    for site in sites_here() {
        for pair in pairs.site_pairs(site) {
            certificates.add(pair);
        }
    }
    if let Some(automatic) = automatic {
        automatic.add_to(&mut certificates);
    }
    // Without default certificates, handshakes for unknown names fail.
    if sites_here().any(|site| site.tls.as_ref().is_some_and(|tls| tls.strict_sni)) {
        return certificates;
    }
    // Clients without SNI get the certificates of the default site, or those of the first site.
    let is_default = |site: &&config::SiteConfig| site.names.contains(&SiteName::Default);
    if let Some(site) = sites_here()
        .find(is_default)
        .or_else(|| sites_here().next())
    {
        for pair in pairs.site_pairs(site) {
            certificates.add_default(pair);
        }
        let first = site.names.iter().find_map(|name| match name {
            SiteName::Exact(host) => Some(host.clone()),
            SiteName::Wildcard(host) => Some(format!("*.{host}")),
            SiteName::Default => None,
        });
        if let (Some(automatic), Some(first)) = (automatic, first)
            && let Some(pair) = automatic.pair(&first)
        {
            certificates.add_default(&pair);
        }
    }
    certificates
}
