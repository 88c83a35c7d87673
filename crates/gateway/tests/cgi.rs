//! Real CGI programs in shell, Perl and C, including misbehaving ones.

mod cgi_support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lowroad_config::{CgiConfig, RouteConfig, SymlinkPolicy};
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_gateway::cgi::CgiHandler;
use lowroad_gateway::cgi::spawner::CgiSpawner;
use lowroad_handler::{Handler, HandlerResult, ResponseContent};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_testkit::TempFolder;

use cgi_support::{
    CollectedResponse, Notices, cgi_route, collect_response, fail, fetch, get, new_spawner, post,
    runtime, send_request, spawner, until, upload,
};

/// A folder of programs, and the handler for them.
struct Programs {
    folder: TempFolder,
    notices: Notices,
}

impl Programs {
    fn new() -> Programs {
        let folder = TempFolder::new();
        std::fs::create_dir(folder.path().join("cgi")).expect("a folder");
        Programs {
            folder,
            notices: Notices::default(),
        }
    }

    fn path(&self) -> PathBuf {
        std::fs::canonicalize(self.folder.path()).expect("it is there")
    }

    /// Writes a program to the folder.
    fn add(&self, name: &str, text: &str) -> &Programs {
        let path = self.folder.file(Path::new("cgi").join(name), text);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("a mode");
        self
    }

    fn handler(&self) -> Arc<CgiHandler> {
        self.handler_with(|_, _| {})
    }

    fn handler_with(
        &self,
        change: impl FnOnce(&mut RouteConfig, &mut CgiConfig),
    ) -> Arc<CgiHandler> {
        self.handler_by(spawner(), change)
    }

    fn handler_by(
        &self,
        spawner: Arc<CgiSpawner>,
        change: impl FnOnce(&mut RouteConfig, &mut CgiConfig),
    ) -> Arc<CgiHandler> {
        let (mut route, mut cgi) = cgi_route("/cgi-bin/**", &self.path().join("cgi"));
        change(&mut route, &mut cgi);
        let notice = self.notices.notice();
        let handler = CgiHandler::new(&route, &cgi, SymlinkPolicy::Beneath, spawner, notice);
        Arc::new(handler.expect("the folder is there"))
    }

    /// Writes a program, and returns its response to a GET request.
    fn run(&self, name: &str, text: &str) -> CollectedResponse {
        self.add(name, text);
        let handler = self.handler();
        let root = self.path();
        runtime().block_on(async { fetch(&handler, get(&root, &format!("/cgi-bin/{name}"))).await })
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z')
}

#[test]
fn cgi_environment_is_exactly_that_of_rfc_3875() {
    let programs = Programs::new();
    programs.add(
        "env",
        "#!/bin/sh\necho Content-Type: text/plain\necho\nenv | sort\npwd\n",
    );
    let root = programs.path();
    let answer = runtime()
        .block_on(async { fetch(&programs.handler(), get(&root, "/cgi-bin/env/a/b?x=1&y")).await });
    assert_eq!(answer.status, 200);
    let root = root.display();
    let want = format!(
        "DOCUMENT_ROOT={root}\nGATEWAY_INTERFACE=CGI/1.1\nHTTP_HOST=example.org:8080\n\
         HTTP_X_TEST=1\nMODE=test\nPART=192.0.2.7 env/a/b 1\nPATH=/usr/local/bin:/usr/bin:/bin\nPATH_INFO=/a/b\n\
         PATH_TRANSLATED={root}/a/b\nPWD={root}/cgi\nQUERY_STRING=x=1&y\nREDIRECT_STATUS=200\n\
         REMOTE_ADDR=192.0.2.7\nREMOTE_PORT=40000\nREQUEST_METHOD=GET\nREQUEST_SCHEME=http\n\
         REQUEST_URI=/cgi-bin/env/a/b?x=1&y\nSCRIPT_FILENAME={root}/cgi/env\n\
         SCRIPT_NAME=/cgi-bin/env\nSERVER_ADDR=192.0.2.1\nSERVER_NAME=example.org\n\
         SERVER_PORT=8080\nSERVER_PROTOCOL=HTTP/1.1\nSERVER_SOFTWARE=lowroad/{}\n{root}/cgi\n",
        env!("CARGO_PKG_VERSION"),
    );
    assert_eq!(answer.body, want);
}

#[test]
fn paths_without_program_are_refused() {
    let programs = Programs::new();
    programs.add("sub/ok", "#!/bin/sh\nprintf 'Status: 200\\n\\nok'\n");
    programs.add(".secret", "#!/bin/sh\nprintf 'Status: 200\\n\\nno'\n");
    programs.folder.file("outside", "#!/bin/sh\n");
    programs.folder.file("cgi/plain", "text");
    std::os::unix::fs::symlink("../outside", programs.path().join("cgi/out")).expect("a link");
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let answer = fetch(&handler, get(&root, "/cgi-bin/sub/ok")).await;
        assert_eq!(answer.body, "ok");
        for path in [
            "/cgi-bin/none",
            "/cgi-bin/",
            "/cgi-bin",
            "/cgi-bin/sub",
            "/cgi-bin/sub/",
            "/cgi-bin/.secret",
            "/cgi-bin/out",
            "/cgi-binx/sub/ok",
            "/other",
        ] {
            let failure = fail(&handler, get(&root, path)).await;
            assert_eq!(failure.status, StatusCode::NOT_FOUND, "{path}");
        }
        let failure = fail(&handler, get(&root, "/cgi-bin/plain")).await;
        assert_eq!(failure.status, StatusCode::INTERNAL_ERROR);
        assert!(failure.detail.contains("executable"), "{failure:?}");
    });
}

