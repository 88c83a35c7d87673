//! The command `icount`: its options, and the selection of the measurement.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};

use super::boot::{BootSpec, GuestFiles};
use super::drive::{ConnectionMode, DriveRequest};
use super::guest::{GuestNetwork, QemuGuest};
use super::kernel::{CopiedPath, GuestContent, GuestKernel, plugin};
use super::mix::WorkloadMix;
use super::standard::{self, StandardPlan};
use super::table::{CountTable, thousands};
use super::{CountTraffic, measure, needs, paper, servers, timed};
use crate::load::rate;
use crate::workload;

/// Count the instructions of a request, of a whole machine, in a guest
///
/// Boots Linux 6.12 (or a bare image) under QEMU's software emulation, drives it over a network
/// device, and prints the guest instructions that one more request costs: driver, soft interrupt,
/// TCP, system calls and server together. Without --cmd, --file or --kernel it does so for the
/// standard table: our server and those of its peers that are installed.
#[derive(Debug, clap::Args)]
pub struct IcountArgs {
    #[command(flatten)]
    options: Box<IcountOptions>, // large beside those of the other commands
}

#[derive(Debug, clap::Args)]
struct IcountOptions {
    /// Measure only this server of the standard table, or of the paper (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Standard table")]
    server: Vec<String>,
    /// Only this size of a body (repeatable) [default: 64, 1024, 102400]
    #[arg(long, value_name = "BYTES", help_heading = "Standard table")]
    size: Vec<u64>,
    /// Send POST requests, with a body of this many bytes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["kernel", "file", "cmd", "workload", "paper"], help_heading = "Standard table")]
    post: Option<usize>,
    /// Offer this many requests a second, and measure response times (repeatable; `2k` is 2000). A second is 10^9 instructions
    /// of the guest, half a second is counted
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["kernel", "file", "cmd", "workload", "paper", "post", "json", "profile", "drive"], help_heading = "Standard table")]
    rate: Vec<f64>,
    /// Also write the figures to this file, one after the other
    #[arg(long, value_name = "FILE", help_heading = "Standard table")]
    json: Option<PathBuf>,
    /// Profile the instructions, by symbol of kernel and programs: the largest are printed, and a flame graph of each
    /// figure is written to this folder
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "profile", conflicts_with_all = ["paper", "kernel", "file", "cmd"], help_heading = "Standard table")]
    profile: Option<PathBuf>,
    /// Count the comparison of this paper, instead of the standard table: servers with programs behind them and a
    /// database outside the guest. So far: 003
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["size", "mode", "url", "drive", "workload", "kernel", "file", "cmd"], help_heading = "Papers")]
    paper: Option<String>,
    /// Only this load of the paper (repeatable)
    #[arg(long, value_name = "NAME", requires = "paper", help_heading = "Papers")]
    load: Vec<String>,
    /// New guests for each server of the paper
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Papers")]
    repeats: u32,
    /// Our server's program [default: as built for release, or in PATH]
    #[arg(long, value_name = "PATH", help_heading = "Standard table")]
    lowroad: Option<PathBuf>,
    /// Guests that run at once, at most as many as there are processors
    #[arg(
        long,
        value_name = "N",
        default_value_t = jobs(),
        help_heading = "Standard table"
    )]
    jobs: usize,

    /// How connections are used (repeatable) [default: both]
    #[arg(long)]
    mode: Vec<ConnectionMode>,
    /// Requests for a figure: three times a short and a long run
    #[arg(short = 'n', long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Requests in progress at a time
    #[arg(short = 'c', long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Requests before counting begins; more for a level that learns from them
    #[arg(long, value_name = "N", default_value_t = 200)]
    warmup: u64,
    /// The traffic of this workload instead of pages; its files are in the guest's /srv. See
    /// `lowroad-lab files --help`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["size", "mode", "url", "drive"])]
    workload: Option<String>,
    /// A setting of the workload (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "workload")]
    settings: Vec<String>,
    /// Install the Debian packages that are missing, those of the peers too
    #[arg(long)]
    install: bool,

    /// Copy SRC into the guest (repeatable): a folder, a file, or a program with its libraries;
    /// DEST is /usr/bin/NAME if not given
    #[arg(
        long,
        value_name = "SRC[:DEST]",
        help_heading = "Any other configuration"
    )]
    file: Vec<String>,
    /// Run this in the guest's shell once the network is up (servers in the background, with &);
    /// {guest} and {host} are replaced by the addresses
    #[arg(long, value_name = "CMD", help_heading = "Any other configuration")]
    cmd: Option<String>,
    /// Request this path (repeatable)
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/",
        help_heading = "Any other configuration"
    )]
    url: Vec<String>,
    /// Run this command instead of sending requests: it makes exactly {requests} requests over {connections} connections to {url}
    #[arg(
        long,
        value_name = "CMD",
        conflicts_with_all = ["mode", "url"],
        help_heading = "Any other configuration"
    )]
    drive: Option<String>,
    /// The port
    #[arg(long, default_value_t = 80, help_heading = "Any other configuration")]
    port: u16,
    /// Boot this bare image (PVH or multiboot) instead of Linux
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["file", "cmd"], help_heading = "Any other configuration")]
    kernel: Option<PathBuf>,
    /// The address of the bare image; the host is .1 of its /24
    #[arg(
        long,
        value_name = "IPV4",
        default_value = "10.88.0.2",
        help_heading = "Any other configuration"
    )]
    guest: Ipv4Addr,
    /// Additional words for the kernel's command line; {guest} and {host} as for --cmd
    #[arg(long, default_value = "", help_heading = "Any other configuration")]
    append: String,
    /// The guest's network card
    #[arg(
        long,
        default_value = "virtio-net-pci",
        help_heading = "Any other configuration"
    )]
    device: String,
    /// The guest's processors
    #[arg(long, default_value_t = 1, help_heading = "Any other configuration")]
    cpus: u32,
    /// The guest's memory
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 512,
        help_heading = "Any other configuration"
    )]
    mem: u32,
}

