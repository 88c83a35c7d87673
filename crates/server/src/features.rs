//! What this build of the server has not: the one place that says so.

use lowroad_config::Feature;
pub use lowroad_config::Lacking;

/// The features that it was built without.
pub const LACKING: &[Feature] = &[
    #[cfg(not(feature = "image"))]
    Feature::Image,
    #[cfg(not(feature = "modules"))]
    Feature::Modules,
    #[cfg(not(feature = "programs"))]
    Feature::Programs,
    #[cfg(not(feature = "softirq"))]
    Feature::Softirq,
    #[cfg(not(feature = "sql"))]
    Feature::Sql,
    #[cfg(not(feature = "tls"))]
    Feature::Tls,
    #[cfg(not(feature = "wasm"))]
    Feature::Wasm,
];

/// Refuses what needs a feature that is not there.
///
/// # Errors
/// `what`, and which feature it is.
pub fn need(feature: Feature, what: &str) -> Result<(), String> {
    match LACKING.contains(&feature) {
        true => Err(format!("{what}: {}", Lacking(feature))),
        false => Ok(()),
    }
}
