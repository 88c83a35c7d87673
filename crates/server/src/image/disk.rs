//! Builds a disk that boots an image by BIOS or UEFI, with GRUB's `grub-mkrescue`. The disk can be written to a hard
//! disk or USB stick unchanged, or attached to a virtual machine as a disk or CD.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::address::ImageAddress;
use super::output::OutputFile;

const PROGRAM: &str = "grub-mkrescue";
/// Files that `grub-mkrescue` needs, and the packages that contain them: for BIOS, for UEFI, and for both.
const NEEDED: [(&str, &str); 4] = [
    ("/usr/lib/grub/i386-pc", "grub-pc-bin"),
    ("/usr/lib/grub/x86_64-efi", "grub-efi-amd64-bin"),
    ("/usr/bin/xorriso", "xorriso"),
    ("/usr/bin/mformat", "mtools"),
];
/// The GRUB modules that find and start the image; all modules would need 30 MB.
const MODULES: &str =
    "normal multiboot2 boot part_msdos part_gpt iso9660 search configfile all_video";

/// Builds the disk.
///
/// # Errors
/// The missing packages, or GRUB's error.
pub fn build(image: &[u8], ip: ImageAddress, output: &OutputFile) -> Result<(), String> {
    // If a platform's files are missing, grub-mkrescue omits its boot method without an error, so they are checked
    // first.
    let missing = NEEDED.iter().filter(|(path, _)| !Path::new(path).exists());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        return Err(advice(&missing));
    }
    // Creates the file with its final permissions; GRUB then overwrites it.
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
        // The menu is never shown, so fonts, locales and themes are left out.
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

/// The folder with the disk's files while the disk is built. Dropping it removes the folder.
struct DiskContents(PathBuf);

impl DiskContents {
    fn new(path: &Path) -> DiskContents {
        let mut name = path.as_os_str().to_owned();
        name.push(".d");
        DiskContents(name.into())
    }

    fn fill(&self, image: &[u8], ip: ImageAddress) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        // Readable by the owner only, because the image may contain a database's password.
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
    fn menu_starts_its_only_entry_immediately() {
        let ip = ImageAddress::parse("192.0.2.2/24,192.0.2.1").expect("an address");
        let wanted = "set timeout=0\nmenuentry lowroad {\n  multiboot2 /boot/lowroad ip=192.0.2.2/24,192.0.2.1\n}\n";
        assert_eq!(menu(ip), wanted);
    }
}
