//! Where a level is attached: its namespace, interfaces and tiers. Also checks the requirements of the system.

use std::fmt;
use std::fs;
use std::path::Path;

use lowroad_softirq::doctor;
use lowroad_softirq::error::LevelError;
use lowroad_softirq::layout;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::machine::interfaces::NetworkInterface;
use lowroad_softirq::machine::interfaces::{self, InterfaceDetails};
use lowroad_softirq::machine::tcp_settings::TcpSettings;
use lowroad_softirq::migration;
use lowroad_softirq::programs::folder;
use lowroad_softirq::programs::links;
use lowroad_softirq::programs::loader::{self, LoadedPrograms, ProgramTier};
use lowroad_softirq::programs::sizes::MapSizes;

use crate::cli::softirq::{AttachArgs, TierArg};

/// An interface with attached programs.
#[derive(Debug)]
pub struct AttachedInterface {
    interface: NetworkInterface,
    tier: ProgramTier,
    mtu: u32,
    /// Why the interface does not use native XDP.
    reason: Option<String>,
}

impl AttachedInterface {
    /// The interface.
    pub fn interface(&self) -> &NetworkInterface {
        &self.interface
    }
}

/// The smallest MTU of these interfaces.
pub fn least_mtu(attached: &[AttachedInterface]) -> u32 {
    attached.iter().map(|entry| entry.mtu).min().unwrap_or(1500)
}

impl fmt::Display for AttachedInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tier = match self.tier {
            ProgramTier::Xdp => "native XDP",
            ProgramTier::Tc => "TC ingress",
        };
        write!(f, "{}: {tier}", self.interface.name)?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Checks the requirements that all levels have.
///
/// # Errors
/// A requirement is not met: a message for the user with a remedy.
pub fn check_machine() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("this requires root, for CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON".into());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(
            "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), so connections can't be migrated"
                .into(),
        );
    }
    // `None` (unknown) is accepted: if the kernel lacks the function, the programs fail to load.
    if doctor::machine().has_migration_kfunc == Some(false) {
        return Err(
            "the kernel does not support migration (bpf_sk_assign_tcp_reqsk, Linux 6.9): requests \
             that are not answered here would be lost"
                .into(),
        );
    }
    // The kernel takes over connections as if they had returned valid SYN cookies.
    if TcpSettings::read().cookies == Some(0) {
        let reason = migration::describe(layout::HANDOVER_NO_COOKIES);
        return Err(reason.unwrap_or_default().to_owned());
    }
    Ok(())
}

/// Checks that pins persist and are visible to other processes.
///
/// # Errors
/// A message for the user.
pub fn check_pins() -> Result<(), String> {
    folder::pin_visibility_problem().map_or(Ok(()), Err)
}

/// Checks that connections can migrate to the sockets of a port.
///
/// # Errors
/// A message for the user.
pub fn check_port(port: u16) -> Result<(), String> {
    let found = doctor::port(port)
        .map_err(|error| format!("can't find the listener of port {port}: {error}"))?;
    let listeners = found.listeners.unwrap_or_default();
    match listeners.iter().any(|listener| listener.is_mptcp) {
        true => Err(format!(
            "the server on port {port} uses Multipath TCP, to which connections can't be \
             migrated; disable it there (Go: GODEBUG=multipathtcp=0)"
        )),
        false => Ok(()),
    }
}

/// Checks that no other level answers on one of these ports.
///
/// # Errors
/// Another level answers on one of these ports: a message for the user.
pub fn check_ports_free(ports: &[u16], own_folder: &Path) -> Result<(), String> {
    let all = folder::all().map_err(|error| error.to_string())?;
    for other in all.iter().filter(|folder| *folder != own_folder) {
        let other_ports = SoftirqLevel::open(other).map_or(Vec::new(), |level| level.ports());
        if let Some(port) = ports.iter().find(|port| other_ports.contains(port)) {
            return Err(format!(
                "port {port} is attached already, together with {other_ports:?}; detach those first"
            ));
        }
    }
    Ok(())
}

/// Loads the programs and attaches them to the selected interfaces.
///
/// # Errors
/// A message for the user.
pub fn load(args: &AttachArgs, folder: &Path) -> Result<Vec<AttachedInterface>, String> {
    let mut programs = TierPrograms::new(args, folder);
    let mut attached = Vec::new();
    for details in select_interfaces(&args.interface)? {
        match programs.attach_interface(&details, args.tier) {
            Ok(interface) => attached.push(interface),
            // The interface was listed but no longer exists, and the user did not name it.
            Err(_) if args.interface.is_empty() && !interface_exists(&details) => {}
            Err(problem) => return Err(problem),
        }
    }
    // Removes the programs of a previous daemon from other interfaces and tiers.
    for (name, tier) in links::attached(folder) {
        if !attached
            .iter()
            .any(|entry| entry.interface.name == name && entry.tier == tier)
        {
            links::remove(&name, tier, folder).map_err(|error| error.to_string())?;
        }
    }
    Ok(attached)
}

