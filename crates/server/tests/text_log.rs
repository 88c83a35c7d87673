//! Access logs with formats of the operator: their lines equal the requests, conditions select entries, and no request can
//! write a line or a field of its own.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::{StatusClient, scrape};
use lowroad_testkit::{TempFolder, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Two sites with these logs.
fn logged(logs: &str) -> (TempFolder, TestServer) {
    let folder = TempFolder::new();
    // The server's user may create a new log here.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
    folder.file("root/small", "hello");
    folder.file("root/a.css", "x");
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"admin.sock\"\n{logs}\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\nnames = [\"a.example\", \"www.a.example\"]\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\nnames = [\"b.example\"]\n"
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    (folder, server)
}

/// Sends requests on one connection.
fn ask(server: &TestServer, requests: &[(&str, &str)]) {
    let mut client = server.connect();
    for (target, fields) in requests {
        client.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n\r\n"));
        client.response();
    }
}

/// The lines of a log, once it has this many.
fn lines(folder: &TempFolder, name: &str, count: usize) -> Vec<String> {
    wait_until("the lines of the log", || {
        let text = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn format_with_variables_is_filled_in() {
    let format = "$remote_addr|$site|$route|$level|$outcome|$scheme|$host|$http_host|$request_method|$uri|$args|\
                  $server_protocol|$status|$body_bytes_sent|$http_x_a|$request_completion \"$http_user_agent\"";
    let (folder, server) = logged(&format!("[log]\naccess = \"log\"\nformat = '{format}'"));
    ask(
        &server,
        &[
            (
                "/small?q|x",
                "Host: WWW.a.example:80\r\nX-A: 1\r\nx-a: 2|\r\nUser-Agent: a\"b |",
            ),
            ("/a.css", "Host: b.example"),
        ],
    );
    assert_eq!(
        lines(&folder, "log", 2),
        [
            "127.0.0.1|a.example|-|worker|miss|http|www.a.example|WWW.a.example:80|GET|/small|q\\x7Cx|HTTP/1.1|200|5|\
             1,\\x202\\x7C|OK \"a\\x22b |\"",
            "127.0.0.1|b.example|-|worker|miss|http|b.example|b.example|GET|/a.css|-|HTTP/1.1|200|1|-|OK \"-\"",
        ]
        .map(|line| line.to_owned())
    );
}

#[test]
fn refused_requests_have_no_fields_of_the_last_one() {
    let (folder, server) =
        logged("[log]\naccess = \"log\"\nformat = '$status \"$request\" $http_x_a'");
    ask(&server, &[("/small", "Host: a.example\r\nX-A: secret")]);
    let mut client = server.connect();
    client.send("GET /small\nHTTP/1.1 X\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let lines = lines(&folder, "log", 2);
    assert_eq!(lines[0], "200 \"GET /small HTTP/1.1\" secret");
    assert!(
        lines[1].starts_with("400 ") && lines[1].ends_with(" -"),
        "{lines:?}"
    );
}

#[test]
fn json_has_the_chosen_members() {
    let (folder, server) = logged(
        "[log]\naccess = \"log\"\nformat = \"json\"\nfields = [\"code=status\", \"uri\", \"http_x_a\"]",
    );
    ask(&server, &[("/small", "Host: a.example\r\nX-A: \"\\\t")]);
    assert_eq!(
        lines(&folder, "log", 1),
        ["{\"code\":200,\"uri\":\"/small\",\"http_x_a\":\"\\\"\\\\\"}"]
    );
}

#[test]
fn several_logs_contain_the_requests_that_fulfil_their_conditions() {
    let log = |name: &str, keys: &str| {
        format!("[[log.access]]\nto = \"{name}\"\nformat = '$uri $http_x_a'\n{keys}\n")
    };
    let logs = [
        log("all", ""),
        log("site", "site = \"a.example\""),
        log("status", "status = [\"4xx\"]"),
        log("path", "path = [\"!*.css\", \"!/health\"]"),
        log("slow", "min_duration = \"10s\""),
        log("sample", "sample = 3"),
        "[[log.access]]\nto = \"binary\"\nformat = \"binary\"\nblock_age = \"100ms\"\n".to_owned(),
    ];
    let (folder, mut server) = logged(&logs.concat());
    let requests = [
        ("/small", "Host: a.example\r\nX-A: 1"),
        ("/a.css", "Host: www.a.example\r\nX-A: 2"),
        ("/health", "Host: b.example\r\nX-A: 3"),
        ("/%61.css", "Host: b.example\r\nX-A: 4"),
    ];
    ask(&server, &requests);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let all = ["/small 1", "/a.css 2", "/health 3", "/%61.css 4"];
    for (name, expected) in [
        ("all", &all[..]),
        ("site", &all[..2]),
        ("status", &all[2..3]),
        ("path", &all[..1]),
        ("slow", &[]),
        ("sample", &[all[0], all[3]]),
    ] {
        let text = fs::read_to_string(folder.path().join(name)).expect("a log");
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{name}");
    }
    let mut read = Command::new(PROGRAM);
    let output = read
        .args(["log", "cat"])
        .arg(folder.path().join("binary"))
        .output();
    let text = String::from_utf8(output.expect("the program").stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), requests.len(), "{text}");
}

#[test]
fn syslog_gets_a_message_for_each_request() {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = receiver.local_addr().expect("an address").port();
    let (_folder, server) = logged(&format!(
        "[[log.access]]\nto = \"syslog:udp:127.0.0.1:{port}\"\ntag = \"web\"\nformat = '$status $uri'"
    ));
    ask(
        &server,
        &[("/small", "Host: a.example"), ("/none", "Host: a.example")],
    );
    let mut buffer = [0; 1000];
    for expected in [" access - 200 /small", " access - 404 /none"] {
        let len = receiver.recv(&mut buffer).expect("a message");
        let text = String::from_utf8_lossy(&buffer[..len]);
        // 23 * 8 + 6: local7, informational.
        assert!(
            text.starts_with("<190>1 ") && text.contains(" web "),
            "{text}"
        );
        assert!(text.ends_with(expected), "{text}");
    }
}

#[test]
fn long_field_does_not_keep_a_request_out_of_syslog() {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = receiver.local_addr().expect("an address").port();
    let (_folder, server) = logged(&format!(
        "[[log.access]]\nto = \"syslog:udp:127.0.0.1:{port}\"\nformat = \"json\""
    ));
    // Each tab has six bytes in JSON: the entry is longer than a datagram.
    let fields = format!("Host: a.example\r\nUser-Agent: a{}b", "\t".repeat(14_000));
    ask(&server, &[("/small", &fields)]);
    let mut buffer = [0; 70_000];
    let len = receiver.recv(&mut buffer).expect("a message");
    let text = String::from_utf8_lossy(&buffer[..len]);
    assert!(
        text.contains("\"request\":\"GET /small HTTP/1.1\""),
        "{text}"
    );
    assert!(
        text.contains("\\u0009\",\"duration_us\":") && text.ends_with('}'),
        "{text}"
    );
}

#[test]
fn missing_syslog_delays_no_request() {
    let (folder, server) =
        logged("[log]\nerror = \"errors\"\n[[log.access]]\nto = \"syslog:unix:/nonexistent\"");
    let requests = [("/small", "Host: a.example"); 100];
    ask(&server, &requests);
    let status = StatusClient::new(PROGRAM, folder.path().join("admin.sock"));
    status.wait_for("log_lines_lost", 100);
    let errors = fs::read_to_string(folder.path().join("errors")).expect("a log");
    let reports = errors
        .matches("can't be sent to syslog:unix:/nonexistent,")
        .count();
    assert_eq!(reports, 1, "{errors}");
}

#[test]
fn full_disk_is_reported() {
    let (folder, server) = logged("[log]\nerror = \"errors\"\naccess = \"/dev/full\"");
    ask(&server, &[("/small", "Host: a.example"); 10]);
    let status = StatusClient::new(PROGRAM, folder.path().join("admin.sock"));
    status.wait_for("log_lines_lost", 10);
    let report = "the access log /dev/full can't be written, its lines are dropped and counted";
    let errors = wait_until("the report", || {
        let text = fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
        text.contains(report).then_some(text)
    });
    assert_eq!(errors.matches(report).count(), 1, "{errors}");
}

#[test]
fn check_warns_of_missing_receivers() {
    let folder = TempFolder::new();
    folder.file("root/small", "hello");
    let config = "[[log.access]]\nto = \"syslog:udp:nowhere.invalid:514\"\n[[log.access]]\nto = \"syslog:unix:/none\"\n\
                  [[log.access]]\nto = \"syslog:udp:127.0.0.1:514\"\n[traces]\nendpoint = \"http://127.0.0.1:4317\"\n\
                  [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n";
    folder.file("lowroad.toml", config);
    let mut command = Command::new(PROGRAM);
    command.args(["check", "-c"]);
    command.arg(folder.path().join("lowroad.toml"));
    let output = command.output().expect("the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    for part in [
        "the host nowhere.invalid can't be resolved",
        "there is no socket /none",
        "collectors receive at port 4318",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.matches("would be dropped now").count(), 2, "{text}");
}

#[test]
fn check_reports_logs_in_served_folders_and_unknown_sites() {
    let folder = TempFolder::new();
    folder.file("root/small", "hello");
    // The name is not on the first line that contains it.
    let config = "# \"c.example\"\n[[log.access]]\nto = \"root/log\"\nstatus = 404\nsite = \"c.example\"\n\
                  [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\nnames = [\"a.example\"]\n";
    folder.file("lowroad.toml", config);
    let check = || {
        let mut command = Command::new(PROGRAM);
        command.args(["check", "-c"]);
        command.arg(folder.path().join("lowroad.toml"));
        command.output().expect("the program")
    };
    let output = check();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("root/log is in a folder of a site"), "{text}");
    assert!(
        text.contains("lowroad.toml:5: log: no site has \"c.example\" as the first"),
        "{text}"
    );
    // Without names, the site is named by its root.
    let root = folder.path().join("root");
    let nameless = config.replace("names = [\"a.example\"]", "");
    let known = nameless.replace("\"c.example\"\n", &format!("{root:?}\n"));
    for (config, is_unknown) in [(nameless, true), (known, false)] {
        folder.file("lowroad.toml", &config);
        let output = check();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.contains("no site has"), is_unknown, "{text}");
    }
}

#[test]
fn log_that_cannot_be_written_is_named_by_its_path() {
    let folder = TempFolder::new();
    folder.file("root/small", "hello");
    folder.file(
        "lowroad.toml",
        "[log]\naccess = \"root\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n",
    );
    let output = Command::new(PROGRAM)
        .args(["run", "-c"])
        .arg(folder.path().join("lowroad.toml"))
        .output()
        .expect("the program");
    let text = String::from_utf8_lossy(&output.stderr);
    let path = folder.path().join("root");
    let expected = format!("can't write the log {}: Is a directory", path.display());
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn log_that_cannot_be_opened_again_is_named() {
    let (folder, server) = logged("[log]\naccess = \"log\"");
    let path = folder.path().join("log");
    fs::rename(&path, folder.path().join("moved")).expect("renamed");
    fs::create_dir(&path).expect("a folder");
    server.signal("USR1");
    server.wait_for_error_line(&format!("can't reopen the access log {}, ", path.display()));
}

/// A server with this log and one worker, and the route `/app/**` to this origin.
fn proxied(format: &str, origin: &str, tables: &str) -> (TempFolder, TestServer) {
    let folder = TempFolder::new();
    folder.file("root/small", "hello");
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"admin.sock\"\n[log]\naccess = \"log\"\nformat = '{format}'\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n[[site.route]]\npattern = \"/app/**\"\n\
         origin = \"{origin}\"\n{tables}"
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    (folder, server)
}

#[test]
fn values_of_request_response_and_connection_are_filled_in() {
    let format = "$request_id|$connection|$connection_requests|$bytes_sent|$sent_http_content_type|\
                  $sent_http_content_length|$cookie_sid|$arg_q|$hostname|$pid|$trace_id|$upstream_addr";
    let (folder, server) = logged(&format!("[log]\naccess = \"log\"\nformat = '{format}'"));
    let mut client = server.connect();
    let mut get = |target: &str, fields: &str| {
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
        ));
        client.response()
    };
    let small = get("/small?p=1&q=a%20b", "Cookie: a=b; SID=x|y\r\n");
    let css = get("/a.css", "");
    ask(&server, &[("/none", "Host: a.example")]);
    let lines = lines(&folder, "log", 3);
    let values: Vec<Vec<&str>> = lines.iter().map(|line| line.split('|').collect()).collect();
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host");
    let pid = server.pid().to_string();
    let expected = [
        ["application/octet-stream", "5", "x\\x7Cy", "a%20b"],
        ["text/css;\\x20charset=utf-8", "1", "-", "-"],
    ];
    for (values, expected) in values.iter().zip(expected) {
        assert_eq!(values[4..8], expected);
        assert_eq!(values[8..], [hostname.trim(), &pid, "-", "-"]);
    }
    let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(values.iter().all(|values| is_id(values[0])), "{lines:?}");
    assert!(values[0][0] != values[1][0] && values[1][0] != values[2][0]);
    assert_eq!(values[0][1], values[1][1], "the connection");
    assert_ne!(values[0][1], values[2][1], "the connection");
    assert_eq!([0, 1, 2].map(|line| values[line][2]), ["1", "2", "1"]);
    for (values, response) in values.iter().zip([small, css]) {
        let len = response.head.len() + response.body.len();
        assert_eq!(values[3], len.to_string());
    }
}

#[test]
fn values_of_http2_responses_are_filled_in() {
    let format = "$server_protocol|$connection_requests|$sent_http_content_type|$sent_http_content_length|$cookie_b|$status";
    let (folder, server) = logged(&format!("[log]\naccess = \"log\"\nformat = '{format}'"));
    for path in ["/small", "/none"] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--http2-prior-knowledge", "-b", "a=1; b=2"]);
        curl.args(["-H", "Host: a.example"]);
        let output = curl.arg(format!("http://{}{path}", server.address()));
        let output = output.output().expect("curl");
        assert!(output.status.success(), "{output:?}");
    }
    let lines = lines(&folder, "log", 2);
    assert_eq!(lines[0], "HTTP/2.0|1|application/octet-stream|5|2|200");
    let (start, rest) = lines[1].split_once("text/html").expect("a type");
    assert_eq!(start, "HTTP/2.0|1|");
    assert!(rest.ends_with("|2|404"), "{rest}");
}

