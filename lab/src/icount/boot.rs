//! The boot parameters of a guest, as QEMU's command line. Starts no process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::guest::{GuestNetwork, MAC};
use super::monitor;

/// The default network card.
const DEVICE: &str = "virtio-net-pci";
/// Sector length of the disk.
const SECTOR_LEN: usize = 512;

/// Boot parameters.
#[derive(Debug)]
pub struct BootSpec {
    /// A kernel, or a bare image that QEMU can start (PVH or multiboot).
    pub kernel: PathBuf,
    /// The file system of a Linux guest; `None` for a bare image.
    pub system: Option<GuestFiles>,
    /// Additional parameters on the kernel's command line.
    pub append: String,
    /// The network card.
    pub device: String,
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB. A guest with larger files gets more; a guest with a disk gets this much in addition to its files.
    pub memory_mib: u32,
    /// The image of the guest's read-only disk.
    pub disk: Option<PathBuf>,
    /// Whether instructions are also counted by address.
    pub has_profile: bool,
    /// Whether the guest can run in steps.
    pub has_steps: bool,
}

/// A guest's files.
#[derive(Debug, Default)]
pub struct GuestFiles {
    /// The part that all guests have in common: an archive that the kernel unpacks.
    pub base: Arc<[u8]>,
    /// The part with the guest's server: an archive on a disk, unpacked after boot. See
    /// [`super::kernel::start_script`].
    pub content: Vec<u8>,
}

impl BootSpec {
    /// One processor, the default network card, and no profile.
    pub fn with_defaults(kernel: PathBuf, system: Option<GuestFiles>, memory_mib: u32) -> BootSpec {
        BootSpec {
            kernel,
            system,
            append: String::new(),
            device: DEVICE.into(),
            cpus: 1,
            memory_mib,
            disk: None,
            has_profile: false,
            has_steps: false,
        }
    }

    /// Whether the parameters are the common ones. Such guests differ only in their content and can share a saved
    /// state.
    pub fn is_default(&self) -> bool {
        let is_plain = self.append.is_empty() && self.device == DEVICE && self.cpus == 1;
        self.system.is_some() && is_plain && self.disk.is_none()
    }

    /// The guest's memory in MiB.
    pub fn memory_mib(&self) -> u32 {
        let content_len = self
            .system
            .as_ref()
            .map_or(0, |system| system.content.len());
        match self.disk {
            // Powers of two, so that there are few sizes and many guests can share a saved state.
            None => {
                let required_mib = self.memory_mib.max(memory_mib_min(content_len));
                required_mib.next_power_of_two()
            }
            // The memory that remains for the page cache of the disk must not depend on the size of the programs.
            Some(_) => self.memory_mib + (content_len >> 20) as u32 + 1,
        }
    }
}

/// The minimum memory for `content_len` bytes of content: the file system into which it is unpacked may use half of the
/// memory.
fn memory_mib_min(content_len: usize) -> u32 {
    const OF_THE_KERNEL_MIB: u32 = 128;
    // A quarter of the maximum, so that the multiplication can't overflow.
    let content_mib = u32::try_from(content_len >> 20).unwrap_or(u32::MAX / 4);
    OF_THE_KERNEL_MIB + 3 * content_mib
}

/// The files from which QEMU reads [`GuestFiles`].
#[derive(Default)]
pub struct BootMedia {
    /// The archive that the kernel unpacks.
    pub base: String,
    /// The disk with the content.
    pub content: String,
}

/// The length of a disk with this much content, in whole sectors.
pub fn disk_len(content_len: usize) -> usize {
    content_len.next_multiple_of(SECTOR_LEN).max(SECTOR_LEN)
}

/// QEMU's arguments.
pub fn arguments(
    boot: &BootSpec,
    plugin: &Path,
    network: &GuestNetwork,
    media: Option<&BootMedia>,
) -> Vec<String> {
    // -icount shift=0: one nanosecond per instruction, so that timer ticks cost the same on any host. Each element that
    // a repeated string instruction moves counts as an instruction too; without the feature erms, the kernel moves
    // elements of eight bytes instead of one.
    let words = "-M q35 -cpu max,-erms,-fsrm -accel tcg,thread=single -icount shift=0 -display none -serial stdio \
                 -monitor none -no-reboot";
    let mut arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-smp", boot.cpus.to_string());
    add("-m", boot.memory_mib().to_string());
    add("-kernel", boot.kernel.display().to_string());
    let extra = network.fill_in(&boot.append);
    match media {
        Some(BootMedia { base, .. }) => {
            add("-initrd", base.clone());
            // QEMU 7.2 computes wrong flags after cmpxchg16b: an interrupt there saves them, and the kernel stops when
            // it restores them. So clearcpuid keeps the kernel from using the instruction. Traffic Server needs it and
            // can't run.
            let line = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clearcpuid=cx16";
            // The default root, a tmpfs, is limited to half of the memory, which is too little for large programs if
            // the guest has a disk.
            let root = if boot.disk.is_some() {
                " rootfstype=ramfs"
            } else {
                ""
            };
            add("-append", format!("{line}{root} {extra}"));
        }
        None => add("-append", extra),
    }
    // vhost=off: QEMU's main loop moves the packets, so if the loop is idle, all packets have been delivered.
    let tap = "script=no,downscript=no,vhost=off";
    add(
        "-netdev",
        format!("tap,id=n0,ifname={},{tap}", network.name),
    );
    // The guest's driver reads the MTU from its card.
    let mtu = network.mtu.map(|mtu| format!(",host_mtu={mtu}"));
    let mtu = mtu.unwrap_or_default();
    add(
        "-device",
        format!("{},netdev=n0,mac={MAC}{mtu}", boot.device),
    );
    // cache=unsafe uses the host's page cache: the speed of the host's disk must not matter.
    let mut disk = |id: &str, file: &str| {
        // A comma in a QEMU option value is written twice.
        let file = file.replace(',', ",,");
        let options = "if=none,format=raw,readonly=on,file.locking=off,cache=unsafe,aio=threads";
        add("-drive", format!("file={file},id={id},{options}"));
        add("-device", format!("virtio-blk-pci,drive={id}"));
    };
    if let Some(BootMedia { content, .. }) = media {
        // The order determines the names in the guest: first /dev/vda, then /dev/vdb.
        disk("content", content);
    }
    if let Some(image) = &boot.disk {
        disk("site", &image.display().to_string());
    }
    add("-plugin", plugin.display().to_string());
    arguments.extend(monitor::arguments(&network.name));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_len(content_len: usize) -> BootSpec {
        let system = GuestFiles {
            content: vec![0; content_len],
            ..GuestFiles::default()
        };
        BootSpec::with_defaults("vmlinuz".into(), Some(system), 512)
    }

    #[test]
    fn memory_is_rounded_up_to_few_sizes() {
        assert_eq!(of_len(1 << 20).memory_mib(), 512);
        assert_eq!(of_len(100 << 20).memory_mib(), 512);
        assert_eq!(of_len(200 << 20).memory_mib(), 1024);
    }

    #[test]
    fn configured_memory_excludes_the_archive() {
        let boot = BootSpec {
            memory_mib: 128,
            disk: Some("site.img".into()),
            ..of_len(7 << 20)
        };
        assert_eq!(boot.memory_mib(), 128 + 7 + 1);
        assert!(!boot.is_default());
    }

    #[test]
    fn disk_length_is_rounded_up_to_sectors() {
        assert_eq!((disk_len(0), disk_len(513)), (512, 1024));
    }
}
