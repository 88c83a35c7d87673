//! `lowroad serve --softirq` and `lowroad run`: the level in front of the server itself, its log, and kills of its
//! processes.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use lowroad_softirq::layout::{REASONS, SETTING_DENY};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_testkit::net::{CLIENT, DEVICE, LinkMangling, NamespaceProgram, TestPath};
use lowroad_testkit::{ClientResponse, TempFolder, wait_until};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Signal, kill_process};

use crate::attached::{get, pin_folder, send_request, server_v4};
use crate::skipped;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A Lowroad server with a level in front of it, its files and its logs.
struct Own {
    // Dropped first, before the namespaces of `path`.
    server: NamespaceProgram,
    level: SoftirqLevel,
    path: TestPath,
    folder: TempFolder,
    place: PathBuf,
}

impl Own {
    fn start(format: &str) -> Own {
        Own::with(TempFolder::new(), format, "")
    }

    /// Starts a server with these additional tables.
    fn with(folder: TempFolder, format: &str, tables: &str) -> Own {
        let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
        // The server's user may create a new log here.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
        folder.file("root/page.txt", "old");
        let root = folder.path().display();
        let config = format!(
            "[server]\nsoftirq = \"{DEVICE}\"\nadmin = \"{root}/admin\"\n[log]\naccess = \"access\"\n\
             error = \"error\"\nformat = \"{format}\"\n[[site]]\nlisten = \"*:80\"\n\
             root = \"{root}/root\"\n{tables}"
        );
        let config = folder.file("lowroad.toml", config);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(config);
        // The server's own certificate authority is created inside the test's folder.
        command.env("XDG_DATA_HOME", folder.path().join("data"));
        command.stdout(Stdio::null());
        let mut server = path.server.spawn(command).expect("lowroad starts");
        let place = pin_folder(&path.server, 80);
        let level = wait_until("the level", || {
            let ended = server.child().try_wait().expect("a child of ours");
            assert_eq!(ended, None, "the server ended");
            let level = SoftirqLevel::open(&place).ok()?;
            // The first heartbeat shows that the daemon runs.
            (level.control().heartbeat_ns > 0).then_some(level)
        });
        Own {
            server,
            level,
            path,
            folder,
            place,
        }
    }

    fn ask(&self) -> ClientResponse {
        self.ask_for("/page.txt")
    }

    fn ask_for(&self, path: &str) -> ClientResponse {
        let client = &self.path.client;
        client.enter(|| send_request(server_v4(80), &get(path)))
    }

    fn hits(&self) -> u64 {
        self.count("answer_hit")
    }

    /// A counter of the level's programs.
    fn count(&self, reason: &str) -> u64 {
        let at = REASONS.iter().position(|(name, _)| *name == reason);
        self.level.counters().expect("counters")[at.expect("a reason's name")]
    }

    /// Runs a command of the admin service.
    fn command(&self, words: &[&str]) {
        let admin = self.folder.path().join("admin").display().to_string();
        let words = [words, &["--admin", &admin]].concat();
        let said = self.path.server.run(PROGRAM, &words);
        said.expect("the command is carried out");
    }

    /// Repeats a request until the level answers it. Returns the response and the number of requests.
    fn hit(&self) -> (ClientResponse, usize) {
        let (before, mut asked) = (self.hits(), 0);
        let response = wait_until("a hit", || {
            let response = self.ask();
            asked += 1;
            (self.hits() > before).then_some(response)
        });
        (response, asked)
    }

    fn daemon(&self) -> Pid {
        pid(self.level.control().pid)
    }

    /// The contents of a log file.
    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn wait_for_error(&self, text: &str) {
        wait_until(text, || self.log("error").contains(text).then_some(()));
    }

    fn status(&self) -> String {
        let admin = self.folder.path().join("admin").display().to_string();
        let said = self
            .path
            .server
            .run(PROGRAM, &["status", "--admin", &admin]);
        said.expect("the server is asked")
    }

