//! The boot information of both kinds of boot loaders: command line, memory map, site, ACPI root pointer. Copies it
//! before its memory is reused.

use core::ptr::with_exposed_provenance;

use lowroad_kernel::regions::{MemoryMap, MemoryRegion};
use lowroad_kernel::{multiboot2, pvh};

/// The number of PVH; the entry points in `boot` pass the number of their boot protocol in `edi`.
pub const BY_PVH: u32 = 1;
/// The number of Multiboot2, see [`BY_PVH`].
pub const BY_MULTIBOOT2: u32 = 2;

/// Maximum length of the command line; longer ones are truncated.
const COMMAND_LINE_MAX: usize = 4096;

/// The boot information.
pub struct BootInfo {
    /// The name of the boot protocol.
    pub loader: &'static str,
    command_line: [u8; COMMAND_LINE_MAX],
    command_line_len: usize,
    /// Usable memory.
    pub memory: MemoryMap,
    /// The boot loader's first module.
    pub module: Option<MemoryRegion>,
    /// The ACPI root pointer.
    pub rsdp: Option<[u8; 36]>,
}

impl BootInfo {
    /// The command line; empty if it isn't UTF-8.
    pub fn command_line(&self) -> &str {
        core::str::from_utf8(&self.command_line[..self.command_line_len]).unwrap_or_default()
    }

    fn set_command_line(&mut self, text: &[u8]) {
        self.command_line_len = text.len().min(COMMAND_LINE_MAX);
        self.command_line[..self.command_line_len].copy_from_slice(&text[..self.command_line_len]);
    }
}

/// A view of memory that firmware, hypervisor or boot loader have written.
///
/// # Safety
/// The bytes must be mapped, and must not be written while the slice is used.
pub unsafe fn boot_memory(address: u64, len: usize) -> &'static [u8] {
    // SAFETY: by the caller's contract.
    unsafe { core::slice::from_raw_parts(with_exposed_provenance(address as usize), len) }
}

/// Whether the bytes are within the initial mapping, which covers the first 4 GiB.
pub fn is_mapped(address: u64, len: u64) -> bool {
    address != 0 && address.checked_add(len).is_some_and(|end| end <= 1 << 32)
}

/// Reads the boot information at `info`.
pub fn read_boot_info(protocol: u32, info: u32) -> BootInfo {
    let mut boot_info = BootInfo {
        loader: "unknown",
        command_line: [0; COMMAND_LINE_MAX],
        command_line_len: 0,
        memory: MemoryMap::default(),
        module: None,
        rsdp: None,
    };
    match protocol {
        BY_PVH => by_pvh(&mut boot_info, info.into()),
        BY_MULTIBOOT2 => by_multiboot2(&mut boot_info, info.into()),
        _ => {}
    }
    boot_info
}

fn by_pvh(boot_info: &mut BootInfo, address: u64) {
    boot_info.loader = "PVH";
    // SAFETY: below 4 GiB; memory is not written before everything is read.
    let Some(info) = pvh::start_info(unsafe { boot_memory(address, pvh::START_INFO_LEN) }) else {
        return;
    };
    if let Some(at) = info
        .command_line
        .filter(|at| is_mapped(*at, COMMAND_LINE_MAX as u64))
    {
        // SAFETY: mapped, as checked above.
        let bytes = unsafe { boot_memory(at, COMMAND_LINE_MAX) };
        boot_info.set_command_line(&bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(0)]);
    }
    if let Some((at, count)) = info.map {
        // Bounds the work in case the count is wrong.
        for n in 0..count.min(256) {
            let entry = at + u64::from(n) * pvh::MAP_ENTRY_LEN as u64;
            if is_mapped(entry, pvh::MAP_ENTRY_LEN as u64)
                // SAFETY: mapped, as checked.
                && let Some(region) = pvh::map_entry(unsafe { boot_memory(entry, pvh::MAP_ENTRY_LEN) })
            {
                boot_info.memory.add(region);
            }
        }
    }
    if let Some(at) = info
        .module
        .filter(|at| is_mapped(*at, pvh::MODULE_LEN as u64))
    {
        // SAFETY: mapped, as checked.
        boot_info.module = pvh::module(unsafe { boot_memory(at, pvh::MODULE_LEN) });
    }
    if let Some(at) = info.rsdp.filter(|at| is_mapped(*at, 36)) {
        // SAFETY: mapped, as checked.
        boot_info.rsdp = unsafe { boot_memory(at, 36) }.first_chunk().copied();
    }
}

fn by_multiboot2(boot_info: &mut BootInfo, address: u64) {
    boot_info.loader = "Multiboot2";
    // SAFETY: below 4 GiB; memory is not written before everything is read.
    let len = unsafe { boot_memory(address, 4) }
        .first_chunk()
        .map_or(0, |len| u32::from_le_bytes(*len));
    if !is_mapped(address, len.into()) || len > 1 << 20 {
        return;
    }
    // SAFETY: mapped, as checked above.
    let info = multiboot2::info(unsafe { boot_memory(address, len as usize) });
    boot_info.set_command_line(info.command_line.as_bytes());
    boot_info.module = info.module;
    if let Some(rsdp) = info.rsdp {
        let mut copy = [0; 36];
        let len = rsdp.len().min(36);
        copy[..len].copy_from_slice(&rsdp[..len]);
        boot_info.rsdp = Some(copy);
    }
    boot_info.memory = info.memory;
}
