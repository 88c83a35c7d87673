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

/// The names of the features of this build.
pub fn built_in() -> Vec<&'static str> {
    let all = [
        ("image", cfg!(feature = "image")),
        ("modules", cfg!(feature = "modules")),
        ("programs", cfg!(feature = "programs")),
        ("softirq", cfg!(feature = "softirq")),
        ("sql", cfg!(feature = "sql")),
        ("tls", cfg!(feature = "tls")),
        ("wasm", cfg!(feature = "wasm")),
    ];
    let built = all.into_iter().filter(|(_, is_built)| *is_built);
    built.map(|(name, _)| name).collect()
}

/// Returns an error if the feature that `subject` needs is not in this build.
///
/// # Errors
/// A message that names the subject and the feature.
pub fn need(feature: BuildFeature, subject: &str) -> Result<(), String> {
    match LACKING.contains(&feature) {
        true => Err(format!("{subject}: {}", MissingFeature(feature))),
        false => Ok(()),
    }
}