#[test]
fn cgi_heads_become_http_responses() {
    let programs = Programs::new();
    let answer = programs.run(
        "teapot",
        "#!/usr/bin/perl\nprint \"Status: 418 Teapot\\r\\nX-A: b\\r\\nConnection: close\\r\\n\\r\\nshort\";\n",
    );
    assert_eq!((answer.status, answer.body.as_str()), (418, "short"));
    assert_eq!(answer.field("X-A"), Some("b"));
    assert_eq!(answer.field("Connection"), None);
    let answer = programs.run(
        "go",
        "#!/bin/sh\nprintf 'Location: /there\\nSet-Cookie: a=b\\n\\n'\n",
    );
    assert_eq!(answer.status, 302);
    assert_eq!(answer.field("Location"), Some("/there"));
    assert_eq!(answer.field("Set-Cookie"), Some("a=b"));
    let answer = programs.run(
        "nph-x",
        "#!/bin/sh\nprintf 'HTTP/1.1 404 Gone\\r\\nX: y\\r\\n\\r\\nbody'\n",
    );
    assert_eq!((answer.status, answer.body.as_str()), (404, "body"));
    let answer = programs.run(
        "long",
        "#!/bin/sh\nprintf 'Status: 200\\nContent-Length: 3\\n\\n123456'\n",
    );
    assert_eq!((answer.body.as_str(), answer.cut), ("123", false));
}

#[test]
fn head_response_of_c_program_has_no_body() {
    let programs = Programs::new();
    let source = programs.folder.file(
        "hello.c",
        "#include <stdio.h>\nint main(void) { printf(\"Content-Type: text/plain\\n\\nhello\"); }\n",
    );
    let out = programs.path().join("cgi/hello");
    let built = Command::new("gcc").arg(source).arg("-o").arg(out).status();
    if !built.is_ok_and(|status| status.success()) {
        return lowroad_testkit::skip("head_response_of_c_program_has_no_body", "no gcc");
    }
    let root = programs.path();
    let mut request = get(&root, "/cgi-bin/hello");
    request.method = Method::Head;
    let answer = runtime().block_on(async { fetch(&programs.handler(), request).await });
    // The length is known only if the end of the output arrives together with the head.
    assert!(matches!(answer.len, Some(5) | None), "{:?}", answer.len);
    assert_eq!(answer.body, "");
    assert!(!answer.cut);
}

