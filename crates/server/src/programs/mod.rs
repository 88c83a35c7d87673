//! The programs of sites: `routes` says which program a path belongs to, and `conditions`
//! which request, with `counts` for the operator; `compressing` stands in front of a route's program; `build` makes the
//! programs from the configuration (`modules`, `scripts`, `pages`, any of which a build may lack), `lanes` are the threads
//! on which they are waited for. What programs are and how they work is told in the crate `lowroad-dynamic`; knows nothing
//! of requests.

#[cfg_attr(not(feature = "programs"), path = "../without/applications.rs")]
pub mod applications;
pub mod build;
pub mod compressing;
mod conditions;
pub mod counts;
pub mod faults;
mod lanes;
#[cfg_attr(not(feature = "modules"), path = "../without/modules.rs")]
pub mod modules;
#[cfg_attr(not(feature = "sql"), path = "../without/pages.rs")]
mod pages;
pub mod route_index;
pub mod routes;
#[cfg_attr(not(feature = "programs"), path = "../without/scripts.rs")]
pub mod scripts;
