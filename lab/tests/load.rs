//! The load generator with correct and faulty servers. Each server is a thread of the test with a socket; the figures
//! of a run must match the actions of the server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lowroad_lab::load::{LoadResult, LoadRun, OfferedTls, RequestPace, TlsSettings, run};
use lowroad_lab::workload::urls::{UrlSpec, UrlWorkload};
use lowroad_lab::workload::{PerConnection, WorkloadVersion};

/// Serves each connection in its own thread.
fn serve(each: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    let each = Arc::new(each);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let each = each.clone();
            thread::spawn(move || each(stream));
        }
    });
    address
}

/// Reads one head; `None` at the end of the connection.
fn head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn answer(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers every request with the same bytes.
fn serve_fixed_response(answer: impl Into<Vec<u8>>) -> SocketAddr {
    let answer = answer.into();
    serve(move |mut stream| {
        while head(&mut stream).is_some() {
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

fn urls(
    specs: Vec<UrlSpec>,
    version: WorkloadVersion,
    per_connection: PerConnection,
) -> Arc<UrlWorkload> {
    Arc::new(UrlWorkload::new(specs, "test", version, per_connection, true).expect("right URLs"))
}

/// A hundred requests on four connections, for at most ten seconds.
fn load(address: SocketAddr) -> LoadRun {
    LoadRun {
        connections: 4,
        requests: Some(100),
        timeout: Duration::from_secs(5),
        ..LoadRun::plain(
            address,
            urls(
                vec![UrlSpec::get("/")],
                WorkloadVersion::Http11,
                PerConnection::Unlimited,
            ),
        )
    }
}

fn outcome(load: &LoadRun) -> LoadResult {
    run(load, &mut |_| {}, &AtomicBool::new(false)).expect("it begins")
}

#[test]
fn openings_limit_runs_whole_connections() {
    let address = serve_fixed_response(answer("hello"));
    let workload = urls(
        vec![UrlSpec::get("/")],
        WorkloadVersion::Http11,
        PerConnection::Fixed(3),
    );
    let found = outcome(&LoadRun {
        connections: 4,
        openings: Some(6),
        workload,
        ..load_without_end(address)
    });
    assert_eq!(
        (found.connections, found.requests, found.errors),
        (6, 18, 0)
    );
    assert!(!found.interrupted);
}

#[test]
fn early_closes_do_not_prolong_a_run_limited_by_openings() {
    let address = serve(|mut stream| {
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na";
        if head(&mut stream).is_some() {
            let _ = stream.write_all(last.as_bytes());
        }
    });
    let workload = urls(
        vec![UrlSpec::get("/")],
        WorkloadVersion::Http11,
        PerConnection::Fixed(3),
    );
    let found = outcome(&LoadRun {
        openings: Some(6),
        workload,
        ..load_without_end(address)
    });
    assert_eq!((found.connections, found.requests), (6, 6));
}

/// Like [`load`], for an hour.
fn load_without_end(address: SocketAddr) -> LoadRun {
    LoadRun {
        requests: None,
        duration: Duration::from_secs(3600),
        ..load(address)
    }
}

#[test]
fn exact_number_of_requests_is_sent() {
    let counter = Arc::new(AtomicU64::new(0));
    let counted = counter.clone();
    let address = serve(move |mut stream| {
        while head(&mut stream).is_some() {
            counted.fetch_add(1, Relaxed);
            let _ = stream.write_all(answer("hello").as_bytes());
        }
    });
    for threads in [1, 3] {
        counter.store(0, Relaxed);
        let found = outcome(&LoadRun {
            threads,
            ..load(address)
        });
        assert_eq!((found.requests, found.errors), (100, 0));
        assert_eq!(counter.load(Relaxed), 100);
        assert!((1..=4).contains(&found.connections));
        assert_eq!(found.body_bytes, 500);
        assert_eq!(found.latency_us.count, 100);
        assert_eq!(found.statuses[&200], 100);
    }
}

#[test]
fn one_second_stall_shows_in_open_loop_latency() {
    // One connection, a request every 5 ms for 2 s; the 100th response takes a second. In a closed loop only one
    // request would be slow; in the open loop all requests are that were due during the stall.
    let stalling = |requests: &AtomicU64, mut stream: TcpStream| {
        while head(&mut stream).is_some() {
            if requests.fetch_add(1, Relaxed) == 100 {
                thread::sleep(Duration::from_secs(1));
            }
            let _ = stream.write_all(answer("x").as_bytes());
        }
    };
    let requests = AtomicU64::new(0);
    let address = serve(move |stream| stalling(&requests, stream));
    let found = outcome(&LoadRun {
        pace: RequestPace::Requests(200.0),
        connections: 1,
        requests: None,
        duration: Duration::from_secs(3),
        ..load(address)
    });
    assert_eq!(found.errors, 0);
    assert!(found.latency_us.p99 >= 900_000, "{:?}", found.latency_us);
    // Service time excludes the delay before sending, so it is long for only one request of 600.
    assert!(found.service_us.p95 < 500_000, "{:?}", found.service_us);
    assert!(found.service_us.max >= 1_000_000);
    assert_eq!(found.offered_per_s, Some(200.0));
}

#[test]
fn open_loop_opens_connections_at_the_offered_rate() {
    let address = serve(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
    });
    let found = outcome(&LoadRun {
        pace: RequestPace::Connections(100.0),
        workload: urls(
            vec![UrlSpec::get("/")],
            WorkloadVersion::Http10,
            PerConnection::Fixed(1),
        ),
        requests: None,
        duration: Duration::from_secs(1),
        ..load(address)
    });
    assert_eq!(found.errors, 0);
    assert!(found.requests <= 101, "no more than are due");
    assert!(found.requests + found.unfinished >= 99, "{found:?}");
    assert_eq!(found.connection_us.count, found.requests);
}

#[test]
fn requests_per_connection_match_the_setting() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let address = serve(move |mut stream| {
        let mut of_connection = Vec::new();
        while let Some(head) = head(&mut stream) {
            let last = head.contains("Connection: close");
            of_connection.push(head);
            let _ = stream.write_all(answer("x").as_bytes());
            if last {
                break;
            }
        }
        seen.lock().expect("not poisoned").push(of_connection);
    });
    let found = outcome(&LoadRun {
        workload: urls(
            vec![UrlSpec::get("/a")],
            WorkloadVersion::Http11,
            PerConnection::Fixed(5),
        ),
        connections: 1,
        ..load(address)
    });
    assert_eq!(
        (found.requests, found.errors, found.connections),
        (100, 0, 20)
    );
    assert!((found.requests_per_connection - 5.0).abs() < 1e-9);
    lowroad_testkit::wait_until("the server's last connection", || {
        (heads.lock().expect("not poisoned").len() == 20).then_some(())
    });
    for connection in heads.lock().expect("not poisoned").iter() {
        assert_eq!(connection.len(), 5);
        assert!(connection[4].contains("Connection: close"), "announced");
        assert!(!connection[3].contains("Connection: close"));
    }
}

/// A server with one process per connection needs no more processes than there are active clients.
#[test]
fn client_without_remaining_requests_closes_its_connection() {
    let one_at_a_time = Mutex::new(());
    let address = serve(move |mut stream| {
        let _one = one_at_a_time.lock();
        while head(&mut stream).is_some() {
            let answer = answer("hello");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let sessions = urls(
        vec![UrlSpec::get("/")],
        WorkloadVersion::Http11,
        PerConnection::Fixed(10),
    );
    let found = outcome(&LoadRun {
        workload: sessions,
        requests: Some(44),
        ..load(address)
    });
    assert_eq!((found.requests, found.errors), (44, 0));
}

#[test]
fn pipelined_responses_are_matched_to_their_requests() {
    let address = serve(|mut stream| {
        while let Some(head) = head(&mut stream) {
            let path = head.split(' ').nth(1).unwrap_or_default().to_string();
            let _ = stream.write_all(answer(&path).as_bytes());
        }
    });
    let spec = |path: &str| {
        let mut spec = UrlSpec::get(path);
        spec.expected_len = Some(path.len() as u64);
        spec.crc32 = Some(crc32fast::hash(path.as_bytes()));
        spec
    };
    let found = outcome(&LoadRun {
        workload: urls(
            vec![spec("/a"), spec("/bb"), spec("/cccc")],
            WorkloadVersion::Http11,
            PerConnection::Unlimited,
        ),
        pipeline: 8,
        requests: Some(2000),
        ..load(address)
    });
    assert_eq!((found.requests, found.errors), (2000, 0));
    assert_eq!(found.classes.len(), 3);
    assert!(found.classes.iter().all(|class| class.requests > 500));
}

#[test]
fn wrong_responses_are_counted_by_kind() {
    let address = serve_fixed_response(answer("hello"));
    let mut wrong_status = UrlSpec::get("/");
    wrong_status.expected_status = Some(404);
    let mut wrong_length = UrlSpec::get("/");
    wrong_length.expected_len = Some(6);
    let mut wrong_checksum = UrlSpec::get("/");
    wrong_checksum.crc32 = Some(crc32fast::hash(b"jello"));
    for (spec, kind) in [
        (wrong_status, "wrong_status"),
        (wrong_length, "wrong_length"),
        (wrong_checksum, "wrong_checksum"),
    ] {
        let found = outcome(&LoadRun {
            workload: urls(
                vec![spec],
                WorkloadVersion::Http11,
                PerConnection::Unlimited,
            ),
            requests: Some(20),
            ..load(address)
        });
        assert_eq!((found.requests, found.errors), (0, 20));
        assert_eq!(found.errors_by_kind[kind], 20);
    }
}

/// Sends twenty requests, and checks that all of them fail with this kind of error.
fn assert_kind(address: SocketAddr, kind: &str) {
    let found = outcome(&LoadRun {
        requests: Some(20),
        timeout: Duration::from_millis(300),
        ..load(address)
    });
    assert_eq!(found.requests, 0);
    let count = found.errors_by_kind.get(kind).copied().unwrap_or(0);
    assert!(count >= 4, "{kind}: {:?}", found.errors_by_kind);
    assert_eq!(count, found.errors, "{kind}: {:?}", found.errors_by_kind);
}

#[test]
fn malformed_truncated_and_missing_responses_are_errors() {
    assert_kind(
        serve_fixed_response("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        "malformed",
    );
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(100_000));
    assert_kind(serve_fixed_response(endless), "endless");
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    assert_kind(
        serve(move |mut stream| {
            head(&mut stream);
            let _ = stream.write_all(cut.as_bytes());
        }),
        "closed",
    );
    // The server half-closes the connection and keeps reading.
    assert_kind(
        serve(|mut stream| {
            head(&mut stream);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read(&mut [0]);
        }),
        "closed",
    );
    assert_kind(
        serve(|mut stream| while head(&mut stream).is_some() {}),
        "timeout",
    );
    let twice = format!("{}{}", answer("x"), answer("y"));
    let found = outcome(&load(serve_fixed_response(twice)));
    assert!(found.errors_by_kind["unasked"] > 0);
}

#[test]
fn reset_and_refused_connections_are_errors() {
    assert_kind(
        serve(|mut stream| {
            // Closing a socket with unread data sends a reset.
            let _ = stream.read(&mut [0]);
        }),
        "reset",
    );
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = nobody.local_addr().expect("its address");
    drop(nobody);
    // The run gives up long before its ten seconds are over.
    assert_kind(address, "connect_refused");
}

#[test]
fn unestablished_connections_are_unfinished() {
    let full = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    // No connection is accepted, and the accept queue holds one.
    rustix::net::listen(&full, 0).expect("a shorter queue");
    let found = outcome(&LoadRun {
        pace: RequestPace::Connections(200.0),
        connections: 200,
        requests: None,
        duration: Duration::from_millis(500),
        ..load(full.local_addr().expect("its address"))
    });
    assert_eq!((found.requests, found.errors), (0, 0));
    assert!((99..=101).contains(&found.unfinished), "{found:?}");
}

#[test]
fn endless_body_does_not_prolong_the_run() {
    let address = serve(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(b"4\r\nmore\r\n").is_ok() {}
    });
    let found = outcome(&LoadRun {
        duration: Duration::from_millis(500),
        ..load(address)
    });
    assert_eq!((found.requests, found.unfinished), (0, 4));
}

#[test]
fn line_speed_limits_throughput_and_conforms() {
    let address = serve_fixed_response(answer(&"x".repeat(10_000)));
    let found = outcome(&LoadRun {
        line_bits_per_s: Some(400_000),
        requests: None,
        duration: Duration::from_secs(3),
        ..load(address)
    });
    // 50,000 bytes a second are five responses, including their heads.
    let each_per_s = found.bytes_per_s / 4.0;
    assert!((40_000.0..=51_500.0).contains(&each_per_s), "{each_per_s}");
    let conforming = found.conforming.expect("there is a line");
    assert_eq!(conforming.least_bits_per_s, 320_000);
    assert_eq!(conforming.connections, 4);
}

#[test]
fn line_speed_applies_within_and_across_connections() {
    // 50 kB take a second at 400 kbit/s, less the two segments that a client reads ahead.
    let line = LoadRun {
        line_bits_per_s: Some(400_000),
        connections: 1,
        requests: Some(2),
        ..load(serve_fixed_response(answer(&"x".repeat(50_000))))
    };
    let found = outcome(&line);
    assert_eq!((found.requests, found.errors), (2, 0));
    assert!(found.transfer_us.min >= 900_000, "{:?}", found.transfer_us);
    // Small responses, each on its own connection, are limited by the line too.
    let address = serve(|mut stream| {
        head(&mut stream);
        let body = "x".repeat(1000);
        let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes());
    });
    let found = outcome(&LoadRun {
        workload: urls(
            vec![UrlSpec::get("/")],
            WorkloadVersion::Http10,
            PerConnection::Fixed(1),
        ),
        requests: None,
        duration: Duration::from_secs(2),
        ..line.clone()
    });
    assert_eq!(found.errors, 0);
    assert!(found.bytes_per_s <= 53_000.0, "{}", found.bytes_per_s);

    let mut elsewhere = line;
    elsewhere.target.addresses = vec![address];
    assert_eq!(outcome(&elsewhere).errors, 0);
}

#[test]
fn endless_response_does_not_block_other_clients() {
    let address = serve(|mut stream| {
        while let Some(head) = head(&mut stream) {
            if head.starts_with("GET /endless") {
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
                let piece = vec![b'x'; 1 << 20];
                while stream.write_all(&piece).is_ok() {}
            }
            let _ = stream.write_all(answer("x").as_bytes());
        }
    });
    let mut small = UrlSpec::get("/small");
    small.weight = 50.0;
    let found = outcome(&LoadRun {
        workload: urls(
            vec![UrlSpec::get("/endless"), small],
            WorkloadVersion::Http11,
            PerConnection::Unlimited,
        ),
        connections: 4,
        requests: None,
        duration: Duration::from_secs(1),
        seed: 7,
        ..load(address)
    });
    assert!(found.requests > 0 && found.errors == 0, "{found:?}");
    assert!(found.duration_s < 2.0);
}

#[test]
fn requests_behind_connection_close_are_sent_again() {
    // The server ends every connection after two responses, even if more requests are outstanding.
    let address = serve(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(answer("x").as_bytes());
        head(&mut stream);
        let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        let _ = stream.write_all(last.as_bytes());
        // A half-close avoids the reset for unread data.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while head(&mut stream).is_some() {}
    });
    let found = outcome(&LoadRun {
        pipeline: 4,
        ..load(address)
    });
    assert_eq!((found.requests, found.errors), (100, 0), "{found:?}");
    // Two responses per connection; at the end, a few more connections may have been opened.
    assert!((50..=54).contains(&found.connections), "{found:?}");
}

#[test]
fn reset_after_the_response_is_not_an_error() {
    let address = serve(|mut stream| {
        let mut start = [0; 20];
        let _ = stream.read_exact(&mut start);
        let text = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        // Closing before the rest of the request is read sends a reset.
        let _ = stream.write_all(text.as_bytes());
    });
    let mut spec = UrlSpec::get("/");
    spec.fields = vec![("X-Long".into(), "x".repeat(100))];
    let found = outcome(&LoadRun {
        workload: urls(vec![spec], WorkloadVersion::Http10, PerConnection::Fixed(1)),
        ..load(address)
    });
    assert_eq!((found.requests, found.errors), (100, 0), "{found:?}");
}

#[test]
fn unreachable_server_is_reported_during_warm_up() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = nobody.local_addr().expect("its address");
    drop(nobody);
    let found = outcome(&LoadRun {
        warmup: Duration::from_secs(60),
        threads: 2,
        ..load(address)
    });
    assert!(found.errors_by_kind["connect_refused"] > 0);
}

#[test]
fn invalid_rates_are_rejected() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
        let load = LoadRun {
            pace: RequestPace::Requests(rate),
            ..load(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
        };
        assert!(run(&load, &mut |_| {}, &AtomicBool::new(false)).is_err());
    }
}

#[test]
fn cookies_are_sent_back() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let address = serve(move |mut stream| {
        while let Some(head) = head(&mut stream) {
            seen.lock().expect("not poisoned").push(head);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nSet-Cookie: id=7; Path=/\r\nContent-Length: 0\r\n\r\n",
            );
        }
    });
    let found = outcome(&LoadRun {
        connections: 1,
        requests: Some(3),
        ..load(address)
    });
    assert_eq!((found.requests, found.errors), (3, 0));
    let heads = heads.lock().expect("not poisoned");
    assert!(!heads[0].contains("Cookie:"));
    assert!(heads[1].contains("\r\nCookie: id=7\r\n"), "{}", heads[1]);
}

