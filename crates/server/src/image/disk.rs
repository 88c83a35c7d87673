//! A disk that boots an image by BIOS or UEFI, built by GRUB's `grub-mkrescue`. It can be written to a disk or USB
//! stick unchanged, or attached to a virtual machine as a disk or CD.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::address::ImageAddress;
use super::output::OutputFile;

const PROGRAM: &str = "grub-mkrescue";
/// Files that `grub-mkrescue` needs for BIOS, UEFI or both, and their packages.
const NEEDED: [(&str, &str); 4] = [
    ("/usr/lib/grub/i386-pc", "grub-pc-bin"),
    ("/usr/lib/grub/x86_64-efi", "grub-efi-amd64-bin"),
    ("/usr/bin/xorriso", "xorriso"),
    ("/usr/bin/mformat", "mtools"),
];
/// The GRUB modules that find and start the image; all modules would take 30 MB.
const MODULES: &str =
    "normal multiboot2 boot part_msdos part_gpt iso9660 search configfile all_video";

/// Builds the disk.
///
/// # Errors
/// The missing packages, or GRUB's error.
pub fn build(image: &[u8], ip: ImageAddress, output: &OutputFile) -> Result<(), String> {
    // Without a platform's files, grub-mkrescue silently omits its boot method, so all are checked first.
    let missing = NEEDED.iter().filter(|(path, _)| !Path::new(path).exists());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        return Err(advice(&missing));
    }
    // Creates the file with its final permissions before GRUB writes to it.
    output.write(b"")?;
    let folder = DiskContents::new(output.path());
    folder
        .fill(image, ip)
        .map_err(|error| format!("{}: {error}", folder.0.display()))?;
    let mut command = Command::new(PROGRAM);
    command.arg("-o").arg(output.path()).arg(&folder.0);
    command.args([
        "--install-modules",
        MODULES,
        // The menu starts at once, so it needs no fonts, locales and themes.
        "--fonts=",
        "--locales=",
        "--themes=",
    ]);
    let grub_output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => advice(&["grub-common"]),
        _ => format!("{PROGRAM}: {error}"),
    })?;
    match grub_output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{PROGRAM}: {}",
            String::from_utf8_lossy(&grub_output.stderr).trim()
        )),
    }
}

fn advice(missing: &[&str]) -> String {
    format!(
        "GRUB makes the disk, but parts of it are missing:\n    sudo apt-get install {}",
        missing.join(" ")
    )
}

/// The disk's contents while it is built. Dropping it removes the folder.
struct DiskContents(PathBuf);

impl DiskContents {
    fn new(path: &Path) -> DiskContents {
        let mut name = path.as_os_str().to_owned();
        name.push(".d");
        DiskContents(name.into())
    }

    fn fill(&self, image: &[u8], ip: ImageAddress) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        // For the owner only: the image may hold a database's password.
        fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        fs::create_dir_all(self.0.join("boot/grub"))?;
        fs::write(self.0.join("boot/lowroad"), image)?;
        fs::write(self.0.join("boot/grub/grub.cfg"), menu(ip))
    }
}

impl Drop for DiskContents {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn menu(ip: ImageAddress) -> String {
    format!("set timeout=0\nmenuentry lowroad {{\n  multiboot2 /boot/lowroad ip={ip}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_has_one_entry_that_starts_at_once() {
        let ip = ImageAddress::parse("192.0.2.2/24,192.0.2.1").expect("an address");
        let wanted = "set timeout=0\nmenuentry lowroad {\n  multiboot2 /boot/lowroad ip=192.0.2.2/24,192.0.2.1\n}\n";
        assert_eq!(menu(ip), wanted);
    }
}
