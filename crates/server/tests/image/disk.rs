//! The disk of an image boots by BIOS and by UEFI.

use std::path::Path;
use std::process::Command;

use lowroad_testkit::net::is_installed;
use lowroad_testkit::{TempFolder, TestClient, skip};

use crate::machine::{IP, can_run, free_port};
use crate::place::{RunningCommand, image, path};

const UEFI: &str = "/usr/share/ovmf/OVMF.fd";

fn boots(test: &str, firmware: &[&str]) {
    if !can_run(test) {
        return;
    }
    if !is_installed("grub-mkrescue") || !is_installed("xorriso") {
        skip(
            test,
            "there is no GRUB: install grub-pc-bin, grub-efi-amd64-bin, xorriso and mtools",
        );
        return;
    }
    let (site, out) = (TempFolder::new(), TempFolder::new());
    site.file("index.html", "from a disk");
    let dir = site.path().display().to_string();
    let (output, disk) = (path(&out, "site.img"), path(&out, "site.iso"));
    image(&["build", &dir, "-o", &output, "--disk", &disk, "--ip", IP]).expect("a disk");
    let port = free_port();
    let mut command = Command::new("qemu-system-x86_64");
    let fixed = "-M q35 -accel tcg -cpu max -m 256 -nodefaults -display none -serial stdio -no-reboot \
                 -device virtio-net-pci,netdev=net -device ide-hd,drive=disk";
    command.args(fixed.split_whitespace()).args(firmware).args([
        "-netdev",
        &format!("user,id=net,hostfwd=tcp:{port}-:80"),
        "-drive",
        &format!("id=disk,if=none,snapshot=on,format=raw,file={disk}"),
    ]);
    let running = RunningCommand::start(command);
    running.wait_for("http://10.0.2.15/");
    assert_eq!(TestClient::connect(port).get("/", "").text(), "from a disk");
}

#[test]
fn disk_boots_by_bios() {
    boots("disk_boots_by_bios", &[]);
}

#[test]
fn disk_boots_by_uefi() {
    let test = "disk_boots_by_uefi";
    match Path::new(UEFI).exists() {
        true => boots(test, &["-bios", UEFI]),
        false => skip(test, "there is no UEFI firmware: install ovmf"),
    }
}
