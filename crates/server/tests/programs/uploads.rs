//! Slow or long request bodies: the server buffers them in memory, then in files, and calls a program only when its
//! body is complete.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use lowroad_testkit::{TempFolder, TestClient, skip, wait_until};

use crate::host::{Host, PROGRAM};
use crate::talk::{self, End, ask, begin_post, noise};

/// Two concurrent calls of each program.
const ROUTES: &str = r#"
[[site.route]]
pattern = "/linked"
module = "linked"
concurrency = 2
[[site.route]]
pattern = "/echo"
module = "features"
concurrency = 2
[[site.route]]
pattern = "/separate"
module = "separate"
concurrency = 2
[[site.route]]
pattern = "/wasm"
module = "wasm"
concurrency = 2
[[site.route]]
pattern = "/cgi/**"
cgi = "DIR/cgi"
concurrency = 2
[[site.route]]
pattern = "*.lrp"
pages = "db"
concurrency = 2
[[site.route]]
pattern = "*.php"
fastcgi = "unix:DIR/fpm.sock"
"#;

const CGI: &str = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n";

/// More uploads than concurrent calls, or processes of php-fpm.
const SLOW: usize = 8;
/// The length of a body; it and its first part exceed the part that is buffered in memory.
const LEN: usize = 200_000;
const FIRST: usize = 100_000;

/// Uploads with a first part that has been sent, and is in a file.
fn slow_uploads(host: &Host, path: &str) -> Vec<(TestClient, Vec<u8>)> {
    let uploads = (0..SLOW).map(|number| {
        let (mut client, body) = (host.connect(), noise(LEN, number as u64));
        begin_post(&mut client, path, LEN, &body[..FIRST]);
        (client, body)
    });
    let uploads = uploads.collect();
    host.status().wait_for("spool_files", SLOW as u64);
    uploads
}

#[test]
fn slow_uploads_do_not_occupy_handlers() {
    let host = Host::with_routes(ROUTES, &[]);
    let echoing = ["/echo", "/cgi/say", "/say.php"];
    for path in ["/linked", "/separate", "/wasm", "/page.lrp"]
        .iter()
        .chain(&echoing)
    {
        if path.ends_with(".php") && !host.has_php() {
            skip("slow_uploads_do_not_occupy_handlers", "no php-fpm");
            continue;
        }
        let uploads = slow_uploads(&host, path);
        // More requests than free calls would exist if uploads occupied calls.
        for _ in 0..3 {
            let (got, _) = ask(host.address(), "GET", path, "");
            assert_eq!(got.status, 200, "{path}");
        }
        for (mut client, body) in uploads {
            client.send(&body[FIRST..]);
            let (got, _) = talk::answer(&mut client, "POST");
            // A form without its token is refused, but only after its body was read.
            let want = if *path == "/page.lrp" { 403 } else { 200 };
            assert_eq!(got.status, want, "{path}");
            if echoing.contains(path) {
                assert!(got.body.ends_with(&body), "{path}");
            }
        }
        host.status().wait_for("spool_files", 0);
        host.status().wait_for("spool_bytes", 0);
    }
}

#[test]
fn spooled_body_file_is_private_to_the_server() {
    let host = Host::with_routes(CGI, &[]);
    let mut uploads = slow_uploads(&host, "/cgi/say");
    let folder = host.path("temp");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
    let device = fs::metadata(&folder).expect("a folder").dev();
    let fds = fs::read_dir(format!("/proc/{}/fd", host.server.pid())).expect("it runs");
    // Spool files have no name, so other processes can not open them, and a crash leaves none.
    let nameless = fds.flatten().filter_map(|fd| {
        let leads_to = fs::read_link(fd.path()).ok()?;
        let meta = fs::metadata(fd.path()).ok()?;
        (leads_to.starts_with(&folder) && meta.nlink() == 0).then_some(meta)
    });
    let nameless: Vec<_> = nameless.collect();
    assert_eq!(nameless.len(), SLOW);
    for meta in nameless {
        assert_eq!(
            (meta.dev(), meta.permissions().mode() & 0o777),
            (device, 0o600)
        );
    }
    drop(uploads.pop());
    host.status().wait_for("spool_files", SLOW as u64 - 1);
}

#[test]
fn long_bodies_are_forwarded_with_content_length() {
    let host = Host::with_routes(ROUTES, &[]);
    let body = noise(5_000_000, 7);
    for path in ["/cgi/say", "/say.php", "/echo"] {
        if path.ends_with(".php") && !host.has_php() {
            continue;
        }
        let said = format!("POST {}|", body.len());
        let mut want = if path == "/echo" {
            Vec::new()
        } else {
            said.into_bytes()
        };
        want.extend_from_slice(&body);
        let mut client = host.connect();
        begin_post(&mut client, path, body.len(), &body);
        let (got, _) = talk::answer(&mut client, "POST");
        assert!(got.status == 200 && got.body == want, "{path}");
        // The same body chunked, so that its length is not known in advance.
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        for part in body.chunks(70_001) {
            client.send(format!("{:x}\r\n", part.len()));
            client.send(part);
            client.send("\r\n");
        }
        client.send("0\r\n\r\n");
        let (got, _) = talk::answer(&mut client, "POST");
        assert!(got.status == 200 && got.body == want, "{path} in chunks");
    }
    host.status().wait_for("spool_bytes", 0);
    assert!(host.status().value("spool_requests") >= 4);
}

