//! The Debian package and the container image: their files, and that they work. Both are unpacked, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::{TempFolder, TestServer, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs a command that must succeed; returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn installed_debian_package_works() {
    if !["dpkg-deb", "dpkg-shlibdeps", "objcopy"]
        .into_iter()
        .all(has)
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

    if has("lintian") {
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
        "usr/share/doc/lowroad/docs/configuration/README.md",
        "usr/share/doc/lowroad/docs/design/softirq.md",
        "etc/logrotate.d/lowroad",
    ] {
        assert!(at(name).is_file(), "{name}");
    }
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

/// The strings of an array.
fn words(value: &serde_json::Value) -> Vec<String> {
    let list = value.as_array().expect("an array").iter();
    list.map(|word| word.as_str().expect("a string").to_owned())
        .collect()
}

/// Builds the container image of a stripped program quickly.
fn container_image(folder: &TempFolder, program: &Path, name: &str) -> PathBuf {
    let out = folder.path().join(name);
    let tool = Path::new(REPOSITORY).join("tools/oci_image.py");
    run(Command::new(tool)
        .env("COMPRESSION", "0")
        .args([program, &out]));
    out
}

/// Unpacks the layers of an image into `root`; returns the image's configuration.
fn unpack_image(archive: &Path, root: &Path) -> serde_json::Value {
    let parts = root.with_extension("parts");
    for path in [root, &parts] {
        fs::create_dir(path).expect("a folder");
    }
    run(Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&parts));
    let read = |name: &str| -> serde_json::Value {
        let text = fs::read(parts.join(name)).expect("a file");
        serde_json::from_slice(&text).expect("JSON")
    };
    let manifest = read("manifest.json").get(0).expect("an image").clone();
    for layer in manifest["Layers"].as_array().expect("layers") {
        let layer = parts.join(layer.as_str().expect("a name"));
        let digest = run(Command::new("sha256sum").arg(&layer));
        let named = layer.file_name().expect("a name").to_string_lossy();
        assert!(digest.starts_with(&*named), "{digest}");
        let mut tar = Command::new("tar");
        run(tar.args(["-xpzf"]).arg(&layer).arg("-C").arg(root));
    }
    read(manifest["Config"].as_str().expect("a name"))
}

#[test]
fn container_image_serves_as_another_user_with_a_read_only_root() {
    const TEST: &str = "container_image_serves_as_another_user_with_a_read_only_root";
    let namespaces = Command::new("unshare").args(["-mpf", "true"]).status();
    let can_unshare = namespaces.is_ok_and(|status| status.success());
    if !can_unshare || !has("python3") || !has("strip") {
        return skip(TEST, "it takes root, util-linux, python3 and binutils");
    }
    let folder = TempFolder::new();
    let program = folder.path().join("lowroad");
    run(Command::new("strip")
        .arg("-o")
        .args([&program, Path::new(PROGRAM)]));
    let archive = container_image(&folder, &program, "a.tar");
    let again = container_image(&folder, &program, "b.tar");
    run(Command::new("cmp").args([&archive, &again]));

    let root = folder.path().join("root");
    let config = unpack_image(&archive, &root);
    assert!(!root.join("bin").exists(), "there is no shell");
    // A configuration of the user's own, mounted over that of the image: the same at a free port.
    let own = fs::read_to_string(root.join("etc/lowroad/lowroad.toml")).expect("a configuration");
    let own = folder.file("own.toml", own.replace("*:8080", "127.0.0.1:0"));
    // As a container runtime does it: the root is read-only, and volumes belong to the user, who can get no privileges.
    let script = format!(
        "set -e; mount --bind {root} {root}; cd {root}; mount --bind {own} etc/lowroad/lowroad.toml; mkdir proc; \
         mount -t proc none proc; mount -o remount,bind,ro .; \
         for volume in {volumes}; do mount -t tmpfs -o uid=65532,gid=65532,mode=755 none .$volume; done; \
         exec setpriv --no-new-privs chroot --userspec={user} . {program}",
        root = root.display(),
        own = own.display(),
        volumes = config["config"]["Volumes"]
            .as_object()
            .expect("volumes")
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        user = config["config"]["User"].as_str().expect("a user"),
        program = [
            words(&config["config"]["Entrypoint"]),
            words(&config["config"]["Cmd"])
        ]
        .concat()
        .join(" "),
    );
    let mut command = Command::new("unshare");
    command.args(["--kill-child", "-mpf", "sh", "-c", &script]);
    let mut server = TestServer::spawn(command);
    assert!(server.get("/").text().contains("Lowroad serves this page"));

    let init = run(Command::new("pgrep").args(["-P", &server.pid().to_string()]));
    let health_check = |test: &[String]| {
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            init.trim(),
            "-m",
            "-p",
            "-r",
            "-S",
            "65532",
            "-G",
            "65532",
        ]);
        command.args(test).output().expect("nsenter")
    };
    let test = words(&config["config"]["Healthcheck"]["Test"])[1..].to_vec();
    let healthy = health_check(&test);
    assert!(healthy.status.success(), "{healthy:?}");
    let elsewhere = [&test[..3], &["/run/lowroad/absent".to_owned()]].concat();
    assert!(!health_check(&elsewhere).status.success());

    run(Command::new("kill").args(["-s", "TERM", init.trim()]));
    assert_eq!(server.wait_for_end().code(), Some(0));
}