#[test]
fn program_failures_are_reported_to_operator() {
    let programs = Programs::new();
    for (name, text, status, words) in [
        ("empty", "#!/bin/sh\n", 502, "without a head"),
        (
            "html",
            "#!/bin/sh\necho '<h1>Hi</h1>'; echo\n",
            502,
            "no colon",
        ),
        ("interpreter", "#!/no/such\n", 500, "interpreter"),
        ("none", "echo hi\n", 502, "without a head"),
        (
            "nph-no",
            "#!/bin/sh\nprintf 'Status: 200\\n\\n'\n",
            502,
            "status line",
        ),
        (
            "head",
            "#!/usr/bin/perl\nprint 'X: ', 'a' x 100000;\n",
            502,
            "65536",
        ),
    ] {
        programs.add(name, text);
        let handler = programs.handler();
        let root = programs.path();
        let failure = runtime()
            .block_on(async { fail(&handler, get(&root, &format!("/cgi-bin/{name}"))).await });
        assert_eq!(failure.status.code(), status, "{name}: {failure:?}");
        assert!(failure.detail.contains(words), "{name}: {failure:?}");
        assert!(failure.detail.contains(name), "{name}: {failure:?}");
    }
}

#[test]
fn short_body_is_502_or_truncated_response() {
    let programs = Programs::new();
    programs.add(
        "short",
        "#!/bin/sh\nprintf 'Status: 200\\nContent-Length: 9\\n\\n123'\n",
    );
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        // The outcome depends on whether the end of the output arrives together with the head.
        match send_request(&handler, get(&root, "/cgi-bin/short")).await {
            Ok(response) => assert!(collect_response(response).await.cut),
            Err(failure) => assert!(failure.detail.contains("3 of 9 bytes"), "{failure:?}"),
        }
    });
}

#[test]
fn stderr_and_abnormal_exits_are_logged() {
    let programs = Programs::new();
    programs.add(
        "loud",
        "#!/bin/sh\necho oh >&2\nprintf 'Status: 200\\n\\nx'\nexit 3\n",
    );
    programs.add(
        "flood",
        "#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' '\\n' >&2\nyes >&2 | head -c 1000 >&2\n\
         printf 'Status: 200\\n\\nx'\n",
    );
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        assert_eq!(fetch(&handler, get(&root, "/cgi-bin/loud")).await.body, "x");
        let line = programs.notices.wait_for("oh").await;
        assert!(line.ends_with("cgi/loud: GET /cgi-bin/loud: oh"), "{line}");
        programs.notices.wait_for("ended with status 3").await;
    });
}

#[test]
fn request_and_response_bodies_are_transferred() {
    let programs = Programs::new();
    programs.add(
        "echo",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s:' $CONTENT_LENGTH\ncat\n",
    );
    programs.add(
        "deaf",
        "#!/bin/sh\nexec <&-\nprintf 'Status: 200\\n\\ndone'\n",
    );
    programs.add(
        "writer",
        "#!/bin/sh\nprintf 'Status: 200\\n\\n'\nhead -c 3000000 /dev/zero\n",
    );
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let answer = fetch(&handler, post(&root, "/cgi-bin/echo", b"hello")).await;
        assert_eq!(answer.body, "5:hello");
        // Without Content-Length, the body is buffered to determine its length.
        let mut request = post(&root, "/cgi-bin/echo", b"hello");
        request.body.len = None;
        assert_eq!(fetch(&handler, request).await.body, "5:hello");
        let mut request = upload(&root, "/cgi-bin/echo", 2 << 20);
        request.body.len = None;
        assert_eq!(fail(&handler, request).await.status.code(), 411);
        // Programs that do not read their input.
        let request = upload(&root, "/cgi-bin/deaf", 10 << 20);
        assert_eq!(fetch(&handler, request).await.body, "done");
        let request = upload(&root, "/cgi-bin/writer", 10 << 20);
        assert_eq!(fetch(&handler, request).await.body.len(), 3_000_000);
    });
}

/// A program that starts a child process, writes both PIDs to a file, and hangs. Both ignore SIGTERM.
const HANG: &str = "#!/bin/sh\ntrap '' TERM\nsleep 1000 &\necho $$ $! > pids.new\n\
                    mv pids.new pids\nwait\nwait\n";

