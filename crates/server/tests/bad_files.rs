//! Paths that lead to no readable file: links, devices, pipes, files that the server's user may not read, and names of
//! arbitrary bytes. No file outside of the document root is sent.
//!
//! docs/bad-input.md has the table for operators. See openat2(2), RFC 8615.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use lowroad_testkit::hostile::{GOOD, HostileSite};
use lowroad_testkit::{TempFolder, skip};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
const NOT_FOUND: &str = "No page was found at this address.";
const NOT_FOR_READING: &str = "Access is not permitted.";

/// Creates links within the document root, and links that leave it.
fn links(folder: &TempFolder) {
    let root = folder.path().join("site");
    folder.file("secret.txt", "secret\n");
    folder.file("site/sub/inner.txt", "inner\n");
    let link = |to: &str, name: &str| symlink(to, root.join(name)).expect("a link");
    link("good.txt", "inside.txt");
    link("sub", "folder");
    link("../site/good.txt", "out-and-in.txt");
    link("../secret.txt", "outside.txt");
    link("..", "up");
    link("/etc", "etc");
    link("/proc/self/root", "magic");
    link("loop", "loop");
    link("missing", "dangling");
    link("/dev/zero", "zero");
    let absolute = root.join("good.txt");
    symlink(absolute, root.join("absolute.txt")).expect("a link");
    symlink(
        folder.path().join("secret.txt"),
        root.join("sub/secret.txt"),
    )
    .expect("a link");
}

#[test]
fn only_links_within_the_root_are_followed() {
    let site = HostileSite::with(LOWROAD, "", links);
    site.accepts_targets(200, GOOD.1, &["/inside.txt"]);
    site.accepts_targets(200, "inner", &["/folder/inner.txt"]);
    site.accepts_targets(404, NOT_FOUND, &["/dangling"]);
    site.accepts_targets(
        403,
        NOT_FOR_READING,
        &[
            "/outside.txt",
            "/out-and-in.txt",
            "/absolute.txt",
            "/up/secret.txt",
            "/up/site/good.txt",
            "/up",
            "/etc/passwd",
            "/magic/etc/passwd",
            "/loop",
            "/sub/secret.txt",
            "/folder/secret.txt",
            "/zero",
        ],
    );
}

#[test]
fn follow_links_setting_applies() {
    let site = HostileSite::with(LOWROAD, "symlinks = \"none\"", links);
    let all = [
        "/inside.txt",
        "/folder/inner.txt",
        "/outside.txt",
        "/up/secret.txt",
        "/loop",
    ];
    site.accepts_targets(403, NOT_FOR_READING, &all);
    let site = HostileSite::with(LOWROAD, "symlinks = \"follow\"", links);
    site.accepts_targets(
        200,
        GOOD.1,
        &["/inside.txt", "/absolute.txt", "/out-and-in.txt"],
    );
    site.accepts_targets(200, "secret", &["/outside.txt", "/up/secret.txt"]);
    site.accepts_targets(403, NOT_FOR_READING, &["/zero", "/loop"]);
    site.refuses_targets(
        "the path contains a dot segment",
        &["/sub/../../secret.txt"],
    );
}

#[test]
fn devices_pipes_and_unreadable_files_are_not_opened() {
    let mut listener = None;
    let site = HostileSite::with(LOWROAD, "", |folder| {
        let root = folder.path().join("site");
        folder.file("site/sub/inner.txt", "inner\n");
        let fifo = root.join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("a FIFO");
        let fifo_index = root.join("queue/index.html");
        std::fs::create_dir(root.join("queue")).expect("a folder");
        mknodat(
            CWD,
            &fifo_index,
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .expect("a FIFO");
        listener = Some(UnixListener::bind(root.join("socket")).expect("a socket"));
        let locked = folder.file("site/locked.txt", "secret\n");
        folder.file("site/shut/inner.txt", "secret\n");
        for path in [locked, root.join("shut")] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).expect("a mode");
        }
        folder.file("site/.htpasswd", "secret\n");
        folder.file("site/.git/config", "secret\n");
        folder.file("site/sub/.env", "secret\n");
        folder.file("site/.well-known/security.txt", "contact\n");
    });
    let root = site.root();
    site.accepts_targets(
        403,
        NOT_FOR_READING,
        &[
            "/fifo",
            "/queue/",
            "/socket",
            "/locked.txt",
            "/shut/inner.txt",
        ],
    );
    site.accepts_targets(403, "no index page", &["/sub/", "/"]);
    site.accepts_targets(301, "has moved", &["/sub", "/queue"]);
    site.accepts_targets(
        404,
        NOT_FOUND,
        &[
            "/good.txt/",
            "/good.txt/x",
            "/fifo/x",
            "/.htpasswd",
            "/.git/config",
            "/sub/.env",
            "/.git/",
        ],
    );
    site.accepts_targets(200, "contact", &["/.well-known/security.txt"]);
    let device = rustix::fs::makedev(1, 5);
    match mknodat(
        CWD,
        root.join("zero"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        device,
    ) {
        Ok(()) => site.accepts_targets(403, NOT_FOR_READING, &["/zero"]),
        Err(error) => skip(
            "a device in the root",
            &format!("it can't be made here: {error}"),
        ),
    }
    std::fs::set_permissions(root.join("shut"), PermissionsExt::from_mode(0o700)).expect("a mode");
}

#[test]
fn file_names_of_arbitrary_bytes() {
    let long = "n".repeat(255);
    let site = HostileSite::with(LOWROAD, "", |folder| {
        folder.file(
            Path::new("site").join(OsStr::from_bytes(b"\xff\xfe.txt")),
            "bytes\n",
        );
        folder.file(format!("site/{long}"), "long\n");
        folder.file("site/a b\u{e4}?#%.txt", "odd\n");
        folder.file("site/new\nline.txt", "line\n");
        folder.file("site/back\\slash.txt", "secret\n");
    });
    site.accepts_targets(200, "bytes", &["/%ff%fe.txt", "/%FF%FE.txt"]);
    site.accepts_targets(200, "long", &[&format!("/{long}")]);
    site.accepts_targets(200, "odd", &["/a%20b%c3%a4%3f%23%25.txt"]);
    site.accepts_targets(200, "line", &["/new%0Aline.txt"]);
    site.accepts_targets(
        404,
        NOT_FOUND,
        &["/%ff", "/%ff%fe", &format!("/{long}n"), &"/nn".repeat(2000)],
    );
    site.refuses_targets(
        "the path contains a backslash or an encoded slash",
        &["/back%5cslash.txt", "/back\\slash.txt"],
    );
}
