//! `lowroad image` in a build without the feature.

use lowroad_config::BuildFeature;

use crate::cli::ImageCommand;
use crate::features;

/// The command's options.
pub mod options {
    pub use crate::stubs::UnavailableArgs as BuildArgs;
    pub use crate::stubs::UnavailableArgs as RunArgs;
}

/// Reports the missing feature.
pub fn run(_: &ImageCommand) -> Result<(), String> {
    features::need(BuildFeature::Image, "lowroad image")
}
