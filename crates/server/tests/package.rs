//! The Debian package: its files, and that they work. The package is unpacked, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::net::is_installed;
use lowroad_testkit::process::run;
use lowroad_testkit::{TempFolder, TestServer, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn installed_debian_package_works() {
    if !["dpkg-deb", "dpkg-shlibdeps", "objcopy"]
        .into_iter()
        .all(is_installed)
    {
        return skip(
            "installed_debian_package_works",
            "dpkg-dev or binutils is missing",
        );
    }
    let folder = TempFolder::new();
    let made = Command::new(Path::new(REPOSITORY).join("tools/deb.sh"))
        .env("BINARY", PROGRAM)
        .env("COMPRESSION", "none")
        .env("CARGO_TARGET_DIR", folder.path())
        .output();
    let made = made.expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let packages: Vec<PathBuf> = fs::read_dir(folder.path().join("deb"))
        .expect("packages")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(packages.len(), 2, "{packages:?}");
    let package = packages
        .iter()
        .find(|path| !path.to_string_lossy().contains("dbgsym"))
        .expect("the program's");
    let about = run(Command::new("dpkg-deb").arg("-f").arg(package));
    assert!(about.contains("Depends: libc6"), "{about}");

    if is_installed("lintian") {
        // The debug build is packed without compression, because that is faster.
        let quick = "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball";
        let mut lintian = Command::new("lintian");
        lintian.args([
            "--allow-root",
            "--fail-on",
            "error,warning",
            "--suppress-tags",
            quick,
        ]);
        run(lintian.arg(package));
    }
    let root = folder.path().join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root));
    let at = |name: &str| root.join(name);
    for name in [
        "lib/systemd/system/lowroad.service",
        "lib/systemd/system/lowroad.socket",
        "lib/systemd/system/lowroad-https.socket",
        "usr/lib/sysusers.d/lowroad.conf",
        "usr/share/man/man1/lowroad.1.gz",
        "usr/share/man/man1/lowroad-serve.1.gz",
        "usr/share/bash-completion/completions/lowroad",
        "usr/share/zsh/vendor-completions/_lowroad",
        "usr/share/fish/vendor_completions.d/lowroad.fish",
        "usr/share/man/man5/lowroad.toml.5.gz",
        "usr/share/doc/lowroad/docs/levels.svg",
        "usr/share/doc/lowroad/examples/lowroad-unprivileged.conf",
        "usr/share/doc/lowroad/docs/configuration/README.md",
        "usr/share/doc/lowroad/docs/design/softirq.md",
        "etc/logrotate.d/lowroad",
    ] {
        assert!(at(name).is_file(), "{name}");
    }
    let bill = fs::read_to_string(at("usr/share/doc/lowroad/lowroad.cdx.json")).expect("a bill");
    let bill: serde_json::Value = serde_json::from_str(&bill).expect("JSON");
    let components = bill["components"].as_array().expect("components");
    let names: Vec<&str> = components
        .iter()
        .filter_map(|component| component["name"].as_str())
        .collect();
    assert!(names.contains(&"rustls") && names.contains(&"lowroad-http"));
    // Cargo.lock has this driver of sqlx, but the program does not contain it.
    assert!(!names.contains(&"sqlx-mysql"));
    let size = |path: &Path| path.metadata().expect("a file").len();
    assert!(
        size(&at("usr/bin/lowroad")) < size(Path::new(PROGRAM)),
        "it is stripped"
    );

    // The installed configuration, with other paths.
    let config = fs::read_to_string(at("etc/lowroad/lowroad.toml")).expect("a configuration");
    let config = config
        .replace("/usr/share", &at("usr/share").display().to_string())
        .replace("/var/log/lowroad", &folder.path().display().to_string())
        .replace("*:80", "127.0.0.1:0")
        // Installing the package would create its user.
        .replace("\"lowroad\"", "\"nobody\"");
    // The package has an empty folder for further sites.
    assert!(at("etc/lowroad/sites").is_dir());
    fs::create_dir(folder.path().join("sites")).expect("a folder");
    let config = folder.file("installed.toml", config).display().to_string();
    run(Command::new(at("usr/bin/lowroad")).args(["check", "-c", &config]));
    let mut command = Command::new(at("usr/bin/lowroad"));
    command.args(["run", "-c", &config]);
    let server = TestServer::spawn(command);
    assert!(server.get("/").text().contains("Lowroad serves this page"));
}
