//! Names the addresses in a guest: by the symbol table of its kernel and the mappings of its processes; programs are
//! read by `nm` from the same files on the host.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::guest::QemuGuest;
use super::super::kernel::CopiedPath;

/// Start of the kernel's address range.
const KERNEL_BEGIN: u64 = 0xffff_8000_0000_0000;
/// The binary name of the kernel's symbols.
pub const KERNEL: &str = "kernel";

/// All symbols.
pub struct SymbolNames {
    kernel: AddressTable<(String, String)>,
    maps: Vec<MemoryMapping>,
    /// The files that were copied from the host, with their paths in the guest.
    copied: Vec<CopiedPath>,
    /// Symbols of programs by path in the guest.
    programs: RefCell<HashMap<String, ProgramSymbols>>,
}

/// Entries sorted by start address.
type AddressTable<T> = Vec<(u64, T)>;

/// An executable mapping of a process.
#[derive(Clone, Debug, PartialEq)]
struct MemoryMapping {
    begin: u64,
    end: u64,
    offset: u64,
    path: String,
}

#[derive(Default)]
struct ProgramSymbols {
    /// The file's segments: offset, length, load address.
    segments: Vec<(u64, u64, u64)>,
    symbols: AddressTable<String>,
}

impl SymbolNames {
    /// Reads the tables of a guest.
    ///
    /// # Errors
    /// The guest does not answer.
    pub fn read_from_guest(
        guest: &mut QemuGuest,
        copied: &[CopiedPath],
    ) -> Result<SymbolNames, String> {
        let kernel = guest.output_of("cat /proc/kallsyms")?;
        // The processes are not distinguished: an address alone identifies a mapping.
        let maps = guest.output_of("cat /proc/[0-9]*/maps")?;
        Ok(SymbolNames {
            kernel: kernel_symbols(&kernel),
            maps: maps.lines().filter_map(map).collect(),
            copied: copied.to_vec(),
            programs: RefCell::default(),
        })
    }

    /// The binary and symbol at an address.
    pub fn name(&self, address: u64) -> (String, String) {
        if address >= KERNEL_BEGIN {
            let unknown = || (KERNEL.to_owned(), "unknown".to_owned());
            return last_below(&self.kernel, address)
                .cloned()
                .unwrap_or_else(unknown);
        }
        let is_in = |map: &&MemoryMapping| (map.begin..map.end).contains(&address);
        let Some(map) = self.maps.iter().find(is_in) else {
            return ("other".into(), "a process that has ended".into());
        };
        let binary = map.path.rsplit('/').next().unwrap_or_default().to_owned();
        let mut programs = self.programs.borrow_mut();
        // The symbols are read once for each program: nm takes much longer than a look-up.
        let program = programs
            .entry(map.path.clone())
            .or_insert_with(|| ProgramSymbols::read(&self.host_path(&map.path)));
        let name = program.name(address - map.begin + map.offset);
        (binary, name.unwrap_or("without a symbol").to_owned())
    }

    /// The path on the host for a path in the guest.
    fn host_path(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        // A copied path is the file itself, or a folder that contains it.
        let found = self.copied.iter().find_map(
            |CopiedPath {
                 source,
                 path: guest_path,
             }| {
                let rest = path.strip_prefix(guest_path.trim_start_matches('/'))?;
                match rest.strip_prefix('/') {
                    Some(rest) => Some(source.join(rest)),
                    None => rest.is_empty().then(|| source.clone()),
                }
            },
        );
        found.unwrap_or_else(|| Path::new("/").join(path))
    }
}

/// The last entry that starts at or before an address.
fn last_below<T>(table: &[(u64, T)], address: u64) -> Option<&T> {
    // Symbols are listed without their ends, so an address belongs to the last symbol that begins before it.
    let index = table.partition_point(|(begin, _)| *begin <= address);
    Some(&table.get(index.checked_sub(1)?)?.1)
}

/// Parses lines `address type name [module]`.
fn kernel_symbols(text: &str) -> AddressTable<(String, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        // Text and weak symbols; data is not executable.
        let is_code = "tTwW".contains(words.next()?);
        let name = words.next()?.to_owned();
        let binary = match words.next() {
            Some(module) => format!("{KERNEL} {}", module.trim_matches(['[', ']'])),
            None => KERNEL.to_owned(),
        };
        is_code.then_some((address, (binary, name)))
    };
    let mut table: AddressTable<_> = text.lines().filter_map(line).collect();
    table.sort();
    table
}

