//! The Linux kernel of guests: Debian's newest 6.12 in a cache folder, with the init script. Also builds the counting
//! plugin. Starts no guest.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::archive::CpioArchive;
use super::boot::GuestFiles;
use super::guest::GuestNetwork;

/// Source of the counting plugin.
const PLUGIN: &str = include_str!("../../icount/insn.c");

/// Kernel modules for virtio-net, classic traffic control, and kernel TLS with its ciphers, in load order.
const MODULES: [&str; 15] = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "net/sched/sch_ingress",
    "net/sched/cls_bpf",
    "lib/crypto/gf128mul",
    "crypto/cryptd",
    "crypto/crypto_simd",
    "arch/x86/crypto/aesni-intel",
    "lib/crypto/libchacha",
    "arch/x86/crypto/chacha-x86_64",
    "lib/crypto/libpoly1305",
    "arch/x86/crypto/poly1305-x86_64",
    "crypto/chacha20poly1305",
    "net/tls/tls",
];

/// Kernel module for disks. It is loaded after boot or resume, because it reads the disk's size when it is loaded.
const DISK_MODULE: &str = "drivers/block/virtio_blk";

/// A kernel that is ready to boot.
#[derive(Debug)]
pub struct GuestKernel {
    /// The folder with `vmlinuz`, `busybox` and `modules/`.
    folder: PathBuf,
    /// See [`GuestFiles::base`].
    base: Arc<[u8]>,
}

/// A file or folder of the host that is copied into the guest.
#[derive(Clone, Debug)]
pub struct CopiedPath {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the guest.
    pub path: String,
}

/// The part of a Linux guest in which guests differ.
#[derive(Clone, Debug, Default)]
pub struct GuestContent {
    /// Files that are copied into the guest.
    pub copied: Vec<CopiedPath>,
    /// Generated files: path and content.
    pub generated: Vec<(String, Vec<u8>)>,
    /// Mount point of the guest's disk, if it has one.
    pub disk: Option<&'static str>,
    /// Shell command that is executed when the network is up.
    pub command: String,
}

/// The cache folder for files that take long to create.
///
/// # Errors
/// The folder can't be determined or created; the text gives the reason.
pub fn cache() -> Result<PathBuf, String> {
    // An empty value counts as unset (XDG Base Directory Specification).
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))
        .ok_or("neither HOME nor XDG_CACHE_HOME is set: no place for the guest's kernel")?;
    let folder = base.join("lowroad-lab").join("icount");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Returns the plugin; builds it if its source has changed.
///
/// # Errors
/// The compiler failed; the text is its output.
pub fn plugin() -> Result<PathBuf, String> {
    let name = format!("insn-{:08x}", crc32fast::hash(PLUGIN.as_bytes()));
    build_once(&cache()?.join(format!("{name}.so")), |file| {
        let source = file.with_extension("c");
        fs::write(&source, PLUGIN).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut command = Command::new("gcc");
        command.args(["-shared", "-fPIC", "-O2", "-o"]);
        let built = run(command.arg(file).arg(&source));
        let _ = fs::remove_file(&source);
        built.map(drop)
    })
}

/// The files that threads of this process are creating.
static MAKING: (Mutex<Vec<PathBuf>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());

/// The right to create a file, exclusive within this process.
struct BuildLock<'p>(&'p Path);

impl<'p> BuildLock<'p> {
    /// Waits until no other thread creates the file.
    fn begin(path: &'p Path) -> BuildLock<'p> {
        let (builds, build_ended) = &MAKING;
        let guard = builds.lock().unwrap_or_else(PoisonError::into_inner);
        let is_being_built =
            |paths: &mut Vec<PathBuf>| paths.iter().any(|building| building == path);
        let guard = build_ended.wait_while(guard, is_being_built);
        guard
            .unwrap_or_else(PoisonError::into_inner)
            .push(path.to_owned());
        BuildLock(path)
    }
}

impl Drop for BuildLock<'_> {
    fn drop(&mut self) {
        let (builds, build_ended) = &MAKING;
        let mut guard = builds.lock().unwrap_or_else(PoisonError::into_inner);
        guard.retain(|building| building != self.0);
        build_ended.notify_all();
    }
}

