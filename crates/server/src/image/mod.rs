//! `lowroad image`: builds a site as a bootable image (unikernel) and runs it. This file dispatches the commands.

mod address;
mod build;
mod database;
mod disk;
mod elf;
mod hosted;
mod kvm;
pub mod options;
mod output;
mod qemu;
mod run_command;
mod site;
mod tap;
mod variants;

use crate::cli::ImageCommand;

/// Runs the requested command.
///
/// # Errors
/// A message for the operator.
pub fn run(image: &ImageCommand) -> Result<(), String> {
    match image {
        ImageCommand::Build(build) => build::build(build),
        ImageCommand::Run(run) => run_command::run(run),
    }
}