    /// The metrics, in the text format of Prometheus.
    fn metrics(&self) -> String {
        let mut admin = UnixStream::connect(self.folder.path().join("admin")).expect("the socket");
        let request = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        admin.write_all(request).expect("sent");
        let mut metrics = String::new();
        admin.read_to_string(&mut metrics).expect("text");
        metrics
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(self.server.child()), signal).expect("it lives");
    }

    fn end(&mut self) {
        self.signal(Signal::TERM);
        let status = self.server.child().wait().expect("a child of ours");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log("error"));
        }
        // The pins must be removed, because the kernel does not remove them with the namespace.
        let _ = lowroad_softirq::programs::folder::remove(&self.place);
    }
}

/// The hits of the level for a site, in the text of metrics; 0 if the site has none.
fn hits_of_site(metrics: &str, site: &str) -> u64 {
    let start = format!("lowroad_softirq_hits_total{{site=\"{site}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
    value.map_or(0, |value| value.parse().expect("a whole number"))
}

fn pid(number: u32) -> Pid {
    let number = i32::try_from(number).expect("a process ID");
    Pid::from_raw(number).expect("not 0")
}

/// A field of /proc/PID/status.
fn status_of(process: Pid, name: &str) -> String {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let text = fs::read_to_string(path).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect("the field is there").trim().to_owned()
}

#[test]
fn own_level_answers_stored_responses() {
    if skipped("own_level_answers_stored_responses", &[]) {
        return;
    }
    let mut own = Own::start("combined");
    let (hit, _) = own.hit();
    assert_eq!((hit.status, hit.text()), (200, "old".into()));
    assert_eq!(hit.field("age"), None, "it is the origin's own answer");
    assert!(own.status().contains("softirq                attached\n"));

    own.folder.file("root/page.txt", "new");
    wait_until("the change", || (own.ask().text() == "new").then_some(()));
    let before = own.hits();
    wait_until("a hit of the new page", || {
        assert_eq!(own.ask().text(), "new");
        (own.hits() > before).then_some(())
    });

    own.end();
    assert!(!own.place.exists(), "the level has gone before the server");
}

/// Connects as the client until the level has dropped one more SYN.
fn wait_until_dropped(own: &Own) {
    let before = own.count("drop_denied");
    own.path.client.enter(|| {
        // The attempt stays in progress, because nothing refuses it.
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::NONBLOCK,
            None,
        );
        let socket = socket.expect("a socket");
        let result = connect(&socket, &server_v4(80));
        assert_eq!(result, Err(Errno::INPROGRESS));
        wait_until("a dropped SYN", || {
            (own.count("drop_denied") > before).then_some(())
        });
    });
}

#[test]
fn level_drops_clients_in_the_deny_list_of_the_server() {
    if skipped("level_drops_clients_in_the_deny_list_of_the_server", &[]) {
        return;
    }
    let mut own = Own::start("combined");
    own.hit();
    let client = CLIENT.0.to_string();
    own.command(&["deny", "add", "192.0.2.0/24", &client]);
    wait_until("the list", || {
        (own.level.control().settings & SETTING_DENY != 0).then_some(())
    });
    wait_until_dropped(&own);
    // A new daemon gets the list again.
    let daemon = own.daemon();
    kill_process(daemon, Signal::KILL).expect("it lives");
    wait_until("another daemon", || {
        let is_other = own.daemon() != daemon;
        (is_other && own.level.control().settings & SETTING_DENY != 0).then_some(())
    });
    wait_until_dropped(&own);
    own.command(&["deny", "remove", &client]);
    // The client sends a SYN again that was dropped before the removal.
    own.hit();
    own.end();
}