#[test]
fn disconnect_during_upload_never_starts_the_program() {
    let host = Host::with_routes(CGI, &[("note", "echo x >>DIR/state/noted\nprintf '\\n'\n")]);
    drop(slow_uploads(&host, "/cgi/note"));
    host.status().wait_for("spool_files", 0);
    host.status().wait_for("spool_bytes", 0);
    // The program was never called.
    assert_eq!(host.state("noted"), "");
}

#[test]
fn upload_beyond_temp_total_max_gets_503() {
    let settings = "[buffering]\ntemp_path = \"DIR/temp\"\ntemp_total_max = \"256K\"\n";
    let host = Host::with_settings(settings, CGI, &[]);
    let mut waiting = host.connect();
    let body = noise(LEN, 1);
    begin_post(&mut waiting, "/cgi/say", LEN, &body[..FIRST]);
    host.status().wait_for("spool_files", 1);
    let mut client = host.connect();
    begin_post(&mut client, "/cgi/say", 1_000_000, &noise(1_000_000, 2));
    let (got, _) = talk::answer(&mut client, "POST");
    assert_eq!((got.status, got.field("retry-after")), (503, Some("1")));
    host.server.wait_for_error_line("temp_total_max");
    assert_eq!(host.status().value("spool_refused"), 1);
    // Earlier uploads continue, and so do requests that need no file.
    let (got, _) = talk::post(&mut host.connect(), "/cgi/say", "short");
    assert_eq!(got.text(), "POST 5|short");
    waiting.send(&body[FIRST..]);
    let (got, _) = talk::answer(&mut waiting, "POST");
    assert!(got.status == 200 && got.body.ends_with(&body));
    host.status().wait_for("spool_bytes", 0);
}

/// A file system with almost no space.
struct SmallDisk(TempFolder);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let disk = SmallDisk(TempFolder::new());
        // tmpfs reports ENOSPC at its size limit, like a full disk.
        let options = ["-t", "tmpfs", "-o", "size=192k,mode=777", "tmpfs"];
        let mounted = Command::new("mount")
            .args(options)
            .arg(disk.0.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(disk)
    }

    fn settings(&self) -> String {
        format!("[buffering]\ntemp_path = \"{}\"\n", self.0.path().display())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmount = |lazily: &[&str]| {
            let mut command = Command::new("umount");
            let done = command.args(lazily).arg(self.0.path()).output();
            done.is_ok_and(|output| output.status.success())
        };
        let _ = unmount(&[]) || unmount(&["-l"]);
    }
}

#[test]
fn full_disk_is_logged_without_losing_a_response() {
    let Some(disk) = SmallDisk::mount() else {
        return skip("full_disk_is_logged_without_losing_a_response", "no root");
    };
    let long = "printf 'Content-Type: text/plain\\n\\n'\nhead -c 20000000 /dev/zero\necho x >>DIR/state/sent\n";
    let host = Host::with_settings(&disk.settings(), CGI, &[("long", long)]);
    let mut client = host.connect();
    begin_post(&mut client, "/cgi/say", 1_000_000, &noise(1_000_000, 2));
    let (got, _) = talk::answer(&mut client, "POST");
    assert_eq!(got.status, 507);
    host.server
        .wait_for_error_line("507 at /cgi/say: can't use a file in ");
    let failed = host.status().value("spool_failed");
    assert!(failed > 0);
    // Without disk space, a response is sent at the client's pace.
    let mut reader = host.connect();
    reader.send("GET /cgi/long HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the response to need the disk", || {
        (host.status().value("spool_held_back") > 0).then_some(())
    });
    assert_eq!(host.state("sent"), "");
    let (got, end) = talk::answer(&mut reader, "GET");
    assert_eq!((got.body.len(), end), (20_000_000, End::Chunk));
    assert!(got.body.iter().all(|byte| *byte == 0));
}

#[test]
fn unusable_temp_path_is_reported_at_start() {
    let folder = TempFolder::new();
    let config = format!(
        "[buffering]\ntemp_path = \"/proc/self\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n",
        folder.path().display()
    );
    let config = folder.file("lowroad.toml", config);
    let run = Command::new(PROGRAM)
        .args([Path::new("run"), Path::new("-c"), &config])
        .output();
    let run = run.expect("it runs");
    assert!(!run.status.success());
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        said.contains("temp_path /proc/self: can't create a file there"),
        "{said}"
    );
}