/// Default number of simultaneous guests. Two guests at once give the same figures as one (docs/performance.md).
fn jobs() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2)
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &IcountArgs) -> anyhow::Result<ExitCode> {
    let args = &args.options;
    if args.install {
        standard::install_packages(&needs::missing())?;
    }
    needs::check().map_err(|error| anyhow!(error))?;
    if let Some(number) = &args.paper {
        return paper::cli::compare(args.paper_selection(number));
    }
    let mix = args.mix()?;
    if args.kernel.is_some() || args.cmd.is_some() || !args.file.is_empty() {
        return measure_other(args, mix).map_err(|error| anyhow!(error));
    }
    if args.drive.is_some() {
        bail!("--drive needs a configuration: give --cmd, or --kernel");
    }
    standard(args, mix)
}

impl IcountOptions {
    fn modes(&self) -> Vec<ConnectionMode> {
        match self.mode.is_empty() {
            true => vec![ConnectionMode::KeepAlive, ConnectionMode::Close],
            false => self.mode.clone(),
        }
    }

    fn traffic(&self) -> CountTraffic {
        CountTraffic {
            requests: self.requests,
            connections: self.connections,
            warmup: self.warmup,
        }
    }

    fn paper_selection<'a>(&'a self, number: &'a str) -> paper::cli::PaperSelection<'a> {
        paper::cli::PaperSelection {
            paper: number,
            servers: &self.server,
            loads: &self.load,
            repeats: self.repeats,
            traffic: self.traffic(),
            json: self.json.as_deref(),
            lowroad: self.lowroad.clone(),
            jobs: self.jobs,
            installs: self.install,
        }
    }

    fn mix(&self) -> anyhow::Result<Option<WorkloadMix>> {
        let Some(name) = &self.workload else {
            return Ok(None);
        };
        let settings = workload::cli::parse(&self.settings)?;
        let mix = WorkloadMix::new(name, &settings).map_err(|error| anyhow!(error))?;
        Ok(Some(mix))
    }
}

