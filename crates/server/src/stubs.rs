//! Stubs for features that a build lacks: modules with the same names; their functions report the missing feature.
//!
//! The files in this folder replace modules (`#[cfg_attr(not(feature = …), path = …)]`), so that their callers need no
//! conditions. The configuration's reader has already refused settings of a missing feature, with line and key
//! (`lowroad_config::Feature`), so these functions are reached by commands only.

use std::ffi::OsString;

use clap::Args;

/// Accepts all arguments of a command that is not in the build.
#[derive(Args)]
pub struct UnavailableArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}