async fn wait_for_pids(programs: &Programs) -> Vec<String> {
    let file = programs.path().join("cgi/pids");
    until("the program's numbers", || {
        let text = std::fs::read_to_string(&file).ok()?;
        Some(text.split_whitespace().map(String::from).collect())
    })
    .await
}

async fn wait_for_end(pids: &[String]) {
    for pid in pids {
        until("its end", || (!is_alive(pid)).then_some(())).await;
    }
}

#[test]
fn cancelled_request_kills_process_group_before_head() {
    let programs = Programs::new();
    programs.add("hang", HANG);
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let HandlerResult::OnRuntime(answering) =
            handler.clone().begin(0, get(&root, "/cgi-bin/hang"))
        else {
            panic!("at once");
        };
        let task = tokio::spawn(answering);
        let pids = wait_for_pids(&programs).await;
        assert_eq!(pids.len(), 2);
        task.abort();
        wait_for_end(&pids).await;
    });
}

#[test]
fn cancelled_request_kills_process_group_after_head() {
    let programs = Programs::new();
    programs.add(
        "hang",
        &HANG.replace("wait\nwait", "printf 'Status: 200\\n\\nx'\nwait\nwait"),
    );
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let response = send_request(&handler, get(&root, "/cgi-bin/hang"))
            .await
            .expect("a head");
        let pids = wait_for_pids(&programs).await;
        assert!(is_alive(&pids[1]));
        drop(response);
        wait_for_end(&pids).await;
    });
}

#[test]
fn death_by_signal_is_502_or_truncated_response() {
    let programs = Programs::new();
    let head = "#!/bin/sh\nprintf 'Status: 200\\n\\nhalf'\n";
    programs.add("early", "#!/bin/sh\nkill -9 $$\n");
    programs.add("soon", &format!("{head}kill -9 $$\n"));
    programs.add("late", &format!("{head}cat >/dev/null\nkill -9 $$\n"));
    programs.add("closed", &format!("{head}exec >&-\nexec sleep 1000\n"));
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let failure = fail(&handler, get(&root, "/cgi-bin/early")).await;
        assert_eq!(failure.status.code(), 502);
        assert!(
            failure.detail.contains("ended with signal 9"),
            "{failure:?}"
        );
        match send_request(&handler, get(&root, "/cgi-bin/soon")).await {
            Ok(response) => assert!(collect_response(response).await.cut),
            Err(failure) => assert_eq!(failure.status.code(), 502),
        }
        let (sender, receiver) = stream(100);
        let mut request = post(&root, "/cgi-bin/late", b"");
        request.body = lowroad_handler::RequestBody {
            len: Some(100_004),
            stream: Some(receiver),
        };
        // The program sends its head before it receives the whole request body.
        let most = vec![b'x'; 100_000];
        sender.push(most.into()).expect("it is not asked yet");
        let response = send_request(&handler, request).await.expect("a head");
        sender.push("text".into()).expect("somebody reads");
        sender.end();
        let answer = collect_response(response).await;
        assert_eq!((answer.body.as_str(), answer.cut), ("half", true));
        programs.notices.wait_for("late ended with signal 9").await;
        // A program that closes its output has completed its response, even if it keeps running.
        let answer = fetch(&handler, get(&root, "/cgi-bin/closed")).await;
        assert_eq!((answer.body.as_str(), answer.cut), ("half", false));
    });
}

#[test]
fn truncated_request_body_kills_program() {
    let programs = Programs::new();
    programs.add("hang", HANG);
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let mut request = post(&root, "/cgi-bin/hang", b"");
        let (sender, receiver) = stream(1);
        let start = Bytes::from_static(&[b'x'; 64 << 10]);
        sender.push(start).expect("just made");
        request.body.len = Some(100_000);
        request.body.stream = Some(receiver);
        let handler = handler.clone();
        let task = tokio::spawn(async move { send_request(&handler, request).await.map(drop) });
        let pids = wait_for_pids(&programs).await;
        drop(sender);
        assert!(task.await.expect("no panic").is_err());
        wait_for_end(&pids).await;
    });
}

