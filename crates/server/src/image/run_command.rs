//! `lowroad image run`: runs an image, or a folder as one, in QEMU or as a process.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use lowroad_unikernel::archive::SiteArchive;
use rustix::fs::{MemfdFlags, memfd_create};

use super::address::ImageAddress;
use super::hosted::{self, HostedImage};
use super::options::{ImageSettings, RunArgs};
use super::qemu::{self, QemuMachine, QemuNetwork};
use super::tap::HostTap;
use super::{build, elf, kvm};
use crate::signals;
use crate::terminal_output;

/// Maximum cores that an image uses; each core has a queue of the network device.
const QUEUES_MAX: u16 = 16;

/// Runs the image until a signal.
///
/// # Errors
/// A message for the operator.
pub fn run(options: &RunArgs) -> Result<(), String> {
    match &options.hosted {
        Some(tap) => run_hosted(options, tap),
        None => run_in_qemu(options),
    }
}

fn run_hosted(options: &RunArgs, tap: &str) -> Result<(), String> {
    // The archive is leaked, because the servers keep references to it for the life of the process.
    let bytes: &'static [u8] = archive(&options.image, &options.settings)?.leak();
    let archive = SiteArchive::open(bytes).map_err(|error| error.to_string())?;
    hosted::run(&HostedImage {
        archive,
        tap,
        ip: options.ip,
        memory_len: options.memory as usize * (1 << 20),
        cores: options.cores,
    })
}

fn run_in_qemu(options: &RunArgs) -> Result<(), String> {
    // The receiver is created before QEMU starts, so that Ctrl-C always powers the guest off.
    let stop = signals::receive_end_signals()?;
    let (kernel, _file) = image(options)?;
    let (net, _device) = net(options)?;
    let url = match (&net, options.ip) {
        (QemuNetwork::Forwarded(from), _) => Some(format!("http://{from}/")),
        (QemuNetwork::Tap(..), ImageAddress::Static { address, .. }) => {
            Some(format!("http://{address}/"))
        }
        // The URL is not known here; the image prints the address that it gets from DHCP.
        (QemuNetwork::Tap(..), ImageAddress::Dhcp) => None,
    };
    if let Some(url) = url {
        terminal_output::out(format_args!("{url}; Ctrl-C ends\n"))?;
    }
    let machine = QemuMachine {
        kernel,
        append: format!("ip={} {}", options.ip, options.append)
            .trim_end()
            .to_owned(),
        board: options.machine,
        net,
        memory_mib: options.memory,
        cores: options.cores.into(),
        accel: match &options.accel {
            Some(accel) => accel.clone(),
            None => kvm::best().to_owned(),
        },
    };
    qemu::run(&machine, &stop)
}

/// Returns the image's path. If the image was built for this run, also returns the anonymous file that contains it.
fn image(options: &RunArgs) -> Result<(PathBuf, Option<File>), String> {
    if !options.image.is_dir() {
        // The archive is read only to fail early if the file is not an image, or if options that apply only to a folder
        // were given.
        archive(&options.image, &options.settings)?;
        return Ok((options.image.clone(), None));
    }
    let archive = build::archive(&options.image, &options.settings)?;
    let image = elf::image(&archive)?;
    let memory = memfd_create("lowroad-image", MemfdFlags::empty()).map(File::from);
    let mut file = memory.map_err(|error| format!("memory for the image: {error}"))?;
    file.write_all(&image)
        .map_err(|error| format!("memory for the image: {error}"))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((path.into(), Some(file)))
}

fn net(options: &RunArgs) -> Result<(QemuNetwork, Option<HostTap>), String> {
    match &options.tap {
        None => Ok((QemuNetwork::Forwarded(options.port), None)),
        Some(name) => {
            // `device` is held until QEMU has ended, because dropping it removes the tap device if this process created
            // it.
            let device = HostTap::prepare(name, options.ip, options.cores.min(QUEUES_MAX).into())?;
            Ok((
                QemuNetwork::Tap(name.clone(), device.queues()),
                Some(device),
            ))
        }
    }
}

/// Returns the archive of an image or of a folder.
///
/// # Errors
/// The file is not an image, or options that apply only to a folder were given with an image.
fn archive(image: &Path, settings: &ImageSettings) -> Result<Vec<u8>, String> {
    if image.is_dir() {
        return build::archive(image, settings);
    }
    if settings.database.is_some() || !settings.status_from.is_empty() {
        return Err(format!(
            "{}: the image already contains the site's settings: --database and --status-from are \
             only for a folder",
            image.display()
        ));
    }
    let bytes = fs::read(image).map_err(|error| format!("{}: {error}", image.display()))?;
    let site = elf::site(&bytes).map(<[u8]>::to_vec);
    site.ok_or_else(|| format!("{}: not an image of a site", image.display()))
}
