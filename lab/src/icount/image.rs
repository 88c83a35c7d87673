//! Builds bare images of sites with `lowroad`, and describes how they boot, without Linux. Independent of QEMU and
//! traffic.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::boot::BootSpec;
use super::kernel::run;

/// Parameters for the addresses of guest and host; the network of [`super::guest::GuestNetwork::new`] is a /30.
const APPEND: &str = "ip={guest}/30,{host}";

/// An image in a temporary folder, which is deleted on drop: it must exist until QEMU has read it.
pub struct ImageFolder(PathBuf);

impl ImageFolder {
    /// Builds an image of a folder with `lowroad image build`.
    ///
    /// # Errors
    /// The program failed; the text is its output.
    pub fn from_folder(lowroad: &Path, site: &Path) -> Result<ImageFolder, String> {
        let image = ImageFolder::empty()?;
        image.build(lowroad, site, None)?;
        Ok(image)
    }

    /// Builds an image of files, given as paths that begin with a slash, and contents. Pages read their rows from the
    /// database with the URL `database`.
    ///
    /// # Errors
    /// The program or the system failed; the text gives the reason.
    pub fn from_files(
        lowroad: &Path,
        files: &[(String, Vec<u8>)],
        database: Option<&str>,
    ) -> Result<ImageFolder, String> {
        let image = ImageFolder::empty()?;
        let site = image.0.join("site");
        fs::create_dir(&site).map_err(|error| format!("{}: {error}", site.display()))?;
        for (path, content) in files {
            let file = site.join(path.trim_start_matches('/'));
            fs::write(&file, content).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        image.build(lowroad, &site, database)?;
        Ok(image)
    }

    fn empty() -> Result<ImageFolder, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(format!("lowroad-image-{process}-{number}"));
        // The call fails if the folder exists: that folder would belong to another process, and be deleted with this
        // image.
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(ImageFolder(folder))
    }

    fn build(&self, lowroad: &Path, site: &Path, database: Option<&str>) -> Result<(), String> {
        let mut command = Command::new(lowroad);
        command.args(["image", "build"]).arg(site);
        command.args(database.iter().flat_map(|url| ["--database", url]));
        run(command.arg("-o").arg(self.path())).map(drop)
    }

    fn path(&self) -> PathBuf {
        self.0.join("site.img")
    }

    /// Boot parameters of the image, for a network of [`super::guest::GuestNetwork::new`].
    pub fn boot(&self, memory_mib: u32) -> BootSpec {
        BootSpec {
            append: APPEND.into(),
            ..BootSpec::with_defaults(self.path(), None, memory_mib)
        }
    }
}

impl Drop for ImageFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::guest::GuestNetwork;
    use super::*;

    #[test]
    fn kernel_command_line_contains_network_addresses() {
        let network = GuestNetwork::new();
        let wanted = format!("ip={}/{},{}", network.guest, network.prefix, network.host);
        assert_eq!(network.fill_in(APPEND), wanted);
    }

    #[test]
    fn failed_image_build_removes_its_folder() {
        let image = ImageFolder::empty().expect("a folder");
        let folder = image.0.clone();
        assert!(image.build(Path::new("false"), &folder, None).is_err());
        drop(image);
        assert!(!folder.exists());
    }
}
