//! `lowroad image`: builds a site as a bootable image (unikernel) and runs it. This file dispatches the commands.

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

/// Runs the requested command.
///
/// # Errors
/// A message for the operator.
pub fn run(image: &Image) -> Result<(), String> {
    match image {
        Image::Build(build) => build::build(build),
        Image::Run(run) => run::run(run),
    }
}