#[test]
fn program_timeout_applies_before_and_after_head() {
    let programs = Programs::new();
    programs.add("hang", HANG);
    programs.add(
        "half",
        "#!/bin/sh\nprintf 'Status: 200\\n\\nhalf'\nsleep 1000\n",
    );
    let handler = programs.handler_with(|route, _| route.timeout_ms = 300);
    let root = programs.path();
    runtime().block_on(async {
        let failure = fail(&handler, get(&root, "/cgi-bin/hang")).await;
        assert_eq!(failure.status, StatusCode::GATEWAY_TIMEOUT);
        wait_for_end(&wait_for_pids(&programs).await).await;
        let answer = fetch(&handler, get(&root, "/cgi-bin/half")).await;
        assert_eq!((answer.body.as_str(), answer.cut), ("half", true));
        programs.notices.wait_for("300 ms").await;
    });
}

#[test]
fn children_of_exited_program_keep_running() {
    let programs = Programs::new();
    programs.add(
        "leave",
        "#!/bin/sh\nsleep 1000 </dev/null >/dev/null 2>&1 &\necho $! > pids\n\
         printf 'Status: 200\\n\\nbye'\n",
    );
    let handler = programs.handler_with(|route, _| route.concurrency_max = 1);
    let root = programs.path();
    runtime().block_on(async {
        let answer = fetch(&handler, get(&root, "/cgi-bin/leave")).await;
        assert_eq!((answer.body.as_str(), answer.cut), ("bye", false));
        let first = wait_for_pids(&programs).await;
        // When the permit has been released, the first program is no longer involved.
        let again = until_answered(&handler, &root, "/cgi-bin/leave").await;
        assert_eq!(again.expect("an answer").body, "bye");
        let second = wait_for_pids(&programs).await;
        assert!(is_alive(&first[0]), "it was left alone");
        for pid in [&first[0], &second[0]] {
            let killed = Command::new("kill").args(["-KILL", pid]).status();
            assert!(killed.is_ok_and(|status| status.success()));
        }
    });
}

/// A program that exits before its output ends: a child process continues the output when the file `go` exists.
const GOES_ON: &str = "#!/bin/sh\n(until [ -e go ]; do sleep 0.01; done; printf rest) &\n\
                       echo $$ $! > pids.new\nmv pids.new pids\nprintf 'Status: 200\\n\\nhalf '\n";

#[test]
fn response_ends_when_last_process_closes_output() {
    let programs = Programs::new();
    programs.add("on", GOES_ON);
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let response = send_request(&handler, get(&root, "/cgi-bin/on")).await;
        let response = response.expect("a head");
        wait_for_end(&wait_for_pids(&programs).await[..1]).await;
        programs.folder.file("cgi/go", "");
        let answer = collect_response(response).await;
        assert_eq!((answer.body.as_str(), answer.cut), ("half rest", false));
    });
}

#[test]
fn children_writing_output_are_killed_with_request() {
    let programs = Programs::new();
    programs.add("on", GOES_ON);
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let response = send_request(&handler, get(&root, "/cgi-bin/on")).await;
        let pids = wait_for_pids(&programs).await;
        wait_for_end(&pids[..1]).await;
        assert!(is_alive(&pids[1]));
        drop(response);
        wait_for_end(&pids).await;
    });
}

/// Writes its parent's PID and its own to a file, and hangs.
const TELLS: &str = "#!/bin/sh\necho $PPID $$ > pids.new\nmv pids.new pids\nexec sleep 1000\n";