/// Returns `path`; if it does not exist, `make` creates it under a temporary name, which is then renamed. So readers
/// never see an incomplete file, even if two processes create it at the same time.
pub(crate) fn build_once(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let _build_lock = BuildLock::begin(path);
    if !path.exists() {
        let new = path.with_extension(format!("new-{}", std::process::id()));
        // An earlier process with the same id may have left incomplete files.
        let _ = fs::remove_dir_all(&new);
        let result = make(&new).and_then(|()| {
            let renamed = fs::rename(&new, path);
            renamed.map_err(|error| format!("{}: {error}", path.display()))
        });
        if result.is_err() {
            let _ = fs::remove_dir_all(&new);
            let _ = fs::remove_file(&new);
        }
        // If another process was faster, the rename onto its folder fails, and that folder is used.
        if !path.exists() {
            result?;
        }
    }
    Ok(path.to_owned())
}

impl GuestKernel {
    /// Takes the kernel from the cache, or downloads Debian's packages.
    ///
    /// # Errors
    /// The kernel is not available; the text names a remedy.
    pub fn new() -> Result<GuestKernel, String> {
        // The cache name includes a hash of the module list, since an older cache has other modules.
        let modules: Vec<&str> = modules().collect();
        let modules_hash = crc32fast::hash(modules.join(" ").as_bytes());
        let folder = build_once(&cache()?.join(format!("guest-{modules_hash:08x}")), fetch)?;
        let base = build_base(&folder)?.into();
        Ok(GuestKernel { folder, base })
    }

    /// The path of the kernel image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The kernel's release.
    pub fn release(&self) -> String {
        fs::read_to_string(self.folder.join("release")).unwrap_or_default()
    }

    /// The files of a guest.
    ///
    /// # Errors
    /// A file to copy can't be read.
    pub fn system(
        &self,
        network: &GuestNetwork,
        content: &GuestContent,
    ) -> Result<GuestFiles, String> {
        Ok(GuestFiles {
            base: self.base.clone(),
            content: build_archive(network, content)?,
        })
    }
}

/// Builds the archive of the files that all guests have in common.
fn build_base(kernel: &Path) -> Result<Vec<u8>, String> {
    let mut archive = CpioArchive::default();
    // nginx opens the error log in its compiled-in folder before it reads the configuration.
    for folder in [
        "proc",
        "sys",
        "dev",
        "tmp",
        "run",
        "var/log/nginx",
        "var/lib/nginx",
    ] {
        archive.folder(folder);
    }
    for (path, text) in ETC {
        archive.file(path, text.as_bytes());
    }
    archive.copy(&kernel.join("busybox"), "bin/busybox")?;
    archive.copy(&kernel.join("modules"), "modules")?;
    // glibc loads the unwinder at run time when a thread is cancelled, so `ldd` does not list it.
    let unwinder = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
    if let Ok(library) = fs::read(unwinder) {
        archive.program(unwinder, &library);
    }
    archive.program("init", init().as_bytes());
    Ok(archive.finish())
}

/// Builds the archive of the files of one guest.
fn build_archive(network: &GuestNetwork, content: &GuestContent) -> Result<Vec<u8>, String> {
    let mut archive = CpioArchive::default();
    for (path, bytes) in &content.generated {
        archive.file(path, bytes);
    }
    for CopiedPath { source, path } in &content.copied {
        archive.copy(source, path)?;
    }
    let command = network.fill_in(&content.command);
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_unix_s = now_unix_s.map_or(0, |duration| duration.as_secs());
    let start = start(network, content.disk, &command, now_unix_s);
    archive.file("start", start.as_bytes());
    Ok(archive.finish())
}

