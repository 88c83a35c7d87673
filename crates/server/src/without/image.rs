//! `lowroad image` in a build without it.

use lowroad_config::Feature;

use crate::cli::Image;
use crate::features;

/// The command's options.
pub mod options {
    pub use crate::without::Anything as Build;
    pub use crate::without::Anything as Run;
}

/// Reports the missing feature.
pub fn run(_: &Image) -> Result<(), String> {
    features::need(Feature::Image, "lowroad image")
}