#[test]
fn stored_responses_are_published_without_a_connection() {
    if skipped("stored_responses_are_published_without_a_connection", &[]) {
        return;
    }
    let mut own = Own::start("json");
    let requests = |own: &Own| {
        let status = own.status();
        let line = status
            .lines()
            .find_map(|line| line.trim().strip_prefix("requests "));
        let count = line.and_then(|count| count.trim().parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{status}"))
    };
    let above = own.ask();
    let mut asked = 1;
    for text in ["old", "new"] {
        own.folder.file("root/page.txt", text);
        wait_until(text, || {
            asked += 1;
            (own.ask().text() == text).then_some(())
        });
        let (hit, more) = own.hit();
        asked += u64::try_from(more).expect("few");
        assert_eq!((hit.status, hit.text()), (200, text.into()));
        for field in [
            "content-type",
            "content-length",
            "accept-ranges",
            "vary",
            "cache-control",
        ] {
            assert_eq!(hit.field(field), above.field(field), "{field}");
        }
    }
    // The level also answers a redirect and an error.
    own.folder.file("root/folder/file.txt", "");
    for (path, status) in [("/folder", 301), ("/nothing", 404)] {
        let before = own.hits();
        let above = own.ask_for(path);
        asked += 1;
        let hit = wait_until(path, || {
            asked += 1;
            let response = own.ask_for(path);
            (own.hits() > before).then_some(response)
        });
        assert_eq!((hit.status, above.status), (status, status));
        assert_eq!(hit.field("location"), above.field("location"));
        assert_eq!(hit.text(), above.text());
    }
    // If the server responds slowly, one of the four published responses may be fetched once more.
    let by_daemon = requests(&own) - (asked - own.hits());
    assert!(by_daemon <= 1, "{by_daemon}");
    own.end();
    let log = own.log("access");
    let lines = log.matches("\"user_agent\":\"lowroad\"").count();
    assert_eq!(u64::try_from(lines), Ok(by_daemon), "{log}");
}

#[test]
fn redirects_are_answered_by_the_level() {
    if skipped("redirects_are_answered_by_the_level", &[]) {
        return;
    }
    let rule = "[[site.redirect]]\nfrom = \"/home\"\nto = \"/page.txt\"\n";
    let tls = "[site.tls]\nlisten = \"*:443\"\nlocal = true\nredirect = true\n";
    for (tables, path, location) in [
        (rule, "/home", "/page.txt"),
        (tls, "/page.txt?a=b", "https://test/page.txt?a=b"),
    ] {
        let mut own = Own::with(TempFolder::new(), "json", tables);
        let above = own.ask_for(path);
        assert_eq!(above.status, 301, "{}", above.text());
        let before = own.hits();
        let hit = wait_until(path, || {
            let response = own.ask_for(path);
            (own.hits() > before).then_some(response)
        });
        assert_eq!(hit.status, 301);
        assert_eq!(hit.field("location"), Some(location));
        assert_eq!(hit.field("location"), above.field("location"));
        assert_eq!(hit.text(), above.text());
        own.end();
    }
}

/// Two versions of an aliased folder; a link refers to the first one.
fn two_versions() -> TempFolder {
    let folder = TempFolder::new();
    folder.file("v1/a.txt", "old");
    folder.file("v2/a.txt", "new");
    symlink("v1", folder.path().join("app")).expect("a link");
    folder
}

#[test]
fn alias_is_answered_by_the_level_with_its_own_file() {
    if skipped("alias_is_answered_by_the_level_with_its_own_file", &[]) {
        return;
    }
    let folder = two_versions();
    // The file with the same name in the document root must not be sent.
    folder.file("root/static/a.txt", "the root's");
    let app = folder.path().join("app");
    let alias = format!(
        "[[site.alias]]\npath = \"/static\"\nfolder = \"{}\"\n",
        app.display()
    );
    let mut own = Own::with(folder, "json", &alias);
    let hit = |own: &Own, text: &str| {
        let before = own.hits();
        wait_until(text, || {
            assert_eq!(own.ask_for("/static/a.txt").text(), text);
            (own.hits() > before).then_some(())
        });
    };
    hit(&own, "old");
    let next = own.folder.path().join("next");
    // rename(2) replaces the link atomically, as deployments do.
    symlink("v2", &next).expect("a link");
    fs::rename(next, app).expect("renamed");
    wait_until("the change", || {
        (own.ask_for("/static/a.txt").text() == "new").then_some(())
    });
    hit(&own, "new");
    own.end();
}

#[test]
fn paths_with_rules_are_left_to_the_server() {
    if skipped("paths_with_rules_are_left_to_the_server", &[]) {
        return;
    }
    let folder = TempFolder::new();
    folder.file("root/ruled.txt", "ruled");
    let mut own = Own::with(
        folder,
        "json",
        "[[site.rule]]\npattern = \"/ruled.txt\"\nexcept = \"10.0.0.0/8\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/app/**\"\nfallback = \"/page.txt\"\n\
         [[site.rewrite]]\nfrom = \"/old.txt\"\nto = \"/page.txt\"\n\
         [[site.rewrite]]\nregex = \"^/front/\"\nto = \"/page.txt\"\nmissing = true\n",
    );
    let paths = ["/ruled.txt", "/old.txt", "/front/x", "/app/x"];
    let ask_all = |own: &Own| paths.map(|path| own.ask_for(path).status);
    for text in ["one", "two", "three"] {
        assert_eq!(ask_all(&own), [200; 4]);
        own.folder.file("root/page.txt", text);
        wait_until(text, || (own.ask().text() == text).then_some(()));
        // By now all storable responses have been published.
        own.hit();
        let before = own.hits();
        assert_eq!(ask_all(&own), [200; 4]);
        assert_eq!(own.hits(), before, "only the page is answered below");
    }
    own.end();
}

/// A CGI program that responds with the time, and the fields that the query specifies.
const CLOCK: &str = "#!/bin/sh
printf 'Content-Type: text/plain\\nContent-Length: 19\\n%s\\n\\n%s' \"$QUERY_STRING\" $(date +%s%N)
";

#[test]
fn cgi_responses_are_published_only_with_a_lifetime() {
    if skipped("cgi_responses_are_published_only_with_a_lifetime", &[]) {
        return;
    }
    let folder = TempFolder::new();
    let all = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    all(&folder.file("cgi/clock", CLOCK), 0o755);
    let cgi = folder.path().join("cgi");
    let tables = format!(
        "[[site.route]]\npattern = \"/cgi/*\"\ncgi = \"{}\"\n",
        cgi.display()
    );
    let own = Own::with(folder, "json", &tables);
    let run = |query: &str| {
        let body = own.ask_for(&format!("/cgi/clock?{query}")).body;
        let text = String::from_utf8_lossy(&body).trim().to_string();
        text.parse::<u64>().unwrap_or_else(|_| panic!("{text:?}"))
    };
    let mut last = 0;
    // Many more requests than are needed until a response is published.
    for _ in 0..100 {
        let now = run("X-Nothing:said");
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    // A client with the daemon's User-Agent is treated like any other client.
    let request = "GET /cgi/clock HTTP/1.1\r\nHost: test\r\nUser-Agent: lowroad\r\n\r\n";
    let answer = own
        .path
        .client
        .enter(|| send_request(server_v4(80), request));
    assert_eq!((answer.status, answer.field("cache-control")), (200, None));
    let before = own.hits();
    wait_until("a page that holds for a while", || {
        run("Cache-Control:max-age=60");
        (own.hits() > before).then_some(())
    });
}

#[test]
fn unsafe_requests_remove_published_responses() {
    if skipped("unsafe_requests_remove_published_responses", &[]) {
        return;
    }
    let folder = TempFolder::new();
    let script = folder.file("cgi/clock", CLOCK);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
    let cgi = folder.path().join("cgi");
    let tables = format!(
        "[[site.route]]\npattern = \"/cgi/*\"\ncgi = \"{}\"\n",
        cgi.display()
    );
    // `purge_from` is a key of the site, so it must precede the site's tables.
    let tables = format!("purge_from = \"0.0.0.0/0\"\n{tables}");
    let own = Own::with(folder, "json", &tables);
    const URL: &str = "/cgi/clock?Cache-Control:max-age=60";
    let hit = || {
        let before = own.hits();
        wait_until("a hit", || {
            let body = own.ask_for(URL).body;
            (own.hits() > before).then_some(body)
        })
    };
    for method in ["POST", "PURGE"] {
        let before = hit();
        let request = format!("{method} {URL} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
        let done = own
            .path
            .client
            .enter(|| send_request(server_v4(80), &request));
        assert_eq!(done.status, 200, "{method}");
        wait_until("another", || {
            (own.ask_for(URL).body != before).then_some(())
        });
    }
    // The response for another URL remains published.
    let (page, _) = own.hit();
    assert_eq!(page.body, b"old");
}

#[test]
fn hits_of_the_level_are_in_the_servers_log() {
    if skipped("hits_of_the_level_are_in_the_servers_log", &[]) {
        return;
    }
    let mut own = Own::start("json");
    let (_, asked) = own.hit();
    let is_hit = |line: &&str| line.contains("\"level\":\"softirq\"");
    // Excludes the requests of the daemon, which have this machine's address.
    let is_ours = |line: &&str| line.contains("\"peer\":\"10.77.0.1\"");
    wait_until("all lines", || {
        let log = own.log("access");
        let is_there = log.lines().filter(is_ours).count() == asked;
        (is_there && log.lines().any(|line| is_hit(&line))).then_some(())
    });
    let old = own.log("access");
    let line = old.lines().filter(is_ours).find(is_hit).expect("a hit");
    for part in [
        "\"request\":\"GET /page.txt HTTP/1.1\"",
        "\"status\":200,\"bytes\":3",
        "\"host\":\"test\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }

    let access = own.folder.path().join("access");
    // As logrotate does: rename the file, then send the signal.
    fs::rename(&access, own.folder.path().join("access.1")).expect("rotated");
    own.signal(Signal::USR1);
    wait_until("a new log", || access.exists().then_some(()));
    let begin = own.hits();
    let asked: usize = (0..20).map(|_| own.hit().1).sum();
    let hits = own.hits() - begin;
    // Lines that are in progress at the server's end must be written.
    own.end();
    assert_eq!(own.log("access.1"), old);
    let new = own.log("access");
    assert_eq!(new.lines().filter(is_ours).count(), asked, "{new}");
    let found = u64::try_from(new.lines().filter(is_hit).count());
    assert_eq!(found, Ok(hits), "{new}");
}

#[test]
fn requests_of_the_level_have_their_site_and_each_a_line_through_a_reload() {
    let test = "requests_of_the_level_have_their_site_and_each_a_line_through_a_reload";
    if skipped(test, &[]) {
        return;
    }
    let format = "$remote_addr|$level|$site|$host|$hostname";
    let names = "names = [\"first.example\", \"test\"]\n";
    let mut own = Own::with(TempFolder::new(), format, names);
    let begin = own.hits();
    let mut asked = own.hit().1;
    // Record and count arrive later than the response; they get the site that the server has at that time.
    let of_first = "|softirq|first.example|test|";
    wait_until("the record", || {
        own.log("access").contains(of_first).then_some(())
    });
    wait_until("the count", || {
        let counted = hits_of_site(&own.metrics(), "first.example");
        (counted == own.hits() - begin).then_some(())
    });
    let config = own.folder.path().join("lowroad.toml");
    let text = fs::read_to_string(&config).expect("the configuration");
    fs::write(&config, text.replace("first.example", "other.example")).expect("written");
    own.signal(Signal::HUP);
    own.wait_for_error("is in force");
    asked += (0..5).map(|_| own.hit().1).sum::<usize>();
    let hits = own.hits() - begin;
    // The reports of the level arrive at intervals.
    wait_until("the hits of both sites", || {
        let metrics = own.metrics();
        let of = |site: &str| hits_of_site(&metrics, site);
        let [first, other] = ["first.example", "other.example"].map(of);
        (first >= 1 && other >= 1 && first + other == hits).then_some(())
    });
    own.end();
    let log = own.log("access");
    let ours = log.lines().filter(|line| line.starts_with("10.77.0.1|"));
    assert_eq!(ours.clone().count(), asked, "{log}");
    let of_level: Vec<&str> = ours.filter(|line| line.contains("|softirq|")).collect();
    assert_eq!(u64::try_from(of_level.len()), Ok(hits), "{log}");
    let last = of_level.last().expect("a hit");
    assert!(last.contains("|softirq|other.example|test|"), "{log}");
}

#[test]
fn killed_daemon_is_restarted() {
    if skipped("killed_daemon_is_restarted", &[]) {
        return;
    }
    let mut own = Own::start("combined");
    own.hit();
    let first = own.daemon();
    kill_process(first, Signal::KILL).expect("it lives");
    wait_until("another daemon", || (own.daemon() != first).then_some(()));
    own.wait_for_error(
        "softirq: the level's process has ended: killed by signal 9; restart in 1 s",
    );
    own.hit();
    own.wait_for_error("softirq: the level is running again (start 1)");
    assert!(
        own.status()
            .contains("softirq                attached, restarts: 1\n")
    );
    // The new daemon also gets the server's changes.
    own.folder.file("root/page.txt", "new");
    wait_until("the change", || (own.ask().text() == "new").then_some(()));
    assert_eq!(own.hit().0.text(), "new");
    // Signals to reopen logs must not end the daemon. It is then killed, so that the server ends without a daemon.
    let second = own.daemon();
    for signal in [Signal::HUP, Signal::USR1] {
        kill_process(second, signal).expect("it lives");
    }
    own.hit();
    assert_eq!(own.daemon(), second);
    kill_process(second, Signal::KILL).expect("it lives");
    own.end();
    assert!(!own.place.exists(), "the level has gone before the server");
}

#[test]
fn upgrade_attaches_the_level_of_the_new_process() {
    let name = "upgrade_attaches_the_level_of_the_new_process";
    if skipped(name, &[]) {
        return;
    }
    let mut own = Own::start("combined");
    own.hit();
    let first = own.daemon();
    let admin = own.folder.path().join("admin").display().to_string();
    let upgraded = own
        .path
        .server
        .run(PROGRAM, &["upgrade", "--admin", &admin]);
    upgraded.expect("the new process");
    let level = wait_until("the new level", || {
        // Requests are answered while no level is attached, too.
        assert_eq!(own.ask().status, 200);
        let level = SoftirqLevel::open(&own.place).ok()?;
        let control = level.control();
        let is_new = control.heartbeat_ns > 0 && pid(control.pid) != first;
        is_new.then_some(level)
    });
    own.level = level;
    assert_eq!(own.hit().0.text(), "old");
    // The new daemon gets the changes of the new server.
    own.folder.file("root/page.txt", "new");
    wait_until("the change", || (own.ask().text() == "new").then_some(()));
    let status = own.server.child().wait().expect("a child of ours");
    assert!(status.success(), "the predecessor: {status}");
    let stopped = own.path.server.run(PROGRAM, &["stop", "--admin", &admin]);
    stopped.expect("the new process ends");
    assert!(!own.place.exists(), "the level has gone before the server");
}

#[test]
fn daemon_continues_without_its_supervisor() {
    if skipped("daemon_continues_without_its_supervisor", &[]) {
        return;
    }
    let mut own = Own::start("combined");
    let daemon = own.daemon();
    let keeper = pid(status_of(daemon, "PPid:").parse().expect("a number"));
    kill_process(keeper, Signal::KILL).expect("it lives");
    // An orphan gets a new parent.
    wait_until("its end", || {
        (status_of(daemon, "PPid:") != keeper.as_raw_nonzero().to_string()).then_some(())
    });
    own.hit();
    kill_process(daemon, Signal::KILL).expect("it lives");
    own.wait_for_error("softirq: off: its processes have ended; restart the server");
    assert!(
        own.status()
            .contains("softirq                off: its processes have ended")
    );
    assert_eq!(own.ask().status, 200);
    own.end();
}

#[test]
fn processes_of_the_level_have_minimal_capabilities() {
    if skipped("processes_of_the_level_have_minimal_capabilities", &[]) {
        return;
    }
    let own = Own::start("combined");
    let daemon = own.daemon();
    let keeper = pid(status_of(daemon, "PPid:").parse().expect("a number"));
    // CAP_NET_ADMIN is 12, CAP_PERFMON 38, CAP_BPF 39.
    let kept = format!("{:016x}", 1u64 << 12 | 1 << 38 | 1 << 39);
    for process in [daemon, keeper] {
        for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
            assert_eq!(status_of(process, set), kept, "{set}");
        }
        assert_eq!(status_of(process, "CapInh:"), "0".repeat(16));
        assert_eq!(status_of(process, "NoNewPrivs:"), "1");
    }
    // Only root may read the pins.
    let mode = |path: &std::path::Path| {
        let permissions = fs::metadata(path).expect("it is there").permissions();
        permissions.mode() & 0o777
    };
    for folder in own.place.ancestors().take(3) {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    for pin in fs::read_dir(&own.place).expect("a folder").flatten() {
        assert_eq!(mode(&pin.path()), 0o600, "{}", pin.path().display());
    }
}
