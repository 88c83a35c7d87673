//! The features that this build lacks.

use lowroad_config::BuildFeature;
pub use lowroad_config::MissingFeature;

/// The features that this build lacks.
pub const LACKING: &[BuildFeature] = &[
    #[cfg(not(feature = "image"))]
    BuildFeature::Image,
    #[cfg(not(feature = "modules"))]
    BuildFeature::Modules,
    #[cfg(not(feature = "programs"))]
    BuildFeature::Programs,
    #[cfg(not(feature = "softirq"))]
    BuildFeature::Softirq,
    #[cfg(not(feature = "sql"))]
    BuildFeature::Sql,
    #[cfg(not(feature = "tls"))]
    BuildFeature::Tls,
    #[cfg(not(feature = "wasm"))]
    BuildFeature::Wasm,
];

/// Refuses a command or setting if its feature is not in this build.
///
/// # Errors
/// The given text, and the name of the feature.
pub fn need(feature: BuildFeature, what: &str) -> Result<(), String> {
    match LACKING.contains(&feature) {
        true => Err(format!("{what}: {}", MissingFeature(feature))),
        false => Ok(()),
    }
}