#[test]
fn lines_of_the_error_log_name_the_request() {
    // Of a long body, only the beginning arrives.
    let origin = TestOrigin::start(|request, stream| {
        let head = match request.target.ends_with("/cut") {
            true => "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\na",
            false => "no response\r\n\r\n",
        };
        let _ = stream.write_all(head.as_bytes());
        false
    });
    let (folder, server) = proxied("$uri $request_id", &origin.url(), "");
    for target in ["/app/cut", "/app/bad"] {
        let mut client = server.connect();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\n\r\n"
        ));
        client.wait_for_close();
    }
    for line in lines(&folder, "log", 2) {
        let (_, id) = line.split_once(' ').expect("two values");
        let label = format!("client: 127.0.0.1, host: \"a.example:81\", request_id: {id}");
        server.wait_for_error_line(&label);
    }
}

#[test]
fn attempts_at_upstream_servers_are_listed() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let refused = port.local_addr().expect("an address");
    drop(port);
    let origin = TestOrigin::with_response(|_| {
        "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nCache-Control: no-store\r\n\r\nab".into()
    });
    let url = origin.url();
    let tables = format!(
        "[[origin]]\nname = \"pool\"\nservers = [\"http://{refused}\", {{ url = \"{url}\", backup = true }}]\n"
    );
    let format = "$uri \"$upstream_addr\" \"$upstream_status\" \"$upstream_connect_time\" \"$upstream_header_time\" \
                  \"$upstream_response_time\"";
    let (folder, server) = proxied(format, "pool", &tables);
    assert_eq!(server.get("/app/x").status, 201);
    assert_eq!(server.get("/small").status, 200);
    let lines = lines(&folder, "log", 2);
    let values: Vec<&str> = lines[0].split('"').skip(1).step_by(2).collect();
    let live = url.trim_start_matches("http://");
    assert_eq!(values[0], format!("{refused}, {live}"));
    assert_eq!(values[1], "502, 201");
    for (value, is_first_known) in values[2..].iter().zip([false, false, true]) {
        let (first, second) = value.split_once(", ").expect("two attempts");
        assert_eq!(first != "-", is_first_known, "{value}");
        assert!(
            second.parse::<f64>().is_ok_and(|seconds| seconds < 60.0),
            "{value}"
        );
    }
    assert_eq!(lines[1], "/small \"-\" \"-\" \"-\" \"-\" \"-\"");
}