fn standard(args: &IcountOptions, mix: Option<WorkloadMix>) -> anyhow::Result<ExitCode> {
    let chosen: Result<Vec<_>, String> = args
        .server
        .iter()
        .map(|name| servers::find_server(name))
        .collect();
    let mut chosen = chosen.map_err(|error| anyhow!("--server: {error}"))?;
    if chosen.is_empty() {
        chosen = servers::ALL.to_vec();
        chosen.retain(|server| server.is_default);
    }
    if args.install {
        standard::install(&chosen)?;
    }
    let sizes = match args.size.is_empty() {
        true => vec![64, 1024, 102_400],
        false => args.size.clone(),
    };
    let plan = StandardPlan {
        servers: chosen,
        table: match &mix {
            Some(mix) => CountTable::of_mix(mix.name),
            None => CountTable::new(&args.modes(), &sizes),
        },
        mix,
        post_len: args.post,
        traffic: args.traffic(),
        lowroad: args.lowroad.clone(),
        jobs: args.jobs.max(1),
        has_steps: !args.rate.is_empty(),
        profile: args.profile.clone(),
    };
    if !args.rate.is_empty() {
        let is_successful = timed::run(&plan, &args.rate).map_err(|error| anyhow!(error))?;
        return Ok(ExitCode::from(u8::from(!is_successful)));
    }
    // A failed write is reported at the end, so that the remaining figures are not lost.
    let mut unwritten = None;
    let rows = standard::run(&plan, &mut |rows| {
        unwritten = args.json.as_ref().and_then(|path| {
            let text = serde_json::to_string_pretty(rows).expect("plain data");
            let written = std::fs::write(path, text + "\n");
            written
                .with_context(|| format!("--json {}", path.display()))
                .err()
        });
    });
    let rows = rows.map_err(|error| anyhow!(error))?;
    if let Some(error) = unwritten {
        return Err(error);
    }
    // A peer that is not installed is not an error of the table.
    let is_successful = rows.iter().any(|row| row.instructions.is_some());
    Ok(if is_successful {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Measures a server that is given on the command line by its programs, files, or image.
fn measure_other(args: &IcountOptions, mix: Option<WorkloadMix>) -> Result<ExitCode, String> {
    let plugin = plugin()?;
    let (boot, network) = match &args.kernel {
        Some(image) => bare_guest(args, image)?,
        None => linux(args, mix.as_ref())?,
    };
    let mut guest = QemuGuest::boot(&boot, &plugin, network)?;
    let address = guest.wait_for(args.port)?;
    for request in drive_requests(args, mix.as_ref(), &address.to_string())? {
        let figure = measure(&mut guest, address, &request, args.traffic())?;
        let figure = thousands(figure.round() as u64);
        println!("{} {figure} instructions a request", request.label());
    }
    Ok(ExitCode::SUCCESS)
}

/// The requests of each figure.
fn drive_requests(
    args: &IcountOptions,
    mix: Option<&WorkloadMix>,
    host: &str,
) -> Result<Vec<DriveRequest>, String> {
    if let Some(mix) = mix {
        return Ok(vec![mix.drive_request(host)?]);
    }
    if let Some(command) = &args.drive {
        return Ok(vec![DriveRequest::Command(command.clone())]);
    }
    let modes = args.modes();
    let url_request = |url: &String| {
        let page = |mode: &ConnectionMode| DriveRequest::Page(url.clone(), *mode);
        modes.iter().map(page).collect::<Vec<_>>()
    };
    Ok(args.url.iter().flat_map(url_request).collect())
}

fn bare_guest(args: &IcountOptions, image: &Path) -> Result<(BootSpec, GuestNetwork), String> {
    if !image.is_file() {
        return Err(format!("--kernel {}: no such file", image.display()));
    }
    Ok((
        boot(args, image.to_owned(), None),
        GuestNetwork::with_guest_address(args.guest),
    ))
}

fn linux(
    args: &IcountOptions,
    mix: Option<&WorkloadMix>,
) -> Result<(BootSpec, GuestNetwork), String> {
    let kernel = GuestKernel::new()?;
    let network = GuestNetwork::new();
    let copied: Result<Vec<CopiedPath>, String> = args
        .file
        .iter()
        .map(|spec| parse_copied_path(spec))
        .collect();
    let mut copied = copied?;
    copied.extend(mix.map(WorkloadMix::site).transpose()?);
    let content = GuestContent {
        copied,
        command: args
            .cmd
            .clone()
            .ok_or("--file requires --cmd, the command for the guest")?,
        ..GuestContent::default()
    };
    let system = kernel.system(&network, &content)?;
    Ok((boot(args, kernel.image(), Some(system)), network))
}

fn boot(args: &IcountOptions, kernel: PathBuf, system: Option<GuestFiles>) -> BootSpec {
    BootSpec {
        append: args.append.clone(),
        device: args.device.clone(),
        cpus: args.cpus,
        ..BootSpec::with_defaults(kernel, system, args.mem)
    }
}

/// Parses `SRC[:DEST]`.
fn parse_copied_path(spec: &str) -> Result<CopiedPath, String> {
    let (source, path) = match spec.split_once(':') {
        Some((source, path)) => (PathBuf::from(source), path.to_owned()),
        None => {
            let source = PathBuf::from(spec);
            let name = source
                .file_name()
                .ok_or_else(|| format!("--file {spec}: no name"))?;
            let path = format!("usr/bin/{}", name.to_string_lossy());
            (source, path)
        }
    };
    if !source.exists() {
        return Err(format!(
            "--file {spec}: {} does not exist",
            source.display()
        ));
    }
    Ok(CopiedPath { source, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_path_has_optional_guest_path() {
        let copy = parse_copied_path("/bin/sh:/opt/shell").expect("there");
        assert_eq!(
            (copy.source, copy.path),
            ("/bin/sh".into(), "/opt/shell".to_owned())
        );
        assert_eq!(
            parse_copied_path("/bin/sh").expect("there").path,
            "usr/bin/sh"
        );
        assert!(
            parse_copied_path("/no/such/file")
                .expect_err("absent")
                .contains("/no/such/file")
        );
    }
}
