//! Stubs for features that a build lacks: modules of the same names with functions that report the missing feature.
//!
//! The files in this folder replace modules (`#[cfg_attr(not(feature = …), path = …)]`), so that callers need no
//! conditional compilation. The configuration parser already rejects settings of a missing feature, with line and key
//! (`lowroad_config::BuildFeature`), so only commands call these functions.

use std::ffi::OsString;

use clap::Args;

/// Accepts all arguments of a command that is not in the build.
#[derive(Args)]
pub struct UnavailableArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}