/// Parses a line `begin-end r-xp offset device inode path`.
fn map(line: &str) -> Option<MemoryMapping> {
    let mut words = line.split_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let can_be_run = words.next()?.contains('x');
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = number(words.next()?)?;
    let path = words.nth(2).unwrap_or("[generated at run time]").to_owned();
    can_be_run.then_some(MemoryMapping {
        begin: number(begin)?,
        end: number(end)?,
        offset,
        path,
    })
}

impl ProgramSymbols {
    /// Reads the symbols of a file; empty if it has none or does not exist.
    fn read(path: &Path) -> ProgramSymbols {
        let run_tool = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).arg(path).output();
            output.map_or(String::new(), |output| {
                String::from_utf8_lossy(&output.stdout).into_owned()
            })
        };
        if !path.is_file() {
            return ProgramSymbols::default();
        }
        let mut symbols = run_tool("nm", &["-C", "--defined-only"]);
        // Programs of a distribution are stripped, so only their dynamic symbols remain.
        if symbols.is_empty() {
            symbols = run_tool("nm", &["-C", "-D", "--defined-only"]);
        }
        ProgramSymbols {
            segments: segments(&run_tool("readelf", &["-lW"])),
            symbols: program_symbols(&symbols),
        }
    }

    fn name(&self, offset: u64) -> Option<&str> {
        // Mappings are in file offsets, but nm lists load addresses.
        let is_in = |(begin, len, _): &&(u64, u64, u64)| (*begin..begin + len).contains(&offset);
        let (begin, _, address) = self.segments.iter().find(is_in)?;
        last_below(&self.symbols, offset - begin + address).map(String::as_str)
    }
}

/// Parses lines of `readelf`: `LOAD offset address physical length ...`.
fn segments(text: &str) -> Vec<(u64, u64, u64)> {
    let line = |line: &str| {
        let mut words = line.trim_start().strip_prefix("LOAD")?.split_whitespace();
        let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        let (offset, address, _, len) = (number()?, number()?, number()?, number()?);
        Some((offset, len, address))
    };
    text.lines().filter_map(line).collect()
}

/// Parses lines of `nm`: `address type name`.
fn program_symbols(text: &str) -> AddressTable<String> {
    let line = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let (kind, name) = rest.split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        // i: indirect functions, such as the variants of memcpy in the C library.
        "tTwWiu".contains(kind).then(|| (address, name.to_owned()))
    };
    let mut table: AddressTable<String> = text.lines().filter_map(line).collect();
    table.sort();
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kallsyms_text_is_parsed() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t inner\nffffffff82000000 d data\n\
                    ffffffffc0000000 t poll\t[virtio_net]\n";
        let table = kernel_symbols(text);
        assert_eq!(table.len(), 3);
        let name = |address| last_below(&table, address).map(|(place, name)| (&**place, &**name));
        assert_eq!(name(0xffff_ffff_8100_0180), Some(("kernel", "inner")));
        assert_eq!(
            name(0xffff_ffff_c000_0010),
            Some(("kernel virtio_net", "poll"))
        );
        assert_eq!(name(1), None);
    }

    #[test]
    fn executable_mappings_are_parsed() {
        let line = "55550000-55560000 r-xp 00001000 00:02 77   /usr/sbin/nginx";
        let found = map(line).expect("a map");
        assert_eq!((found.offset, &*found.path), (0x1000, "/usr/sbin/nginx"));
        assert_eq!(map(&line.replace("r-xp", "r--p")), None);
        let anonymous = map("55550000-55560000 r-xp 00000000 00:00 0").expect("a map");
        assert_eq!(anonymous.path, "[generated at run time]");
    }

    #[test]
    fn file_offsets_are_translated_by_segments() {
        let program = ProgramSymbols {
            segments: segments(
                "  LOAD   0x001000 0x0000000000002000 0x2000 0x000500 0x000500 R E 0x1000",
            ),
            symbols: program_symbols(
                "0000000000002010 T first\n0000000000002100 t second(int, char)\n",
            ),
        };
        assert_eq!(program.name(0x1011), Some("first"));
        assert_eq!(program.name(0x1100), Some("second(int, char)"));
        assert_eq!(program.name(0x1600), None);
    }
}