#[test]
fn killed_spawner_is_restarted() {
    let programs = Programs::new();
    programs.add("tell", TELLS);
    programs.add("say", "#!/bin/sh\nprintf 'Status: 200\\n\\nhere'\n");
    let handler = programs.handler_by(new_spawner(&programs.notices), |_, _| {});
    let root = programs.path();
    runtime().block_on(async {
        let task = {
            let (handler, request) = (handler.clone(), get(&root, "/cgi-bin/tell"));
            tokio::spawn(async move { send_request(&handler, request).await.map(drop) })
        };
        let pids = wait_for_pids(&programs).await;
        let killed = Command::new("kill").args(["-KILL", &pids[0]]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let failure = task.await.expect("no panic").expect_err("it is lost");
        assert_eq!(failure.status, StatusCode::BAD_GATEWAY, "{failure:?}");
        wait_for_end(&pids).await;
        programs
            .notices
            .wait_for("the next request starts a new one")
            .await;
        let answer = fetch(&handler, get(&root, "/cgi-bin/say")).await;
        assert_eq!(answer.body, "here");
    });
}

#[test]
fn programs_are_killed_when_spawner_socket_closes() {
    let programs = Programs::new();
    programs.add("tell", TELLS);
    let spawner = new_spawner(&programs.notices);
    let handler = programs.handler_by(spawner, |_, _| {});
    let root = programs.path();
    let runtime = runtime();
    let pids = runtime.block_on(async {
        let HandlerResult::OnRuntime(answering) = handler.begin(0, get(&root, "/cgi-bin/tell"))
        else {
            panic!("at once");
        };
        tokio::spawn(answering);
        wait_for_pids(&programs).await
    });
    // Dropping the runtime closes the socket to the spawner process.
    drop(runtime);
    crate::runtime().block_on(wait_for_end(&pids));
}

#[test]
fn program_starts_when_request_body_is_buffered() {
    let programs = Programs::new();
    programs.add(
        "count",
        "#!/bin/sh\ntouch started\nprintf 'Status: 200\\n\\n'\nwc -c | tr -d '\\n'\n",
    );
    let handler = programs.handler_with(|route, _| route.concurrency_max = 1);
    let root = programs.path();
    let started = programs.path().join("cgi/started");
    runtime().block_on(async {
        let mut request = post(&root, "/cgi-bin/count", b"");
        let (sender, receiver) = stream(1 << 20);
        sender.push(Bytes::from_static(b"abc")).expect("just made");
        request.body.len = Some(100_003);
        request.body.stream = Some(receiver);
        let HandlerResult::OnRuntime(mut answering) = handler.clone().begin(0, request) else {
            panic!("at once");
        };
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(answering.as_mut().poll(&mut context).is_pending());
        // Nor does the waiting request occupy the permit.
        let answer = fetch(&handler, get(&root, "/cgi-bin/count")).await;
        assert_eq!(answer.body, "0");
        std::fs::remove_file(&started).expect("it was started");
        assert!(answering.as_mut().poll(&mut context).is_pending());
        assert!(!started.exists());
        let rest = Bytes::from(vec![b'x'; 100_000]);
        sender.push(rest).expect("it waits for it");
        sender.end();
        // The only permit is released when the last process has ended.
        until("a free place", || {
            let begun = handler.clone().begin(0, get(&root, "/cgi-bin/count"));
            matches!(begun, HandlerResult::OnRuntime(_)).then_some(())
        })
        .await;
        let response = answering.await.expect("a response");
        assert_eq!(collect_response(response).await.body, "100003");
    });
}

#[test]
fn storable_response_is_collected() {
    let programs = Programs::new();
    let pieces = "printf one; sleep 0.05; printf two; sleep 0.05; printf three\n";
    let head = "#!/bin/sh\nprintf 'Content-Type: text/plain\\nCache-Control: max-age=60\\n\\n'\n";
    programs.add("kept", &format!("{head}{pieces}"));
    programs.add("large", &format!("{head}head -c 3000000 /dev/zero\n"));
    programs.add("slow", &format!("{head}printf one; exec sleep 1000\n"));
    let handler = programs.handler();
    let root = programs.path();
    runtime().block_on(async {
        let response = send_request(&handler, get(&root, "/cgi-bin/kept")).await;
        let ResponseContent::Bytes(body) = response.expect("a response").content else {
            panic!("streamed");
        };
        assert_eq!(body, "onetwothree");
        let answer = fetch(&handler, get(&root, "/cgi-bin/large")).await;
        assert_eq!((answer.body.len(), answer.cut), (3_000_000, false));
        // A response that takes too long is streamed.
        let response = send_request(&handler, get(&root, "/cgi-bin/slow")).await;
        let ResponseContent::Stream { stream, .. } = response.expect("a head").content else {
            panic!("not streamed");
        };
        assert_eq!(
            stream.next().await,
            StreamItem::Bytes(Bytes::from_static(b"one"))
        );
    });
}

#[test]
fn replaced_program_folder_symlink_takes_effect() {
    let programs = Programs::new();
    for version in ["one", "two"] {
        let text = format!("#!/bin/sh\nprintf 'Status: 200\\n\\n{version}'\n");
        programs.add(&format!("../{version}/which"), &text);
    }
    let root = programs.path();
    let link = root.join("current");
    std::os::unix::fs::symlink("one", &link).expect("a link");
    let handler = programs.handler_with(|_, cgi| cgi.path = Some(link.clone()));
    runtime().block_on(async {
        let request = || get(&root, "/cgi-bin/which");
        assert_eq!(fetch(&handler, request()).await.body, "one");
        std::os::unix::fs::symlink("two", root.join("next")).expect("a link");
        std::fs::rename(root.join("next"), &link).expect("a place");
        std::fs::remove_dir_all(root.join("one")).expect("it was there");
        assert_eq!(fetch(&handler, request()).await.body, "two");
    });
}

#[test]
fn process_limits_on_number_memory_and_cpu_apply() {
    let programs = Programs::new();
    programs.add("hang", HANG);
    programs.add(
        "limits",
        "#!/bin/sh\nprintf 'Status: 200\\n\\n'\nulimit -v; ulimit -t; ulimit -c\n\
         awk '/Max processes/ { print $3 }' /proc/self/limits\n",
    );
    programs.add("spin", "#!/bin/sh\nwhile :; do :; done\n");
    programs.add(
        "hungry",
        "#!/usr/bin/perl\nmy $x = 'a' x (300 << 20);\nprint \"Status: 200\\n\\nfull\";\n",
    );
    let handler = programs.handler_with(|route, cgi| {
        route.concurrency_max = 1;
        cgi.memory_len_max = 128 << 20;
        cgi.cpu_s_max = 1;
        cgi.processes_max = 5000;
    });
    let root = programs.path();
    runtime().block_on(async {
        let HandlerResult::OnRuntime(answering) =
            handler.clone().begin(0, get(&root, "/cgi-bin/hang"))
        else {
            panic!("at once");
        };
        let task = tokio::spawn(answering);
        let pids = wait_for_pids(&programs).await;
        let failure = fail(&handler, get(&root, "/cgi-bin/limits")).await;
        assert_eq!(failure.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(failure.detail.contains("concurrency"), "{failure:?}");
        task.abort();
        wait_for_end(&pids).await;
        let answer = until_answered(&handler, &root, "/cgi-bin/limits").await;
        assert_eq!(answer.expect("an answer").body, "131072\n1\n0\n5000\n");
        let failure = until_answered(&handler, &root, "/cgi-bin/hungry").await;
        assert_eq!(failure.expect_err("no memory").status.code(), 502);
        let failure = until_answered(&handler, &root, "/cgi-bin/spin").await;
        let failure = failure.expect_err("no time");
        assert_eq!(failure.status.code(), 502);
        assert!(
            failure.detail.contains("spin ended with signal"),
            "{failure:?}"
        );
    });
}

/// Retries until the only permit has been released, which happens after the end of the last process.
async fn until_answered(
    handler: &Arc<CgiHandler>,
    root: &Path,
    path: &str,
) -> Result<CollectedResponse, lowroad_handler::HandlerFailure> {
    loop {
        match send_request(handler, get(root, path)).await {
            Ok(response) => return Ok(collect_response(response).await),
            Err(failure) if failure.status == StatusCode::SERVICE_UNAVAILABLE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

#[test]
fn dropping_runtime_kills_all_programs() {
    let programs = Programs::new();
    programs.add("hang", HANG);
    let handler = programs.handler();
    let root = programs.path();
    let runtime = runtime();
    let pids = runtime.block_on(async {
        let HandlerResult::OnRuntime(answering) =
            handler.clone().begin(0, get(&root, "/cgi-bin/hang"))
        else {
            panic!("at once");
        };
        tokio::spawn(answering);
        wait_for_pids(&programs).await
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    crate::runtime().block_on(wait_for_end(&pids));
}