#[test]
fn stop_flag_ends_the_run() {
    let address = serve_fixed_response(answer("x"));
    let stop = AtomicBool::new(false);
    let mut told = 0;
    let load = LoadRun {
        requests: None,
        duration: Duration::from_secs(60),
        ..load(address)
    };
    let found = run(
        &load,
        &mut |snapshot| {
            told += 1;
            assert!(snapshot.requests_per_s > 0.0);
            stop.store(true, Relaxed);
        },
        &stop,
    );
    let found = found.expect("it begins");
    assert!(found.interrupted && found.requests > 0 && told >= 1);
    assert!(found.duration_s < 30.0);
}

/// Starts a server with a self-signed certificate for `localhost`. With `is_ca` the certificate is marked as an
/// authority's, like those of `openssl req -x509`.
fn serve_tls(is_ca: rcgen::IsCa) -> (SocketAddr, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_string()];
    let mut parameters = rcgen::CertificateParams::new(names).expect("a name");
    parameters.is_ca = is_ca;
    let cert = parameters.self_signed(&key).expect("a certificate");
    let certificate = cert.pem();
    let private = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], private)
        .expect("it fits");
    let config = Arc::new(config);
    let address = serve(move |stream| {
        let connection = rustls::ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, stream);
        while let Some(head) = head(&mut stream) {
            let len = head.split("Content-Length: ").nth(1);
            let len = len.and_then(|rest| rest.lines().next()?.parse().ok());
            let mut body = vec![0; len.unwrap_or(0)];
            if stream.read_exact(&mut body).is_err() {
                return;
            }
            let _ = stream.write_all(answer("secret").as_bytes());
        }
    });
    (address, certificate)
}

