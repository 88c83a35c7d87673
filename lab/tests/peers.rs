//! Peers over real sockets: each starts, serves a file byte for byte, and leaves neither files nor processes behind,
//! whether it is dropped or the lab is killed. Peers that are not installed are skipped.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lowroad_lab::peers::{self, PeerFailure, PeerOptions, PeerPlace, RunningPeer};
use lowroad_lab::workload::files;
use lowroad_lab::workload::specweb99::{PostLog, fetch_target};
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, skip, wait_until};

const LAB: &str = env!("CARGO_BIN_EXE_lowroad-lab");

/// A page, and a file larger than any socket buffer.
fn site() -> (TempFolder, Vec<u8>) {
    let folder = TempFolder::new();
    folder.file("page.html", "a page\n");
    let big: Vec<u8> = (0..3_000_000_u32)
        .map(|at| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    folder.file("sub/big.bin", &big);
    (folder, big)
}

fn options(folder: &TempFolder, settings: &[(&str, &str)]) -> PeerOptions {
    let settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    PeerOptions {
        root: folder.path().to_owned(),
        workers: 1,
        settings: settings.collect::<BTreeMap<_, _>>(),
        ..PeerOptions::default()
    }
}

/// Starts a peer; if it is not available, reports a skip.
fn start(test: &str, name: &str, options: &PeerOptions) -> Option<RunningPeer> {
    match peers::start(name, options) {
        Ok(running) => Some(running),
        Err(PeerFailure::NotInstalled(text)) => {
            skip(&format!("{test} ({name})"), &text);
            None
        }
        Err(failure) => panic!("{name}: {failure}"),
    }
}

fn get(address: SocketAddr, path: &str) -> ClientResponse {
    let mut client = TestClient::connect(address);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
    ));
    client.response()
}

/// The files in the temporary folder that belong to the lab with this process id.
fn left_in_temp(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("lowroad-peer-{pid}-");
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("a folder");
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        })
        .collect()
}

/// The processes with this text in their command line or working directory.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("a folder").flatten();
    let described = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.parse::<u32>().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let folder = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some(format!("{name} {line} {}", folder.display()))
    });
    described.filter(|line| line.contains(text)).collect()
}

fn assert_serves_and_stops(test: &str, name: &str, settings: &[(&str, &str)]) {
    let (folder, big) = site();
    let Some(running) = start(test, name, &options(&folder, settings)) else {
        return;
    };
    let address = running.address;
    assert!(!running.version.is_empty(), "{name} has a version");
    assert!(
        running.configuration.contains(&address.port().to_string()),
        "{}",
        running.configuration
    );
    for _ in 0..3 {
        let page = get(address, "/page.html");
        assert_eq!(
            (page.status, page.text()),
            (200, "a page\n".to_owned()),
            "{name}"
        );
        assert!(
            whole(address, "/sub/big.bin") == big,
            "{name}: the big file differs"
        );
    }
    let own = own_folder(&running);
    drop(running);
    assert!(TcpStream::connect(address).is_err(), "{name} still answers");
    if let Some(own) = own {
        assert!(!own.exists(), "{name} left {}", own.display());
        let left = processes_with(&own.display().to_string());
        assert!(left.is_empty(), "{name} left {left:?}");
    }
}

/// Gets a file. Some responses are chunked or end with the connection; `get` supports all framings.
fn whole(address: SocketAddr, path: &str) -> Vec<u8> {
    let response = get(address, path);
    assert_eq!(response.status, 200);
    response.body
}

/// The folder of this peer, if its configuration names it.
fn own_folder(running: &RunningPeer) -> Option<PathBuf> {
    let at = running
        .configuration
        .find(&format!("lowroad-peer-{}-", std::process::id()))?;
    let name = running.configuration[at..].split(['/', '"', ' ']).next()?;
    Some(std::env::temp_dir().join(name))
}

#[test]
fn howl_serves_and_stops() {
    assert_serves_and_stops("howl_serves_and_stops", "howl", &[]);
    assert_serves_and_stops("howl_serves_and_stops", "howl", &[("keep_alive", "on")]);
}

