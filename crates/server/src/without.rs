//! What stands in for the features that a build lacks: the same names, and words that say what is lacking.
//!
//! The files in this folder take the places of modules (`#[cfg_attr(not(feature = …), path = …)]`), so that
//! whoever uses those knows nothing of features. What a configuration asks for in vain was told before, with line
//! and key (`lowroad_config::Feature`); that a file here is asked all the same is not expected.

use std::ffi::OsString;

use clap::Args;

/// Whatever is said to a command that is not there.
#[derive(Args)]
pub struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}