#[test]
fn time_of_a_streamed_response_includes_its_body() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let origin = TestOrigin::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-store\r\n\r\na";
        stream.write_all(head.as_bytes()).expect("sent");
        let _ = released.lock().expect("one request").recv();
        stream.write_all(b"b").is_ok()
    });
    let format = "$upstream_header_time $upstream_response_time";
    let (folder, server) = proxied(format, &origin.url(), "");
    let mut client = server.connect();
    client.send("GET /app/x HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until("the start of the body", || {
        client.receive_once();
        client.received.ends_with(b"\r\n\r\na").then_some(())
    });
    let began = std::time::Instant::now();
    // The body takes at least this time, however loaded the machine is.
    wait_until("20 ms", || (began.elapsed().as_millis() > 20).then_some(()));
    release.send(()).expect("the origin waits");
    assert_eq!(client.response().body, b"ab");
    let line = &lines(&folder, "log", 1)[0];
    let (header, whole) = line.split_once(' ').expect("two times");
    let seconds = |text: &str| text.parse::<f64>().expect("a time");
    assert!(seconds(whole) >= seconds(header) + 0.019, "{line}");
}

/// The metrics of a server with its admin socket in this folder.
fn metrics(folder: &TempFolder) -> String {
    scrape(&folder.path().join("admin.sock"))
}