#[test]
fn howl_keeps_connections_only_with_keep_alive() {
    let (folder, _) = site();
    let running = peers::start("howl", &options(&folder, &[("keep_alive", "on")])).expect("howl");
    let mut client = TestClient::connect(running.address);
    client.send("GET /page.html HTTP/1.1\r\n\r\n".repeat(3));
    for _ in 0..3 {
        assert_eq!(client.response().text(), "a page\n");
    }
    drop(running);
    let running = peers::start("howl", &options(&folder, &[])).expect("howl");
    let mut client = TestClient::connect(running.address);
    assert_eq!(client.get("/page.html", "").status, 200);
    assert!(client.wait_for_close());
}

#[test]
fn lowroad_serves_and_stops() {
    assert_serves_and_stops("lowroad_serves_and_stops", "lowroad", &[]);
}

#[test]
fn file_servers_serve_and_stop() {
    let test = "file_servers_serve_and_stop";
    for name in ["nginx", "apache-event", "lighttpd"] {
        assert_serves_and_stops(test, name, &[]);
        assert_serves_and_stops(test, name, &[("sendfile", "off")]);
    }
    assert_serves_and_stops(test, "apache-prefork", &[("processes", "8")]);
    assert_serves_and_stops(test, "h2o", &[]);
    assert_serves_and_stops(test, "caddy", &[]);
}

const CACHES: [&str; 6] = [
    "varnish",
    "haproxy",
    "squid",
    "trafficserver",
    "nginx-cache",
    "lowroad-accelerate",
];

#[test]
fn caches_serve_and_stop() {
    for name in CACHES {
        assert_serves_and_stops("caches_serve_and_stop", name, &[]);
    }
}

/// A cached file is served while the origin is stopped.
#[test]
fn caches_serve_cached_file_without_their_origin() {
    for name in CACHES {
        let (folder, big) = site();
        let options = options(&folder, &[]);
        let Some(running) = start(
            "caches_serve_cached_file_without_their_origin",
            name,
            &options,
        ) else {
            continue;
        };
        let address = running.address;
        assert_eq!(get(address, "/missing.html").status, 404, "{name}");
        for _ in 0..3 {
            assert_eq!(get(address, "/page.html").text(), "a page\n", "{name}");
            assert!(whole(address, "/sub/big.bin") == big, "{name}: big file");
        }
        let own = own_folder(&running).expect("a folder");
        let origin = own.join("nginx.conf").display().to_string();
        signal_processes_with(&origin, "STOP");

        let page = get(address, "/page.html");
        assert_eq!(page.text(), "a page\n", "{name}");
        let modified = page.field("last-modified").expect("a time");
        let mut client = TestClient::connect(address);
        client.send(format!(
            "GET /page.html HTTP/1.1\r\nHost: lab\r\nIf-Modified-Since: {modified}\r\n\r\n"
        ));
        let page = client.response();
        assert_eq!(page.status, 304, "{name}: {}", page.head);
        client.send("HEAD /page.html HTTP/1.1\r\nHost: lab\r\n\r\n");
        let page = client.response_to_head();
        let len = page.field("content-length");
        assert_eq!(
            (page.status, len),
            (200, Some("7")),
            "{name}: {}",
            page.head
        );
        assert!(whole(address, "/sub/big.bin") == big, "{name}: big file");
        // A stopped process would not handle the signal to end.
        signal_processes_with(&origin, "CONT");
    }
}

/// Sends a signal to the processes with this text in their command line, and to their children.
fn signal_processes_with(text: &str, signal: &str) {
    let found = processes_with(text);
    assert!(!found.is_empty(), "nobody has {text}");
    for line in found {
        let pid = line.split(' ').next().expect("a number");
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(children).expect("children");
        let all = children.split_ascii_whitespace().chain([pid]);
        let sent = Command::new("kill").args(["-s", signal]).args(all).status();
        assert!(sent.expect("kill").success());
    }
}

