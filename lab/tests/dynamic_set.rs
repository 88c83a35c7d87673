//! Compares the dynamic set of `examples/specweb99` with the lab's PHP program: every front must return the same bytes,
//! and a log of forms with several writers must stay consistent.

#[path = "dynamic_set/fastcgi.rs"]
mod fastcgi;
#[path = "dynamic_set/fronts.rs"]
mod fronts;
#[path = "dynamic_set/modules.rs"]
mod modules;

use std::sync::Arc;
use std::thread;

use fronts::{BuiltFronts, ComparedResponse, FastCgi, TestFileSet, TestRequest, form, get};
use lowroad_lab::workload::specweb99::{PostLog, fetch_target, reset_target};
use lowroad_testkit::skip;
use modules::{Host, serve_cgi};

const BEFORE: &str = "<html>\n<head><title>SPECweb99 Dynamic GET & POST Test</title></head>\n<body>\n\
                      <p>SERVER_SOFTWARE = Lowroad\n<p>REMOTE_ADDR = 127.0.0.1\n\
                      <p>SCRIPT_NAME = /specweb99\n<p>QUERY_STRING = ";
const AFTER: &str = "\n</pre>\n</body></html>\n";

/// All kinds of requests in the rules, and requests that must be rejected.
fn asks() -> Vec<TestRequest> {
    let file = "/file_set/dir00000/";
    let cookie = "my_cookie=user_id=10001&last_ad=20";
    vec![
        get(&format!("{file}class1_3"), ""),
        get(&format!("{file}class3_0"), ""),
        get("file_set/dir00000/class0_0", ""),
        get(&format!("{file}class0_4"), cookie),
        get(&format!("{file}class1_4"), cookie),
        get(
            &format!("{file}class2_8"),
            "a=b; my_cookie=user_id=10049&last_ad=359; c=d",
        ),
        get(&format!("{file}class3_2"), cookie),
        // An unknown user, and none.
        get(
            &format!("{file}class1_4"),
            "my_cookie=user_id=10050&last_ad=3",
        ),
        get(
            &format!("{file}class1_4"),
            "my_cookie=user_id=9999&last_ad=3",
        ),
        get(
            &format!("{file}class1_4"),
            "xmy_cookie=user_id=10001&last_ad=3",
        ),
        get(&format!("{file}class1_4"), "my_cookie=user_id=10001"),
        // Paths outside of the set.
        get("", ""),
        get("x<y>&z", ""),
        get(&format!("{file}class4_0"), ""),
        get(&format!("{file}class1_9"), ""),
        get("/file_set/dir0000/class1_0", ""),
        get("/file_set/../dir00000/class1_0", ""),
        get("/file_set//dir00000/class1_0", ""),
        get("/file_set/dir00077/class1_4", cookie),
        get("command/Reset&maxload=5", ""),
        get(
            "command/Reset&maxload=5&pttime=1&maxthread=5&exp=1;2&urlroot=/",
            "",
        ),
        form("urlroot=/file_set/&dir=00000&class=2&num=3&client=7", ""),
        form(
            "class=1&client=2&dir=0&num=3&urlroot=%2Ffile_set%2f",
            cookie,
        ),
        form("urlroot=/file_set/&dir=00000&class=4&num=3&client=7", ""),
        form("urlroot=/file_set/&dir=00000&class=1&num=9&client=7", ""),
        form("urlroot=/../file_set/&dir=00000&class=1&num=8&client=7", ""),
        form("dir=1", ""),
        form("", ""),
    ]
}

#[test]
fn cgi_fastcgi_and_modules_give_identical_responses() {
    let Some(built) = BuiltFronts::new("cgi_fastcgi_and_modules_give_identical_responses") else {
        return;
    };
    let data = TestFileSet::new(50);
    let fastcgi = FastCgi::start(&built, &data, 1);
    for ask in asks() {
        let expected = built.cgi(&data, &ask);
        assert_eq!(built.library(&data, &ask, 1), expected, "library: {ask:?}");
        if let Some(fastcgi) = &fastcgi {
            assert_eq!(fastcgi.ask(&ask), expected, "FastCGI: {ask:?}");
        }
        if let Some(answer) = built.php(&data, &ask) {
            assert_eq!(answer, expected, "PHP: {ask:?}");
        }
    }
    // Two of the forms are valid, and each front has logged them.
    let log = PostLog::parse(&data.log()).expect("a log in order");
    let fronts = 2 + u64::from(fastcgi.is_some()) + u64::from(built.has_php());
    assert_eq!(log.by_class, [0, fronts, fronts, 0]);
    let ask = get("command/Fetch", "");
    let page = built.cgi(&data, &ask);
    assert_eq!(PostLog::parse(&page.body), Ok(log));
    assert_eq!(built.library(&data, &ask, 1), page);
}