/// Attaches to an interface that has replaced one with the same name.
///
/// # Errors
/// A message for the user.
pub fn reattach(
    args: &AttachArgs,
    folder: &Path,
    details: &InterfaceDetails,
) -> Result<AttachedInterface, String> {
    TierPrograms::new(args, folder).attach_interface(details, args.tier)
}

fn interface_exists(details: &InterfaceDetails) -> bool {
    let all = interfaces::all().unwrap_or_default();
    all.iter().any(|other| other.interface == details.interface)
}

fn select_interfaces(names: &[String]) -> Result<Vec<InterfaceDetails>, String> {
    let all = interfaces::all().map_err(|error| format!("interfaces: {error}"))?;
    if names.is_empty() {
        // The programs parse only Ethernet frames.
        let usable = |details: &InterfaceDetails| {
            details.is_up && details.is_ethernet && !details.is_loopback
        };
        let found: Vec<InterfaceDetails> = all.into_iter().filter(usable).collect();
        return match found.is_empty() {
            true => Err("no Ethernet interface is up; --interface names one".into()),
            false => Ok(found),
        };
    }
    let known_names: Vec<&str> = all
        .iter()
        .map(|details| details.interface.name.as_str())
        .collect();
    let known_names = known_names.join(", ");
    names
        .iter()
        .map(|name| {
            let found = all.iter().find(|details| details.interface.name == *name);
            let found = found.ok_or(format!("--interface {name}: there is {known_names}"))?;
            match found.is_ethernet {
                true => Ok(found.clone()),
                false => Err(format!(
                    "--interface {name}: it does not carry Ethernet frames"
                )),
            }
        })
        .collect()
}

/// The sizes of the maps.
pub fn sizes(args: &AttachArgs) -> MapSizes {
    MapSizes {
        connections: args.connections,
        memory: args.memory,
    }
}

/// The programs that were loaded so far, each with its tier.
struct TierPrograms<'a> {
    sizes: MapSizes,
    folder: &'a Path,
    loaded: Vec<(ProgramTier, LoadedPrograms)>,
}

impl<'a> TierPrograms<'a> {
    fn new(args: &AttachArgs, folder: &'a Path) -> Self {
        Self {
            sizes: sizes(args),
            folder,
            loaded: Vec::new(),
        }
    }

    fn attach_interface(
        &mut self,
        details: &InterfaceDetails,
        requested: TierArg,
    ) -> Result<AttachedInterface, String> {
        let name = &details.interface.name;
        let attached = |tier, reason| AttachedInterface {
            interface: details.interface.clone(),
            tier,
            mtu: details.mtu,
            reason,
        };
        let obstacle = details.xdp_obstacle().or_else(|| {
            has_vlans(name).then_some("it has VLANs, whose tags native XDP may not see")
        });
        let reason = match (requested, obstacle) {
            (TierArg::None, _) => return Err("--tier none attaches to no interface".into()),
            (TierArg::Tc, _) => None,
            (TierArg::Xdp, Some(reason)) => return Err(format!("{name}: {reason}")),
            (TierArg::Auto, Some(reason)) => Some(reason.to_owned()),
            (_, None) => match self.attach(details, ProgramTier::Xdp) {
                Ok(()) => return Ok(attached(ProgramTier::Xdp, None)),
                // TC is used instead only if the system refuses XDP; an error in the programs is reported.
                Err(error @ LevelError::System { .. }) if requested == TierArg::Auto => {
                    Some(error.to_string())
                }
                Err(error) => return Err(error.to_string()),
            },
        };
        self.attach(details, ProgramTier::Tc)
            .map_err(|error| error.to_string())?;
        Ok(attached(ProgramTier::Tc, reason))
    }

    fn attach(&mut self, details: &InterfaceDetails, tier: ProgramTier) -> Result<(), LevelError> {
        // The programs are loaded once for each tier, because interfaces share them.
        let position = self.loaded.iter().position(|(other, _)| *other == tier);
        let index = match position {
            Some(index) => index,
            None => {
                let loaded = loader::load(tier, self.sizes, self.folder)?;
                self.loaded.push((tier, loaded));
                self.loaded.len() - 1
            }
        };
        links::attach(&self.loaded[index].1, &details.interface, self.folder)
    }
}

/// Whether an interface has 802.1Q subinterfaces (VLANs).
fn has_vlans(name: &str) -> bool {
    // Without the kernel module 8021q the file does not exist, and there are no VLAN devices.
    let table = fs::read_to_string("/proc/net/vlan/config").unwrap_or_default();
    table.lines().any(|line| {
        line.rsplit('|')
            .next()
            .is_some_and(|parent| parent.trim() == name)
    })
}
