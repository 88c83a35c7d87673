//! `lowroad image`: a site as a machine of its own. Here only the commands are told apart.

mod accel;
mod address;
mod build;
mod database;
mod disk;
mod elf;
mod hosted;
pub mod options;
mod output;
mod qemu;
mod run;
mod site;
mod tap;
mod variants;

use crate::cli::Image;

/// Does what was asked for.
///
/// # Errors
/// A text for the operator.
pub fn run(image: &Image) -> Result<(), String> {
    match image {
        Image::Build(build) => build::build(build),
        Image::Run(run) => run::run(run),
    }
}
