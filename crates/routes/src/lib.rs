//! Routes of sites: which requests belong to which handler (`routes`, `route_index`, `conditions`), and the handlers of a
//! configuration (`build`): modules, scripts and pages, any of which a build may lack. `compressing` stands in front of a
//! route's handler, and `lanes` are threads for handlers that block. The handlers are in
//! the crates `handler`, `gateway`, `module_host` and `sql_pages`. Knows nothing of stored responses.

#![forbid(unsafe_code)]

#[cfg_attr(not(feature = "programs"), path = "without/applications.rs")]
pub mod applications;
pub mod build;
pub mod compressing;
mod conditions;
pub mod counts;
pub mod elsewhere;
pub mod faults;
mod lanes;
#[cfg_attr(not(feature = "modules"), path = "without/modules.rs")]
pub mod modules;
#[cfg_attr(not(feature = "sql"), path = "without/pages.rs")]
mod pages;
mod route_index;
pub mod routes;
#[cfg_attr(not(feature = "programs"), path = "without/scripts.rs")]
pub mod scripts;

#[cfg(not(all(
    feature = "modules",
    feature = "programs",
    feature = "sql",
    feature = "wasm"
)))]
use lowroad_config::{Feature, Lacking};

/// Refuses what needs a feature that is not there.
#[cfg(not(all(
    feature = "modules",
    feature = "programs",
    feature = "sql",
    feature = "wasm"
)))]
fn lacks<T>(feature: Feature, what: &str) -> Result<T, String> {
    Err(format!("{what}: {}", Lacking(feature)))
}
