//! The features that this build lacks.

use lowroad_config::Feature;
pub use lowroad_config::Lacking;

/// The features that this build lacks.
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

/// Refuses a command or setting if its feature is not in this build.
///
/// # Errors
/// The given text, and the name of the feature.
pub fn need(feature: Feature, what: &str) -> Result<(), String> {
    match LACKING.contains(&feature) {
        true => Err(format!("{what}: {}", Lacking(feature))),
        false => Ok(()),
    }
}