#[test]
fn large_request_body_is_sent_over_tls() {
    let (address, _) = serve_tls(rcgen::IsCa::NoCa);
    let mut spec = UrlSpec::get("/");
    spec.method = "POST".into();
    spec.body = vec![b'x'; 8 << 20];
    let mut load = LoadRun {
        connections: 1,
        requests: Some(1),
        workload: urls(
            vec![spec],
            WorkloadVersion::Http11,
            PerConnection::Unlimited,
        ),
        ..load(address)
    };
    load.target.tls = Some(TlsSettings {
        name: "localhost".into(),
        insecure: true,
        authorities: None,
        offered: OfferedTls::All,
    });
    let found = outcome(&load);
    assert_eq!((found.requests, found.errors), (1, 0), "{found:?}");
}

#[test]
fn server_certificates_are_checked() {
    checks_certificates(rcgen::IsCa::NoCa);
    let of_authority = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    checks_certificates(of_authority);
}

fn checks_certificates(is_ca: rcgen::IsCa) {
    let (address, certificate) = serve_tls(is_ca);
    let folder = lowroad_testkit::TempFolder::new();
    let authority = folder.file("ca.pem", certificate);
    let with = |name: &str, insecure: bool, authorities: Option<std::path::PathBuf>| {
        let tls = TlsSettings {
            name: name.into(),
            insecure,
            authorities,
            offered: OfferedTls::All,
        };
        let mut load = load(address);
        load.target.tls = Some(tls);
        outcome(&load)
    };
    let right = with("localhost", false, Some(authority.clone()));
    assert_eq!((right.requests, right.errors), (100, 0));
    assert_eq!(right.body_bytes, 600);
    let insecure = with("elsewhere", true, None);
    assert_eq!((insecure.requests, insecure.errors), (100, 0));
    let other = folder.file("other.pem", serve_tls(rcgen::IsCa::NoCa).1);
    let unknown = with("localhost", false, Some(other));
    assert_eq!(
        (unknown.requests, unknown.errors_by_kind["tls"]),
        (0, unknown.errors)
    );
    let wrong_name = with("elsewhere", false, Some(authority));
    assert_eq!(wrong_name.requests, 0);
    assert_eq!(wrong_name.errors_by_kind["tls"], wrong_name.errors);
}
