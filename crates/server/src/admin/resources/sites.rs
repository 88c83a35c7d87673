//! `/v1/sites`: the sites and routes in force.

use bytes::Bytes;
use lowroad_config::SiteName;
use serde_json::{Value, json};

use crate::admin::service::AdminReply;
use crate::running_server::RunningServer;

/// `GET /v1/sites`
pub fn list(running: &RunningServer) -> AdminReply {
    let sites = running.sites.all.iter().map(|site| {
        // In the order of the configuration, in which they are matched.
        let routes = site.routes.iter().map(|route| {
            json!({
                "name": route.name(),
                "is_origin": route.is_origin,
                "stores": !route.never_stores,
            })
        });
        let names = site.rules.config.names.iter().map(name);
        json!({
            "name": site.rules.label,
            "names": names.collect::<Vec<_>>(),
            "is_in_maintenance": site.maintenance.is_on(),
            "routes": routes.collect::<Vec<Value>>(),
        })
    });
    // The actual ports, also where the configuration has port 0.
    let addresses = running.listeners.addresses.iter();
    let list = json!({
        "addresses": addresses.map(|(_, address)| address.to_string()).collect::<Vec<_>>(),
        "sites": sites.collect::<Vec<Value>>(),
    });
    AdminReply::new("application/json", Bytes::from(list.to_string()))
}

/// A name as in the configuration.
fn name(name: &SiteName) -> String {
    match name {
        SiteName::Exact(host) => host.clone(),
        SiteName::Wildcard(host) => format!("*.{host}"),
        SiteName::Default => "*".to_owned(),
    }
}
