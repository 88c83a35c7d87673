//! FastCGI with real php-fpm, on a unix socket and on TCP.

mod cgi_support;
mod fastcgi_support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lowroad_config::{FastCgiConfig, RouteConfig, SymlinkPolicy, UpstreamAddress};
use lowroad_engine::stream::StreamItem;
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::FastCgiServers;
use lowroad_handler::ResponseContent;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_testkit::TempFolder;

use cgi_support::{
    Notices, fail, fastcgi_route, fetch, get, head, memory_peak_kib, post, runtime, send_request,
    upload,
};
use fastcgi_support::Fpm;

/// A site with PHP scripts.
struct Site {
    folder: TempFolder,
    notices: Notices,
    servers: FastCgiServers,
}

const SHOW: &str = "<?php foreach (['SCRIPT_NAME', 'PATH_INFO', 'SCRIPT_FILENAME', \
     'REQUEST_URI', 'QUERY_STRING', 'REQUEST_METHOD', 'HTTP_X_TEST', 'HTTP_PROXY'] as $name) \
     echo $name, '=', $_SERVER[$name] ?? '-', \"\\n\";";

impl Site {
    fn new() -> Site {
        let folder = TempFolder::new();
        for (name, text) in [
            ("index.php", SHOW),
            ("a/index.php", SHOW),
            ("a/plain.jpg", SHOW),
            ("hello.php", "<?php echo 'hello';"),
            (
                "count.php",
                "<?php $in = fopen('php://input', 'r'); $n = 0; \
                 while (($x = fread($in, 65536)) !== '' && $x !== false) $n += strlen($x); \
                 echo $n;",
            ),
            (
                "form.php",
                "<?php $f = $_FILES['f']; echo $f['name'], ' ', $f['size'], ' ', \
                 md5_file($f['tmp_name']), ' ', $_POST['t'];",
            ),
            (
                "big.php",
                "<?php $x = str_repeat('y', 1 << 20); for ($i = 0; $i < 100; $i++) echo $x;",
            ),
            (
                "status.php",
                "<?php http_response_code(404); header('X-A: b'); setcookie('a', '1'); \
                 setcookie('b', '2'); echo 'gone';",
            ),
            ("moved.php", "<?php header('Location: /there');"),
            ("error.php", "<?php error_log('oh dear'); echo 'fine';"),
            ("sleep.php", "<?php sleep(1000);"),
            (
                "die.php",
                "<?php echo str_repeat('z', 100000); flush(); posix_kill(getmypid(), 9);",
            ),
            ("slow.php", "<?php usleep(20000); echo getmypid();"),
            (
                "password.php",
                "<?php echo $_SERVER['PHP_AUTH_USER'] ?? '-';",
            ),
        ] {
            folder.file(PathBuf::from("www").join(name), text);
        }
        Site {
            folder,
            notices: Notices::default(),
            servers: FastCgiServers::new(&[fastcgi_support::local()]),
        }
    }

    fn root(&self) -> PathBuf {
        std::fs::canonicalize(self.folder.path().join("www")).expect("it is there")
    }

    fn handler(
        &self,
        pattern: &str,
        address: &UpstreamAddress,
        change: impl FnOnce(&mut RouteConfig, &mut FastCgiConfig),
    ) -> Arc<FastCgiHandler> {
        let (mut route, mut fastcgi) = fastcgi_route(pattern, address.clone());
        change(&mut route, &mut fastcgi);
        let notice = self.notices.notice();
        let (symlinks, servers) = (SymlinkPolicy::Beneath, &self.servers);
        let handler = FastCgiHandler::new(&route, &fastcgi, symlinks, servers, notice);
        Arc::new(handler)
    }
}

