//! Which certificates are shown at an address. All sources come together here: files, and this machine's own authority;
//! one more source adds its certificates to the same [`Certificates`].

use std::net::SocketAddr;

use lowroad_config::{self as config, Name};
use lowroad_tls::certificates::Certificates;

use super::files::Pairs;

/// Those of an address, as its store is given them whenever one of them has changed.
pub fn of_address(address: SocketAddr, sites: &[config::Site], pairs: &Pairs) -> Certificates {
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
    // Who names nobody is shown what the default site has, or the first.
    let is_default = |site: &&config::Site| site.names.contains(&Name::Default);
    if let Some(site) = here().find(is_default).or_else(|| here().next()) {
        for pair in pairs.of_site(site) {
            certificates.add_default(pair);
        }
    }
    certificates
}