/// Sends a request to an origin that answers when it is released, lets the client leave in this way, and releases the
/// origin. Returns the line of the log, and the metrics.
fn line_after_leaving(leave: impl FnOnce(lowroad_testkit::TestClient)) -> (String, String) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let origin = TestOrigin::start(move |_, stream| {
        let _ = released.lock().expect("one request").recv();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: max-age=60\r\n\r\nab";
        stream.write_all(head.as_bytes()).is_ok()
    });
    let (folder, server) = proxied(
        "$status $body_bytes_sent $outcome $level $uri",
        &origin.url(),
        "",
    );
    let mut client = server.connect();
    client.send("GET /app/x HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until("the request", || (origin.count() == 1).then_some(()));
    leave(client);
    // Another request shows that the server has handled the end of the connection.
    assert_eq!(server.get("/small").status, 200);
    let _ = release.send(());
    let all = lines(&folder, "log", 2);
    let line = all.iter().find(|line| line.ends_with("/app/x"));
    let metrics = metrics(&folder);
    (line.expect("a line").clone(), metrics)
}

#[test]
fn client_that_leaves_before_the_response_has_status_499() {
    // A closed socket without unread bytes only ends its direction, as a half-close does.
    type Leave = fn(lowroad_testkit::TestClient);
    let leaves: [Leave; 2] = [drop, lowroad_testkit::TestClient::reset];
    for leave in leaves {
        let (line, metrics) = line_after_leaving(leave);
        assert_eq!(line, "499 0 miss origin /app/x");
        let is_counted = |line: &str| {
            line.starts_with("lowroad_requests_total")
                && line.contains("origin")
                && line.contains("4xx")
                && line.ends_with(" 1")
        };
        assert!(metrics.lines().any(is_counted), "{metrics}");
    }
}

