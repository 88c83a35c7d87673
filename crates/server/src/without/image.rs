//! `lowroad image` where it is not built in.

use lowroad_config::Feature;

use crate::cli::Image;
use crate::features;

/// Its options.
pub mod options {
    pub use crate::without::Anything as Build;
    pub use crate::without::Anything as Run;
}

/// Says that it is not there.
pub fn run(_: &Image) -> Result<(), String> {
    features::need(Feature::Image, "lowroad image")
}