#[test]
fn php_scripts_run_over_unix_and_tcp() {
    for tcp in [false, true] {
        let site = Site::new();
        let Some(fpm) = Fpm::start("php_scripts_run_over_unix_and_tcp", &site.folder, tcp, 2)
        else {
            return;
        };
        let handler = site.handler("/**", &fpm.address, |_, _| {});
        let root = site.root();
        runtime().block_on(async {
            for _ in 0..20 {
                assert_eq!(
                    fetch(&handler, get(&root, "/hello.php")).await.body,
                    "hello"
                );
            }
            let answer = fetch(&handler, get(&root, "/status.php")).await;
            assert_eq!((answer.status, answer.body.as_str()), (404, "gone"));
            assert_eq!(answer.field("X-A"), Some("b"));
            let cookies = answer
                .fields
                .iter()
                .filter(|(name, _)| name == "Set-Cookie");
            assert_eq!(cookies.count(), 2);
            let answer = fetch(&handler, get(&root, "/moved.php")).await;
            assert_eq!(answer.status, 302);
            let mut request = get(&root, "/hello.php");
            request.method = Method::Head;
            let answer = fetch(&handler, request).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, ""));
            let mut request = get(&root, "/password.php");
            request.head = head("/password.php", "Authorization: Basic YTpi\r\n");
            assert_eq!(fetch(&handler, request).await.body, "a");
            let answer = fetch(&handler, get(&root, "/error.php")).await;
            assert_eq!(answer.body, "fine");
            site.notices.wait_for("oh dear").await;
        });
    }
}

#[test]
fn php_paths_map_to_scripts() {
    let site = Site::new();
    let Some(fpm) = Fpm::start("php_paths_map_to_scripts", &site.folder, false, 1) else {
        return;
    };
    let handler = site.handler("/**", &fpm.address, |_, _| {});
    let root = site.root();
    runtime().block_on(async {
        for (target, name, info) in [
            ("/", "/index.php", "-"),
            ("/a/", "/a/index.php", "-"),
            ("/index.php/x/y", "/index.php", "/x/y"),
            ("/a/index.php/?q=1", "/a/index.php", "/"),
        ] {
            let mut request = get(&root, target);
            request.head = head(target, "X-Test: 1\r\nProxy: evil\r\n");
            let body = fetch(&handler, request).await.body;
            let query = target.split_once('?').map_or("", |(_, query)| query);
            let want = format!(
                "SCRIPT_NAME={name}\nPATH_INFO={info}\nSCRIPT_FILENAME={}{name}\n\
                 REQUEST_URI={target}\nQUERY_STRING={query}\nREQUEST_METHOD=GET\n\
                 HTTP_X_TEST=1\nHTTP_PROXY=-\n",
                root.display()
            );
            assert_eq!(body, want, "{target}");
        }
        let answer = fetch(&handler, get(&root, "/a?b=1")).await;
        assert_eq!(answer.status, 301);
        assert_eq!(answer.field("Location"), Some("/a/?b=1"));
        for target in [
            "/none.php",
            "/none.php/x",
            "/a/plain.jpg",
            "/a/plain.jpg/x.php",
            "/a/plain.jpg/index.php",
            "/../fpm.conf",
        ] {
            let failure = fail(&handler, get(&root, target)).await;
            assert_eq!(failure.status, StatusCode::NOT_FOUND, "{target}");
        }
    });
}

#[test]
fn front_controller_handles_paths_without_file() {
    let site = Site::new();
    let Some(fpm) = Fpm::start(
        "front_controller_handles_paths_without_file",
        &site.folder,
        false,
        1,
    ) else {
        return;
    };
    let handler = site.handler("/**", &fpm.address, |_, fastcgi| {
        fastcgi.script = Some("/index.php".to_string());
    });
    let root = site.root();
    runtime().block_on(async {
        for (target, info) in [
            ("/2026/11/hello-world/?p=1", "-"),
            ("/wiki/.NET", "-"),
            ("/index.php/2026/", "/2026/"),
        ] {
            let body = fetch(&handler, get(&root, target)).await.body;
            let start = format!("SCRIPT_NAME=/index.php\nPATH_INFO={info}\n");
            assert!(body.starts_with(&start), "{body}");
            assert!(body.contains(&format!("REQUEST_URI={target}\n")), "{body}");
        }
    });
}