#[test]
fn php_scripts_are_executed() {
    let folder = TempFolder::new();
    let script = folder.file(
        "programs/sum.php",
        "<?php $it = 'sum ' . (1 + 1) . ' ' . $_SERVER['QUERY_STRING'] . ' ' . $_SERVER['LAB_DB'] . ' ' . \
         file_get_contents($_SERVER['DOCUMENT_ROOT'] . '/page.txt'); \
         header('Content-Length: ' . strlen($it)); echo $it;"

    );
    folder.file("page.txt", "of the site");
    let programs = script.parent().expect("a folder").display().to_string();
    for (name, processes) in [
        ("nginx-php", "php_children"),
        ("apache-php", "php_children"),
        ("apache-mod-php", "processes"),
    ] {
        let settings = [
            ("php_root", programs.as_str()),
            ("db", "/somewhere.sock"),
            (processes, "2"),
        ];
        let options = options(&folder, &settings);
        let Some(running) = start("php_scripts_are_executed", name, &options) else {
            continue;
        };
        // The programs are in a separate folder and read the site's files.
        let page = get(running.address, "/sum.php?/a/b");
        assert_eq!(
            page.text(),
            "sum 2 /a/b /somewhere.sock of the site",
            "{name}: {}",
            page.head
        );
        assert_eq!(get(running.address, "/page.txt").text(), "of the site");
    }
}

#[test]
fn nginx_serves_the_dynamic_set_by_fastcgi() {
    let test = "nginx_serves_the_dynamic_set_by_fastcgi";
    let folder = TempFolder::new();
    let settings = [("dirs".to_owned(), "1".to_owned())].into();
    files::make("specweb99", &settings, folder.path(), &mut |_| ()).expect("a file set");
    let fronts = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fronts");
    if let Err(why) = peers::fronts::build(&fronts) {
        return skip(test, &why);
    }
    let text = |path: &Path| path.display().to_string();
    let data = folder.path().join("specweb99-data");
    let settings = [
        ("fronts", text(&fronts)),
        ("specweb99_data", text(&data)),
        ("processes", "3".to_owned()),
    ];
    let settings = settings.each_ref().map(|(name, value)| (*name, &**value));
    let options = PeerOptions {
        root: folder.path().join("site"),
        ..options(&folder, &settings)
    };
    let Some(running) = start(test, "nginx-fastcgi", &options) else {
        return;
    };
    let page = get(
        running.address,
        "/specweb99.php?/file_set/dir00000/class1_3",
    );
    let file = std::fs::read_to_string(options.root.join("file_set/dir00000/class1_3"));
    let file = format!("<pre>\n{}\n</pre>", file.expect("a file of the set"));
    assert!(page.text().contains(&file), "{}", page.head);
    let log = get(running.address, &fetch_target("/specweb99.php"));
    assert_eq!(
        PostLog::parse(&log.body).map(|log| log.records()),
        Ok(0),
        "{}",
        log.head
    );
    drop(running);
    let socket = text(&fronts.join("specweb99-fastcgi"));
    assert_eq!(processes_with(&socket), Vec::<String>::new());
}

/// Every server must generate the same page of paper 003.
#[test]
fn database_page_is_equal_from_all_servers() {
    let test = "database_page_is_equal_from_all_servers";
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let folder = TempFolder::new();
    for name in ["page.lrp", "php/page.php", "php/schema.sql"] {
        let text = std::fs::read(programs.join(name)).expect("a file of ours");
        let name = name.rsplit('/').next().unwrap_or_default();
        folder.file(name, text);
    }
    let text = |path: &Path| path.display().to_string();
    let schema = text(&folder.path().join("schema.sql"));
    let database = options(&folder, &[("schema", &schema)]);
    let Some(database) = start(test, "mariadb", &database) else {
        return;
    };
    let address = database.address.to_string();
    let socket = database.socket.as_deref().map(text).expect("a socket");
    let of = |name: &str, db: &str| {
        let running = start(test, name, &options(&folder, &[("db", db)]))?;
        let sets = ["small", "medium", "large"];
        let pages = sets.map(|set| get(running.address, &format!("/page.php?set={set}")));
        Some(pages.map(|page| (page.status, page.text())))
    };
    let Some(php) = of("nginx-php", &address) else {
        return;
    };
    assert_eq!(
        php.each_ref().map(|(_, text)| text.len()),
        [211, 10_217, 19_248]
    );
    for db in [&address, &socket] {
        let own = of("lowroad-pages", db);
        assert!(own.is_none_or(|own| own == php), "by {db}");
    }
}

