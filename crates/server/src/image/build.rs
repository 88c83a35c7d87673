//! `lowroad image build`: builds an image of a folder and, if requested, a bootable disk.

use std::path::Path;

use lowroad_unikernel::archive::ArchiveBuilder;

use super::options::{BuildArgs, ImageSettings};
use super::output::OutputFile;
use super::{disk, elf, site};
use crate::terminal_output;

/// Builds the requested files and prints their sizes.
///
/// # Errors
/// An invalid file or setting of the site, or a write error.
pub fn build(options: &BuildArgs) -> Result<(), String> {
    let archive = archive(&options.dir, &options.settings)?;
    let image = elf::image(&archive)?;
    // If the site has a database, the image's archive contains the database password.
    let is_secret = options.settings.database.is_some();
    let output = OutputFile::new(&options.output, is_secret);
    output.write(&image)?;
    print_written(&options.output, output.finish()?)?;
    if let Some(disk) = &options.disk {
        let output = OutputFile::new(disk, is_secret);
        disk::build(&image, options.ip, &output)?;
        print_written(disk, output.finish()?)?;
    }
    Ok(())
}

/// Builds the archive of a site with its settings.
///
/// # Errors
/// An invalid file or setting of the site.
pub fn archive(dir: &Path, settings: &ImageSettings) -> Result<Vec<u8>, String> {
    let mut builder = ArchiveBuilder::new();
    let contents = site::add(&mut builder, dir)?;
    add_settings(&mut builder, settings);
    let archive = builder.finish().map_err(|error| error.to_string())?;
    let (files, pages) = (
        pluralize(contents.files, "file"),
        pluralize(contents.pages, "page"),
    );
    terminal_output::note(format_args!("{}: {files}, {pages}", dir.display()));
    Ok(archive)
}

fn add_settings(builder: &mut ArchiveBuilder, settings: &ImageSettings) {
    if let Some(database) = &settings.database {
        builder.setting("database.address", &database.address.to_string());
        builder.setting("database.user", &database.user);
        builder.setting("database.password", &database.password);
        builder.setting("database.name", &database.name);
    }
    for network in &settings.status_from {
        builder.setting("status.from", &network.to_string());
    }
}

fn pluralize(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

fn print_written(path: &Path, len: u64) -> Result<(), String> {
    let kib = len.div_ceil(1024);
    terminal_output::out(format_args!("{}: {kib} KiB\n", path.display()))
}