#[test]
fn page_contains_its_file_between_header_and_footer() {
    let Some(built) = BuiltFronts::new("page_contains_its_file_between_header_and_footer") else {
        return;
    };
    let data = TestFileSet::new(50);
    let path = "/file_set/dir00000/class2_5";
    let file = String::from_utf8(data.site_file(path)).expect("text");
    let page = |file: &str| format!("{BEFORE}{path}\n<pre>\n{file}{AFTER}").into_bytes();
    let plain = built.cgi(&data, &get(path, ""));
    assert_eq!((plain.status, plain.set_cookie.as_deref()), (200, None));
    assert_eq!(plain.body, page(&file));

    let answer = built.cgi(&data, &get(path, "my_cookie=user_id=10001&last_ad=20"));
    let cookie = answer.set_cookie.as_deref().unwrap_or_default();
    // With the set's 50 clients, every 24th ad, beginning with ad 2, fits.
    assert_eq!(cookie, "found_cookie=Ad_id=26&Ad_weight=15&Expired=0");
    let open = "dirNNNNN/classX_Y";
    assert_eq!(file.matches(open).count(), 2);
    assert_eq!(
        answer.body,
        page(&file.replace(open, "dir00000/class2_8")),
        "ad 26"
    );
}

#[test]
fn reset_creates_the_same_files_as_the_lab() {
    let Some(built) = BuiltFronts::new("reset_creates_the_same_files_as_the_lab") else {
        return;
    };
    let data = TestFileSet::new(50);
    let (users, ads) = (data.file("User.Personality"), data.file("Custom.Ads"));
    let posted = form("urlroot=/file_set/&dir=0&class=2&num=3&client=7", "");
    assert_eq!(built.cgi(&data, &posted).status, 200);
    // The two expired ranges of the lab's set.
    let target = "?command/Reset&maxload=50&pttime=100&maxthread=50&exp=1,100&urlroot=/file_set/";
    let reset = built.cgi(&data, &get(&target[1..], ""));
    assert_eq!(
        reset.status,
        200,
        "{}",
        String::from_utf8_lossy(&reset.body)
    );
    assert_eq!(data.log(), b"         0\n");
    assert_eq!(data.file("User.Personality"), users);
    // All fields except the expiry time of the ads.
    let without_time = |ads: &[u8]| -> Vec<Vec<u8>> {
        ads.chunks(39).map(|record| record[..28].to_vec()).collect()
    };
    let made = data.file("Custom.Ads");
    assert_eq!(without_time(&made), without_time(&ads));
    let over = |ads: &[u8]| -> Vec<bool> {
        let first = ads[28..38].to_vec();
        ads.chunks(39).map(|ad| ad[28..38] != first).collect()
    };
    assert_eq!(over(&made), over(&ads));
    // The reset request of the lab.
    let target = reset_target("", 50, 100, 1);
    assert_eq!(built.library(&data, &get(&target[1..], ""), 2).status, 200);
    let page = built.cgi(&data, &get(&fetch_target("")[1..], ""));
    assert_eq!(PostLog::parse(&page.body).map(|log| log.records()), Ok(0));
}