#[test]
fn database_is_filled_and_removed() {
    let folder = TempFolder::new();
    let schema = folder.file("schema.sql", "CREATE DATABASE lab_test;\n");
    let schema = schema.display().to_string();
    let options = options(&folder, &[("schema", &schema)]);
    let Some(running) = start("database_is_filled_and_removed", "mariadb", &options) else {
        return;
    };
    let socket = running.socket.clone().expect("a socket");
    let databases = Command::new("mariadb")
        .args([
            "--no-defaults",
            "-u",
            "root",
            "-e",
            "SHOW DATABASES",
            "--socket",
        ])
        .arg(&socket)
        .output()
        .expect("the client");
    let text = String::from_utf8_lossy(&databases.stdout).into_owned();
    assert!(text.contains("lab_test"), "{text} {databases:?}");
    drop(running);
    assert!(!socket.exists());
}

#[test]
fn network_namespace_is_created_and_removed() {
    let test = "network_namespace_is_created_and_removed";
    let (folder, big) = site();
    let options = PeerOptions {
        place: PeerPlace::Namespace,
        ..options(&folder, &[])
    };
    let running = match peers::start("howl", &options) {
        Ok(running) => running,
        Err(failure) => return skip(test, &failure.to_string()),
    };
    assert!(running.address.ip().to_string().starts_with("10.77."));
    assert!(whole(running.address, "/sub/big.bin") == big);
    let octets = running.address.ip().to_string();
    let number = octets.split('.').nth(2).expect("four numbers").to_owned();
    drop(running);
    assert!(!Path::new(&format!("/sys/class/net/lab{number}h")).exists());
}

#[test]
fn unknown_peers_and_settings_are_rejected() {
    let (folder, _) = site();
    let text = |name: &str, settings: &[(&str, &str)]| {
        let failure = peers::start(name, &options(&folder, settings)).err();
        failure.expect("a failure").to_string()
    };
    assert!(text("ngnix", &[]).contains("the peers are lowroad, lowroad-softirq, howl, nginx"));
    assert!(text("howl", &[("keepalive", "on")]).contains("keep_alive"));
    assert!(text("lowroad-uring", &[]).contains("does not exist yet"));
    assert!(text("lowroad", &[("binary", "/nowhere")]).contains("/nowhere"));
    let nowhere = PeerOptions {
        root: "/nowhere-at-all".into(),
        ..PeerOptions::default()
    };
    let failure = peers::start("howl", &nowhere).err().expect("no folder");
    assert!(failure.to_string().contains("/nowhere-at-all"), "{failure}");
}

#[test]
fn failed_start_reports_the_servers_output() {
    let (folder, _) = site();
    let failure = peers::start("lowroad", &options(&folder, &[("binary", "/bin/false")]));
    let text = failure.err().expect("it ends at once").to_string();
    assert!(text.contains("/bin/false ended with status 1"), "{text}");
}

/// Starts a lab with a peer; returns it with the line that has the address.
fn lab_with(name: &str, folder: &TempFolder, more: &[&str]) -> (Child, String) {
    let mut lab = Command::new(LAB)
        .args(["peers", "start", name, "--root"])
        .arg(folder.path())
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the lab");
    let lines = BufReader::new(lab.stdout.take().expect("piped")).lines();
    let url = lines
        .map_while(Result::ok)
        .find(|line| line.contains("Ctrl-C ends"));
    (lab, url.expect("it starts"))
}