/// The users that servers switch to, and the names of localhost.
const ETC: [(&str, &str); 4] = [
    ("etc/hosts", "127.0.0.1 localhost\n"),
    (
        "etc/passwd",
        "root:x:0:0:root:/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    ),
    ("etc/group", "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\n",
    ),
];

/// Text that the guest prints on the console when its shell accepts commands.
pub const BOOTED: &str = "ICOUNT-BOOTED";

/// Text that the guest prints on the console when the server has been started.
pub const READY: &str = "ICOUNT-READY";

/// The first command after boot or resume: unpacks the content and starts the server.
pub fn start_script() -> String {
    let module = module_name(DISK_MODULE);
    format!("insmod /modules/{module}.ko; cpio -idu < /dev/vda 2> /tmp/unpacked; . /start")
}

/// The init script, which executes commands from the console.
fn init() -> String {
    let modules = MODULES.map(module_name);
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         mkdir -p /dev/pts /dev/shm /sys/fs/bpf /sys/fs/cgroup; mount -t tmpfs tmp /tmp\n\
         mount -t tmpfs shm /dev/shm; mount -t bpf bpf /sys/fs/bpf; mount -t cgroup2 cg /sys/fs/cgroup\n\
         for m in {modules}; do insmod /modules/$m.ko; done\n\
         sysctl -q -w net.ipv6.conf.all.disable_ipv6=1\n\
         sysctl -q -w net.core.somaxconn=4096 net.ipv4.tcp_syncookies=1 net.core.bpf_jit_kallsyms=1\n\
         ip link set lo up\n\
         ulimit -n 65536; ulimit -l unlimited\n\
         echo {BOOTED}\n\
         while read -r line; do eval \"$line\"; done\n\
         exec sleep 1000000\n",
        modules = modules.join(" "),
    )
}

/// The log of all programs in a guest.
const LOG: &str = "/tmp/server.log";

/// Shell code that waits until the last background program has printed `text`. If that program ends, the guest prints
/// the log and powers off, because a server without the program would be another configuration.
pub fn wait_until_printed(text: &str) -> String {
    format!(
        "until grep -q '{text}' {LOG}; do \
         kill -0 $! || {{ cat {LOG} > /dev/console; poweroff -f; }}; usleep 10000; done"
    )
}

/// The start script of one guest. It sets the clock, since the clock of a resumed guest is that of the saved state. The
/// server's output goes to a file, because a slow console would add instructions.
fn start(network: &GuestNetwork, disk: Option<&str>, command: &str, now_unix_s: u64) -> String {
    // drop_caches frees the pages of the archive, which is already unpacked.
    format!(
        "date -s @{now_unix_s} >/dev/null; echo 1 >/proc/sys/vm/drop_caches\n\
         {disk}\
         ip addr add {guest}/{prefix} dev eth0; ip link set eth0 up\n\
         ({command}\n) >{LOG} 2>&1\n\
         echo {READY}\n",
        disk = disk.map_or_else(String::new, mount_command),
        guest = network.guest,
        prefix = network.prefix,
    )
}

/// Shell code that mounts the second disk; the first one has the content.
fn mount_command(path: &str) -> String {
    format!("mkdir -p {path}; mount -t ext4 -o ro,noatime /dev/vdb {path}\n")
}

/// The modules of the kernel's package that are used.
fn modules() -> impl Iterator<Item = &'static str> {
    MODULES.into_iter().chain([DISK_MODULE])
}

fn module_name(module: &str) -> &str {
    module.rsplit('/').next().expect("a name")
}

/// Downloads and unpacks the packages, and stores the needed files in `folder`.
fn fetch(folder: &Path) -> Result<(), String> {
    let pattern = r"^linux-image-6\.12\.[0-9]+\+deb12-cloud-amd64$";
    let listed = run(Command::new("apt-cache").args(["search", "--names-only", pattern]))?;
    let package = newest(&listed).ok_or(
        "apt finds no linux-image-6.12...-cloud-amd64: run `apt-get update`; the guest's kernel \
         is one of Debian 12 (bookworm), so its security archive must be among apt's sources",
    )?;
    let unpacked = folder.join("unpacked");
    for package_name in [package, "busybox-static"] {
        create(&unpacked)?;
        // apt-get runs without its sandbox: the user of the sandbox may not write to this folder.
        let download = [
            "download",
            "-qq",
            "-o",
            "APT::Sandbox::User=root",
            package_name,
        ];
        run(Command::new("apt-get").args(download).current_dir(folder))?;
        run(Command::new("dpkg")
            .arg("-x")
            .arg(package_file(folder, package_name)?)
            .arg(&unpacked))?;
    }
    store_modules(
        folder,
        &unpacked,
        package.trim_start_matches("linux-image-"),
    )?;
    let tidy = |error| format!("{}: {error}", folder.display());
    fs::remove_dir_all(&unpacked).map_err(tidy)?;
    for package_name in [package, "busybox-static"] {
        fs::remove_file(package_file(folder, package_name)?).map_err(tidy)?;
    }
    Ok(())
}

