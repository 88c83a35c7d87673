//! Routes of sites: which requests belong to which handler (`routes`, `route_index`, `conditions`), and the handlers of a
//! configuration (`build`): modules, scripts and pages, any of which a build may lack (`kinds`). `compressing` stands in front of a
//! route's handler, and `lanes` are threads for handlers that block. The handlers are in
//! the crates `handler`, `gateway`, `module_host` and `sql_pages`. Knows nothing of stored responses.

#![forbid(unsafe_code)]

pub mod applications;
pub mod build;
pub mod compressing;
mod conditions;
pub mod counts;
pub mod elsewhere;
pub mod faults;
pub mod kinds;
mod lanes;
#[cfg(feature = "modules")]
pub mod modules;
#[cfg(feature = "sql")]
mod pages;
mod route_index;
pub mod routes;
#[cfg(feature = "programs")]
pub mod scripts;