fn killed_lab_leaves_nothing(name: &str, more: &[&str]) {
    let (folder, _) = site();
    let (mut lab, _) = lab_with(name, &folder, more);
    let pid = lab.id();
    let own = left_in_temp(pid);
    assert_eq!(own.len(), 1, "one folder");
    let mark = own[0].display().to_string();
    assert!(!processes_with(&mark).is_empty(), "{name} runs in {mark}");
    lab.kill().expect("killed");
    lab.wait().expect("a child of ours");
    wait_until("everything to be gone", || {
        let gone = left_in_temp(pid).is_empty() && processes_with(&mark).is_empty();
        (gone && namespaces(pid).is_empty()).then_some(())
    });
}

fn namespaces(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    let prefix = format!("lab-{pid}-");
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        })
        .collect()
}

#[test]
fn killed_lab_leaves_no_processes_or_files() {
    killed_lab_leaves_nothing("howl", &[]);
    for peer in peers::all() {
        let daemons = ["apache-event", "varnish", "squid", "nginx-php"];
        if !daemons.contains(&peer.name) {
            continue;
        }
        let (folder, _) = site();
        if start(
            "killed_lab_leaves_no_processes_or_files",
            peer.name,
            &options(&folder, &[]),
        )
        .is_some()
        {
            killed_lab_leaves_nothing(peer.name, &[]);
        }
    }
}

#[test]
fn killed_lab_leaves_no_network_namespace() {
    if !rustix::process::geteuid().is_root() {
        return skip("killed_lab_leaves_no_network_namespace", "needs root");
    }
    killed_lab_leaves_nothing("howl", &["--namespace"]);
}

/// Paper `002`: exactly four system calls. Requires a build without debug assertions; with them, the standard library
/// queries the flags of each descriptor before it closes the descriptor.
#[test]
fn howl_makes_four_system_calls_per_request() {
    const REQUESTS: u32 = 200;
    let test = "howl_makes_four_system_calls_per_request";
    let (folder, _) = site();
    let (table, port) = (folder.path().join("table"), folder.path().join("port"));
    let traced = Command::new("strace")
        .args(["-f", "-c", "-U", "name,calls", "-o"])
        .arg(&table)
        .args([LAB, "howl", "--listen", "127.0.0.1:0", "--port-file"])
        .arg(&port)
        .arg(folder.path())
        // Cargo sets a long list of library folders, and the loader would search all of them with system calls.
        .env_remove("LD_LIBRARY_PATH")
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut strace) = traced else {
        return skip(test, "strace is not installed");
    };
    let port = wait_until("howl's port", || {
        let ended = strace.try_wait().expect("a child of ours");
        assert!(ended.is_none(), "strace ended");
        std::fs::read_to_string(&port)
            .ok()?
            .trim()
            .parse::<u16>()
            .ok()
    });
    for _ in 0..REQUESTS {
        assert_eq!(get(([127, 0, 0, 1], port).into(), "/page.html").status, 200);
    }
    end_children(strace.id());
    strace.wait().expect("a child of ours");
    let table = std::fs::read_to_string(table).expect("what strace wrote");
    for line in table.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(Ok(calls))) = (words.next(), words.next().map(str::parse::<u32>))
        else {
            continue;
        };
        let is_one_of_four = ["accept4", "read", "write", "close"].contains(&name);
        let allowed = match name {
            _ if is_one_of_four => REQUESTS..REQUESTS + 40,
            "total" => 0..u32::MAX,
            "fcntl" if cfg!(debug_assertions) => 0..REQUESTS + 40,
            _ => 0..REQUESTS / 2,
        };
        assert!(allowed.contains(&calls), "{name} {calls} times:\n{table}");
    }
    assert!(table.contains("accept4"), "{table}");
}

/// Ends the children of a process by a signal that they can handle.
fn end_children(parent: u32) {
    let children = format!("/proc/{parent}/task/{parent}/children");
    for pid in std::fs::read_to_string(children)
        .expect("children")
        .split_ascii_whitespace()
    {
        let done = Command::new("kill").args(["-s", "TERM", pid]).status();
        assert!(done.expect("kill").success());
    }
}
