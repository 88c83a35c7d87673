//! Firefox loads a page with a hundred objects over TLS. It trusts the local authority, and all objects arrive over
//! HTTP/2.
//!
//! The test is skipped with a message if Firefox, or the program that adds an authority to its profile, is not
//! installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_testkit::{TempFolder, TestServer, skip};
use lowroad_tls::authority::LocalAuthority;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const FIREFOX: &str = "/usr/bin/firefox-esr";
const CERTUTIL: &str = "/usr/bin/certutil";
const DOT: &str = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><circle r='4' cx='4' cy='4'/></svg>";
/// Settings of a new profile that prevent connections to other servers.
const SETTINGS: &str = r#"user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
"#;

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", program]).args(arguments);
    command.output().expect("timeout(1)")
}

/// A profile that trusts this authority.
fn profile(folder: &TempFolder, authority: &Path) -> String {
    folder.file("profile/user.js", SETTINGS);
    let path = folder.path().join("profile").display().to_string();
    let (store, authority) = (format!("sql:{path}"), authority.display().to_string());
    let made = run(CERTUTIL, &["-N", "-d", &store, "--empty-password"]);
    assert!(made.status.success(), "{made:?}");
    let words = ["-A", "-d", &store, "-t", "C,,", "-n", "test", "-i"];
    let words = [&words[..], &[authority.as_str()]].concat();
    let trusted = run(CERTUTIL, &words);
    assert!(trusted.status.success(), "{trusted:?}");
    path
}

#[test]
fn firefox_loads_a_hundred_objects_over_http2() {
    for program in [FIREFOX, CERTUTIL] {
        if !Path::new(program).exists() {
            let why = format!("{program} is not installed");
            return skip("firefox gets a hundred objects over HTTP/2", &why);
        }
    }
    let folder = TempFolder::new();
    let paths: Vec<String> = (0..100).map(|number| format!("/{number}.svg")).collect();
    let images = paths.iter().map(|path| {
        folder.file(format!("site{path}"), DOT);
        format!("<img src='{path}'>")
    });
    let page = format!(
        "<!doctype html><title>t</title>{}",
        images.collect::<String>()
    );
    folder.file("site/index.html", page);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.expect("a clock").as_secs();
    let authority = LocalAuthority::open(&folder.path().join("ca"), "test", now_s);
    let authority = authority.expect("an authority");
    let (chain, key) = authority
        .sign_pem(&["localhost"], now_s)
        .expect("a certificate");
    folder.file("a.pem", chain);
    let key = folder.file("a.key", key);
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("a file of ours");
    let config = "[server]\nuser = \"root\"\nworkers = 1\n[log]\naccess = \"access\"\n[[site]]\nroot = \"site\"\n\
                  [site.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n";
    let mut server = TestServer::run(PROGRAM, &folder, config);
    let home = format!("https://localhost:{}/", server.address().port());
    let profile = profile(&folder, &folder.path().join("ca/authority.pem"));
    let picture = folder.path().join("page.png").display().to_string();
    let visited = run(
        "env",
        &[
            &format!("HOME={profile}"),
            FIREFOX,
            "--headless",
            "--no-remote",
            "--profile",
            &profile,
            "--screenshot",
            &picture,
            &home,
        ],
    );
    server.signal("TERM");
    server.wait_for_end();
    assert!(
        visited.status.success() && Path::new(&picture).exists(),
        "{visited:?}"
    );
    let log = fs::read_to_string(folder.path().join("access")).expect("a log");
    for path in &paths {
        assert!(
            log.contains(&format!("\"GET {path} HTTP/2.0\" 200 ")),
            "{path}: {log}"
        );
    }
}