#[test]
fn php_upload_and_download_need_little_memory() {
    let site = Site::new();
    let test = "php_upload_and_download_need_little_memory";
    let Some(fpm) = Fpm::start(test, &site.folder, false, 2) else {
        return;
    };
    // 1 GB when run by hand, which needs as much disk space.
    let len: u64 = match std::env::var("LOWROAD_UPLOAD_MIB") {
        Ok(mib) => mib.parse::<u64>().expect("a number") << 20,
        Err(_) => 100 << 20,
    };
    let handler = site.handler("*.php", &fpm.address, |route, _| route.timeout_ms = 60_000);
    let root = site.root();
    let before = memory_peak_kib();
    runtime().block_on(async {
        let request = upload(&root, "/count.php", len);
        assert_eq!(fetch(&handler, request).await.body, len.to_string());
        let response = send_request(&handler, get(&root, "/big.php"))
            .await
            .expect("an answer");
        let ResponseContent::Stream { stream, .. } = response.content else {
            panic!("not streamed");
        };
        let mut got: u64 = 0;
        while let StreamItem::Bytes(bytes) = stream.next().await {
            got += bytes.len() as u64;
        }
        assert_eq!(got, 100 << 20);
        // The connection can be used for another request.
        assert_eq!(
            fetch(&handler, get(&root, "/hello.php")).await.body,
            "hello"
        );
    });
    let grown = memory_peak_kib().saturating_sub(before);
    eprintln!("{len} bytes up, grown by {grown} KiB");
    assert!(grown < 30 << 10, "{grown} KiB");
}

#[test]
fn multipart_form_reaches_php() {
    let site = Site::new();
    let Some(fpm) = Fpm::start("multipart_form_reaches_php", &site.folder, false, 1) else {
        return;
    };
    let handler = site.handler("*.php", &fpm.address, |_, _| {});
    let root = site.root();
    let file = vec![b'f'; 300_000];
    let body = [
        b"--B\r\nContent-Disposition: form-data; name=\"t\"\r\n\r\ntext\r\n--B\r\n\
          Content-Disposition: form-data; name=\"f\"; filename=\"x.bin\"\r\n\
          Content-Type: application/octet-stream\r\n\r\n",
        &file[..],
        b"\r\n--B--\r\n",
    ]
    .concat();
    runtime().block_on(async {
        let mut request = post(&root, "/form.php", &body);
        let lines = "Content-Type: multipart/form-data; boundary=B\r\n";
        request.head = head("/form.php", lines);
        let answer = fetch(&handler, request).await;
        assert_eq!(
            answer.body,
            "x.bin 300000 e6370dae477cd07d9ceaa0325388a6b8 text"
        );
    });
}

#[test]
fn more_requests_than_php_processes_are_all_answered() {
    let site = Site::new();
    let test = "more_requests_than_php_processes_are_all_answered";
    let Some(fpm) = Fpm::start(test, &site.folder, false, 2) else {
        return;
    };
    let handler = site.handler("*.php", &fpm.address, |_, _| {});
    let root = site.root();
    runtime().block_on(async {
        let tasks: Vec<_> = (0..60)
            .map(|_| {
                let (handler, root) = (handler.clone(), root.clone());
                tokio::spawn(async move { fetch(&handler, get(&root, "/slow.php")).await.body })
            })
            .collect();
        for task in tasks {
            let pid = task.await.expect("an answer");
            assert!(pid.parse::<u32>().is_ok(), "{pid}");
        }
    });
}

#[test]
fn hanging_or_dying_scripts() {
    let site = Site::new();
    let Some(fpm) = Fpm::start("hanging_or_dying_scripts", &site.folder, false, 2) else {
        return;
    };
    let handler = site.handler("*.php", &fpm.address, |route, _| route.timeout_ms = 500);
    let root = site.root();
    runtime().block_on(async {
        let failure = fail(&handler, get(&root, "/sleep.php")).await;
        assert_eq!(failure.status, StatusCode::GATEWAY_TIMEOUT);
        match send_request(&handler, get(&root, "/die.php")).await {
            Ok(response) => assert!(cgi_support::collect_response(response).await.cut),
            Err(failure) => assert_eq!(failure.status, StatusCode::BAD_GATEWAY),
        }
        // The other PHP process still answers.
        tokio::time::timeout(Duration::from_secs(10), async {
            while send_request(&handler, get(&root, "/hello.php"))
                .await
                .is_err()
            {}
        })
        .await
        .expect("an answer");
    });
}

#[test]
fn unreachable_fastcgi_server_is_502() {
    let site = Site::new();
    let address = UpstreamAddress::Unix(site.folder.path().join("none.sock"));
    let handler = site.handler("*.php", &address, |_, _| {});
    let root = site.root();
    runtime().block_on(async {
        let failure = fail(&handler, get(&root, "/hello.php")).await;
        assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
        assert!(failure.detail.contains("check that it runs"), "{failure:?}");
    });
}