fn store_modules(folder: &Path, unpacked: &Path, release: &str) -> Result<(), String> {
    let busybox = folder.join("busybox");
    copy(&unpacked.join("bin/busybox"), &busybox)?;
    copy(
        &unpacked.join(format!("boot/vmlinuz-{release}")),
        &folder.join("vmlinuz"),
    )?;
    create(&folder.join("modules"))?;
    for module in modules() {
        // The module is decompressed here once, not at each boot.
        let name = module_name(module);
        let packed = format!("lib/modules/{release}/kernel/{module}.ko.xz");
        let output = Command::new(&busybox)
            .args(["xz", "-dc"])
            .arg(unpacked.join(packed))
            .output();
        let output = output.map_err(|error| format!("busybox: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "the package of kernel {release} has no usable module {module}"
            ));
        }
        let destination = folder.join(format!("modules/{name}.ko"));
        fs::write(&destination, output.stdout)
            .map_err(|error| format!("{}: {error}", destination.display()))?;
    }
    let destination = folder.join("release");
    fs::write(&destination, release).map_err(|error| format!("{}: {error}", destination.display()))
}

fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn copy(from: &Path, destination: &Path) -> Result<(), String> {
    let copied = fs::copy(from, destination);
    copied
        .map(drop)
        .map_err(|error| format!("{} to {}: {error}", from.display(), destination.display()))
}

fn package_file(folder: &Path, package: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // apt names a file NAME_VERSION_ARCHITECTURE.deb; without the underscore, a package with a name that begins with
    // this one would match too.
    let prefix = format!("{package}_");
    entries
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .ok_or_else(|| format!("apt-get downloaded no {package}"))
}

/// The package with the highest version among lines of the form `NAME - description`.
fn newest(listed: &str) -> Option<&str> {
    let version = |name: &&str| -> u64 {
        let digits = name.trim_start_matches("linux-image-6.12.");
        let digits = digits.split('+').next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    };
    let names = listed.lines().filter_map(|line| line.split(' ').next());
    names.max_by_key(version)
}

/// Runs a command and returns its output.
///
/// # Errors
/// The command failed; the text is its error output.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{name} failed ({}): {}",
            output.status,
            stderr.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_compared_as_numbers() {
        let listed = "linux-image-6.12.9+deb12-cloud-amd64 - Linux\n\
                      linux-image-6.12.117+deb12-cloud-amd64 - Linux\n\
                      linux-image-6.12.41+deb12-cloud-amd64 - Linux\n";
        assert_eq!(
            newest(listed),
            Some("linux-image-6.12.117+deb12-cloud-amd64")
        );
        assert_eq!(newest(""), None);
    }

    #[test]
    fn start_script_fills_in_addresses_and_tolerates_comments() {
        let network = GuestNetwork::new();
        let command = network.fill_in("serve {guest} & # a comment");
        let text = start(&network, None, &command, 7);
        assert!(text.contains(&format!("(serve {} & # a comment\n)", network.guest)));
        assert!(!text.contains("vdb"));
        assert!(init().contains("for m in failover net_failover virtio_net"));
    }

    #[test]
    fn disk_is_mounted_before_the_server_starts() {
        let text = start(&GuestNetwork::new(), Some("/srv"), "serve", 7);
        let mounted = text.find("/dev/vdb /srv\n").expect("a mount");
        assert!(mounted < text.find("(serve\n)").expect("a command"));
    }

    #[test]
    fn command_failure_includes_its_stderr() {
        let why = run(Command::new("sh").args(["-c", "echo no luck >&2; exit 3"]));
        assert!(why.expect_err("a failure").contains("no luck"));
    }
}
