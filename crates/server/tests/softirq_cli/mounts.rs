//! Pinned maps: never in a mount that other processes can't see, and removed with the level.

use crate::place::{HOST, PORT, PROGRAM, Place, can_run};

/// Runs a script in the server's network namespace with separate mounts.
fn with_mounts(place: &Place, options: &[&str], script: &str) -> Result<String, String> {
    let script = format!("set -e\n{script}");
    let arguments = [&["--mount"], options, &["sh", "-c", &script, "sh", PROGRAM]].concat();
    let said = place.server.run("unshare", &arguments);
    said.map_err(|error| error.to_string())
}

#[test]
fn private_mount_namespace_is_refused() {
    if !can_run("private_mount_namespace_is_refused") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.command_output(&["detach", &PORT.to_string()]);
    // `ip netns exec` mounts /sys like this.
    let sys = "umount -l /sys; mount -t sysfs sysfs /sys";
    for command in [
        "attach 8080",
        "status --softirq",
        "detach 8080",
        "explain http://x",
    ] {
        // Hides other servers of this machine, which could answer for the URL.
        let hide = match command.starts_with("explain") {
            true => "mount -t tmpfs tmpfs /run",
            false => ":",
        };
        let script = format!("{hide}; {sys}; exec \"$1\" {command} 2>&1");
        let script = format!("out=$( {script} ) && exit 1; echo \"$out\"");
        let said = with_mounts(&place, &[], &script);
        let said = said.unwrap_or_else(|error| panic!("{command}: {error}"));
        if command.starts_with("explain") {
            continue;
        }
        assert!(said.contains("its own mounts"), "{command}: {said}");
        assert!(said.contains("nsenter --net="), "{command}: {said}");
    }
    // Only the mount of the pins matters; other mounts may differ. The last level unmounts bpffs, unless another
    // process has mounted it; here another level remains.
    let _other = Place::new(&["--ttl", "60"]);
    let script = format!(
        "mount -t tmpfs tmpfs /mnt; \"$1\" attach 8080 -i eth0 --drain 1 >/dev/null & \
         until \"$1\" status --softirq >/dev/null 2>&1; do kill -0 $! || exit 1; sleep 0.05; done; \
         \"$1\" detach {PORT}; wait"
    );
    let said = with_mounts(&place, &[], &script);
    assert_eq!(said, Ok("detached\n".to_owned()), "{HOST}");
}

#[test]
fn detach_leaves_no_pins() {
    if !can_run("detach_leaves_no_pins") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.command_output(&["detach", &PORT.to_string()]);
    // With a separate PID namespace, processes outside of it are invisible.
    let options = ["--pid", "--fork", "--mount-proc"];
    let begin = "umount -l /sys/fs/bpf 2>/dev/null || true; mount -t tmpfs tmpfs /run";
    let attach = "\"$1\" attach 8080 -i eth0 --drain 1 >/dev/null & \
         until \"$1\" status --softirq >/dev/null 2>&1; do sleep 0.05; done";
    let look = "grep ' - bpf ' /proc/self/mountinfo || true; ls -A -I '*.debug' /run /sys/fs/bpf";
    let nothing = "/run:\n\n/sys/fs/bpf:\n";
    for (name, end) in [
        ("detach", "\"$1\" detach 8080 >/dev/null; wait"),
        (
            "dead",
            "kill -9 $!; wait $! || true; \"$1\" detach 8080 --drain 1 >/dev/null",
        ),
    ] {
        let script = format!("{begin}\n{attach}\n{end}\n{look}");
        let said = with_mounts(&place, &options, &script);
        assert_eq!(said, Ok(nothing.to_owned()), "{name}");
    }
    // Mounts of other processes remain.
    let theirs = "mount -t bpf bpf /sys/fs/bpf; rmdir /run/mount 2>/dev/null || true";
    let count = "grep -c ' - bpf ' /proc/self/mountinfo; ls -A -I '*.debug' /run /sys/fs/bpf";
    let script =
        format!("{begin}\n{theirs}\n{attach}\n\"$1\" detach 8080 >/dev/null\nwait\n{count}");
    let said = with_mounts(&place, &options, &script);
    assert_eq!(said, Ok(format!("1\n{nothing}")));
}