/// The requests of SPECweb99's manager before a run.
#[test]
fn manager_commands_before_a_run_are_answered() {
    let Some(built) = BuiltFronts::new("manager_commands_before_a_run_are_answered") else {
        return;
    };
    let data = TestFileSet::new(100);
    let ask = |query: &str, cookie: &str| built.library(&data, &get(query, cookie), 1);
    let reset = "command/Reset&maxload=100&pttime=100&maxthread=100&exp=1,100&urlroot=/file_set/";
    assert_eq!(ask(reset, "").status, 200);
    let page = ask(
        "/file_set/dir00000/class1_0",
        "my_cookie=user_id=10001&last_ad=20",
    );
    let cookie = page.set_cookie.expect("an ad");
    let ad: u32 = cookie["found_cookie=Ad_id=".len()..]
        .split('&')
        .next()
        .and_then(|digits| digits.parse().ok())
        .expect("a number");
    let name = format!("dir{:05}/class{}_{}", ad / 36, ad % 36 / 9, ad % 9);
    let tag = format!("<!WEB99CAD><IMG SRC=\"/file_set/{name}\"><!/WEB99CAD>\n");
    assert!(String::from_utf8_lossy(&page.body).contains(&tag), "{tag}");
    let posted = form(
        "class=1&client=2&dir=00000&num=3&urlroot=/file_set/",
        "my_cookie=user_id=10001&last_ad=20",
    );
    let page = built.library(&data, &posted, 1);
    assert_eq!(page.set_cookie.as_deref(), Some("my_cookie=10001"));
    let log = PostLog::parse(&ask("command/Fetch", "").body).expect("a log in order");
    assert_eq!(log.by_class, [0, 1, 0, 0]);
}

#[test]
fn concurrent_posts_are_all_logged() {
    const WRITERS: usize = 8;
    const FORMS: usize = 1000;
    let Some(built) = BuiltFronts::new("concurrent_posts_are_all_logged") else {
        return;
    };
    let data = TestFileSet::new(50);
    let fastcgi = FastCgi::start(&built, &data, WRITERS);
    let ask = form("urlroot=/file_set/&dir=0&class=0&num=3&client=7", "");
    let good = |answer: ComparedResponse| assert_eq!(answer.status, 200);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| good(built.library(&data, &ask, FORMS)));
            if let Some(fastcgi) = &fastcgi {
                scope.spawn(|| {
                    let mut client = fastcgi.connect();
                    (0..FORMS).for_each(|_| good(fastcgi.ask_with(&mut client, &ask)));
                });
            }
        }
    });
    let log = PostLog::parse(&data.log()).expect("a log in order");
    let fronts = 1 + usize::from(fastcgi.is_some());
    assert_eq!(log.records() as usize, WRITERS * FORMS * fronts);
}

/// Whether the test host must answer the request. A missing stored object is handled by the server, not by the host.
fn is_for_hosts(ask: &TestRequest) -> bool {
    !ask.query.contains("dir00077")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn module_in_lowroad_gives_the_same_responses() {
    let test = "module_in_lowroad_gives_the_same_responses";
    let Some(built) = BuiltFronts::new(test) else {
        return;
    };
    let (built, data) = (Arc::new(built), Arc::new(TestFileSet::new(50)));
    let log = serve_cgi(&built, &data);
    let wasm = Host::wasm(&built, &data, log);
    if wasm.is_none() {
        skip(
            test,
            "the WebAssembly front was not built: clang, lld or wasi-libc is missing",
        );
    }
    let library = Host::library(&built, &data);
    for ask in asks().iter().filter(|ask| is_for_hosts(ask)) {
        let expected = built.cgi(&data, ask);
        let (answer, at_once) = library.ask(ask).await;
        assert_eq!(answer, expected, "library: {ask:?}");
        // Only files that must be loaded make the call wait.
        let is_loaded = !ask.cookie.is_empty() && expected.body.len() > 4096;
        assert!(at_once || is_loaded, "library: {ask:?} has waited");
        if let Some(wasm) = &wasm {
            assert_eq!(wasm.ask(ask).await.0, expected, "WebAssembly: {ask:?}");
        }
    }
    let reset = get(&reset_target("", 50, 100, 1)[1..], "");
    let log = get("command/Fetch", "");
    for host in [Some(&library), wasm.as_ref()].into_iter().flatten() {
        let posted = form("urlroot=/file_set/&dir=0&class=2&num=3&client=7", "");
        assert_eq!(host.ask(&posted).await.0.status, 200);
        assert_eq!(host.ask(&log).await.0, built.cgi(&data, &log));
        assert_eq!(host.ask(&reset).await.0, built.cgi(&data, &reset));
        assert_eq!(data.log(), b"         0\n");
    }
}
