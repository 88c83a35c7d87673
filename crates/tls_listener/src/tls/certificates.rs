//! The certificates of an address, from all sources: files, the local authority, and ACME.

use std::net::SocketAddr;

use lowroad_config::{self as config, Name};
use lowroad_tls::certificates::Certificates;

use super::automatic::Source;
use super::files::Pairs;

/// The certificates of an address, collected whenever one of them has changed.
pub fn of_address(
    address: SocketAddr,
    sites: &[config::Site],
    pairs: &Pairs,
    automatic: Option<&dyn Source>,
) -> Certificates {
    let mut certificates = Certificates::new();
    let here = || {
        let here = |site: &&config::Site| site.tls_addresses().contains(&address);
        sites.iter().filter(here)
    };
    for site in here() {
        for pair in pairs.of_site(site) {
            certificates.add(pair);
        }
    }
    if let Some(automatic) = automatic {
        automatic.add_to(&mut certificates);
    }
    // Clients without SNI get the certificates of the default site, or of the first.
    let is_default = |site: &&config::Site| site.names.contains(&Name::Default);
    if let Some(site) = here().find(is_default).or_else(|| here().next()) {
        for pair in pairs.of_site(site) {
            certificates.add_default(pair);
        }
        let first = site.names.iter().find_map(|name| match name {
            Name::Exact(host) => Some(host.clone()),
            Name::Wildcard(host) => Some(format!("*.{host}")),
            Name::Default => None,
        });
        if let (Some(automatic), Some(first)) = (automatic, first)
            && let Some(pair) = automatic.pair(&first)
        {
            certificates.add_default(&pair);
        }
    }
    certificates
}