#[test]
fn half_closed_client_is_answered_and_logged_with_the_status() {
    let (sender, answered) = std::sync::mpsc::channel();
    let (line, _) = line_after_leaving(|mut client| {
        client.finish();
        std::thread::spawn(move || sender.send(client.response().status));
    });
    assert_eq!(line, "200 2 miss origin /app/x");
    assert_eq!(answered.recv(), Ok(200));
}

#[test]
fn records_equal_requests_under_load_through_rotations_and_reloads() {
    const CLIENTS: u64 = 4;
    const REQUESTS: u64 = 600;
    let folder = TempFolder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
    folder.file("root/small", "hello");
    let config = "[server]\nworkers = 2\nadmin = \"admin.sock\"\n\
                  [[log.access]]\nto = \"log\"\nformat = '$request_uri $status $connection_requests'\n\
                  [[log.access]]\nto = \"binary\"\nformat = \"binary\"\nblock_age = \"100ms\"\nrotate_len = \"64K\"\n\
                  total_len_max = \"1G\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n";
    let mut server = TestServer::run(PROGRAM, &folder, config);
    let (address, answered) = (server.address(), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client_number in 0..CLIENTS {
            let answered = &answered;
            scope.spawn(move || {
                let mut client = lowroad_testkit::TestClient::connect(address);
                for number in 0..REQUESTS {
                    // Connections end, too, and others may be on another worker.
                    if number % 50 == 49 {
                        client = lowroad_testkit::TestClient::connect(address);
                    }
                    let response = client.get(&format!("/small?{client_number}.{number}."), "");
                    assert_eq!(response.status, 200);
                    answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
        for rotation in 1..=3 {
            let due = CLIENTS * REQUESTS / 4 * rotation;
            wait_until("requests", || {
                let answered = answered.load(std::sync::atomic::Ordering::SeqCst);
                (answered >= due).then_some(())
            });
            let rotated = folder.path().join(format!("log.{rotation}"));
            fs::rename(folder.path().join("log"), rotated).expect("renamed");
            server.signal(if rotation == 2 { "HUP" } else { "USR1" });
            wait_until("the new log", || {
                folder.path().join("log").exists().then_some(())
            });
        }
    });
    let sum: f64 = metrics(&folder)
        .lines()
        .filter(|line| line.starts_with("lowroad_requests_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    assert_eq!(sum, (CLIENTS * REQUESTS) as f64);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let names = ["log.1", "log.2", "log.3", "log"];
    let texts = names.map(|name| fs::read_to_string(folder.path().join(name)).expect("a log"));
    let mut read = Command::new(PROGRAM);
    read.args(["log", "cat"]).arg(folder.path().join("binary"));
    let binary = String::from_utf8(read.output().expect("the program").stdout).expect("UTF-8");
    for all in [texts.concat(), binary] {
        let mut targets: Vec<&str> = all
            .lines()
            .filter_map(|line| {
                line.split_whitespace()
                    .find(|word| word.starts_with("/small?"))
            })
            .collect();
        assert_eq!(all.lines().count() as u64, CLIENTS * REQUESTS);
        targets.sort_unstable();
        targets.dedup();
        assert_eq!(targets.len() as u64, CLIENTS * REQUESTS);
    }
}
