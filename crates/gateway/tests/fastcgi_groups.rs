//! Groups of FastCGI servers: selection of a server, and no retries of requests that may have been executed.

mod cgi_support;
mod fastcgi_support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_config::{BalanceConfig, FastCgiConfig, SymlinkPolicy, UpstreamAddress};
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::FastCgiServers;
use lowroad_handler::{Handler, RouteProbe};
use lowroad_http::fields::FieldLines;
use lowroad_http::status::StatusCode;

use cgi_support::{Notices, fail, fastcgi_route, fetch, get, post, runtime, send_request_on};
use fastcgi_support::{Peer, Responder, STDOUT, end, local, record, start_local};

/// No file is accessed, because a front controller is configured.
const ROOT: &str = "/srv";

fn handler(
    servers: Vec<UpstreamAddress>,
    change: impl FnOnce(&mut FastCgiConfig),
) -> (Arc<FastCgiHandler>, Notices) {
    let (route, mut fastcgi) = fastcgi_route("/**", servers[0].clone());
    fastcgi.script = Some("/index.php".to_string());
    fastcgi.servers = servers;
    change(&mut fastcgi);
    let (all, notices) = (
        FastCgiServers::new(&[local(), start_local()]),
        Notices::default(),
    );
    let notice = notices.notice();
    let handler = FastCgiHandler::new(&route, &fastcgi, SymlinkPolicy::Beneath, &all, notice);
    (Arc::new(handler), notices)
}

/// A server that responds to every request with its name.
async fn named(name: &'static str) -> Responder {
    Responder::start(move |mut peer: Peer| async move {
        while let Some((id, body)) = peer.request().await {
            let text = format!("{name}{}", String::from_utf8_lossy(&body));
            if !peer.respond(id, &text).await {
                return;
            }
        }
    })
    .await
}

fn at(responder: &Responder) -> UpstreamAddress {
    UpstreamAddress::Tcp(responder.address)
}

/// An address without a listener.
fn nowhere() -> UpstreamAddress {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    UpstreamAddress::Tcp(listener.local_addr().expect("its address"))
}

#[test]
fn fastcgi_servers_are_chosen_round_robin() {
    runtime().block_on(async {
        let (a, b) = (named("a").await, named("b").await);
        let (handler, _) = handler(vec![at(&a), at(&b)], |_| {});
        let mut got = String::new();
        for turn in 0..20 {
            let request = get(Path::new(ROOT), "/x");
            let response = send_request_on(&handler, turn % 2, request).await;
            got += &cgi_support::collect_response(response.expect("it answers"))
                .await
                .body;
        }
        assert_eq!(got, "ab".repeat(10));
        let status = handler.status().expect("there are several");
        assert_eq!(status.matches(" up, 0 requests").count(), 2, "{status}");
    });
}

#[test]
fn unreachable_server_is_skipped_and_then_ejected() {
    let socket = UpstreamAddress::Unix("/nonexistent/fpm.sock".into());
    for gone in [nowhere(), socket] {
        runtime().block_on(async {
            let here = named("here").await;
            let servers = vec![gone.clone(), at(&here)];
            let (handler, notices) = handler(servers, |_| {});
            let root = Path::new(ROOT);
            for _ in 0..20 {
                assert_eq!(fetch(&handler, get(root, "/x")).await.body, "here");
                // No byte of the POST was sent to the unreachable server, so it may be retried although it is not
                // idempotent.
                assert_eq!(fetch(&handler, post(root, "/x", b"!")).await.body, "here!");
            }
            let status = handler.status().expect("there are several");
            assert!(status.contains(&format!("{gone} ejected")), "{status}");
            let told = notices.all();
            // Of 40 failures only the first within ten seconds has a notice.
            let tries = told
                .iter()
                .filter(|it| it.contains("trying another server"));
            assert!((1..10).contains(&tries.count()), "{told:?}");
            assert!(told[0].ends_with("trying another server"), "{told:?}");
            assert!(told.iter().any(|it| it.contains("ejected for")), "{told:?}");
            let outline = RouteProbe {
                target: b"/x",
                peer: "192.0.2.7".parse().expect("an address"),
                fields: FieldLines::new(b""),
            };
            let whom = handler.explain_member(&outline).expect("there are several");
            assert!(whom.contains(&here.address.to_string()), "{whom}");
        });
    }
}

/// A script with output that is not a valid response does not count against its server.
#[test]
fn invalid_script_output_does_not_eject_server() {
    runtime().block_on(async {
        let broken = || {
            Responder::start(async |mut peer: Peer| {
                while let Some((id, _)) = peer.request().await {
                    let output = record(STDOUT, id, b"this is no head");
                    if !peer.send(&[output, end(id, 0)].concat()).await {
                        return;
                    }
                }
            })
        };
        let (a, b) = (broken().await, broken().await);
        let (handler, _) = handler(vec![at(&a), at(&b)], |_| {});
        for _ in 0..20 {
            let failure = fail(&handler, get(Path::new(ROOT), "/x")).await;
            assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
            assert!(failure.detail.contains("without a head"), "{failure:?}");
        }
        let status = handler.status().expect("there are several");
        assert_eq!(status.matches(" up, 0 requests").count(), 2, "{status}");
    });
}

#[test]
fn all_servers_unreachable_reports_last_failure() {
    runtime().block_on(async {
        let (handler, _) = handler(vec![nowhere(), nowhere()], |_| {});
        for _ in 0..10 {
            let failure = fail(&handler, get(Path::new(ROOT), "/x")).await;
            assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
            assert!(failure.detail.contains("check that it runs"), "{failure:?}");
        }
    });
}

#[test]
fn request_that_reached_a_server_is_not_retried() {
    runtime().block_on(async {
        let seen = Arc::new(AtomicUsize::new(0));
        let dying = || {
            let seen = seen.clone();
            Responder::start(move |mut peer: Peer| {
                let seen = seen.clone();
                async move {
                    if peer.request().await.is_some() {
                        seen.fetch_add(1, SeqCst);
                    }
                }
            })
        };
        let (a, b) = (dying().await, dying().await);
        let (handler, _) = handler(vec![at(&a), at(&b)], |_| {});
        for number in 1..=4 {
            let failure = fail(&handler, post(Path::new(ROOT), "/x", b"!")).await;
            assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
            assert_eq!(seen.load(SeqCst), number);
        }
    });
}

#[test]
fn least_connections_prefers_idle_server() {
    runtime().block_on(async {
        // The server that never responds.
        let busy = Responder::start(
            async |mut peer: Peer| {
                while peer.record().await.is_some() {}
            },
        )
        .await;
        let quick = named("quick").await;
        let servers = vec![at(&busy), at(&quick)];
        let least = |fastcgi: &mut FastCgiConfig| fastcgi.balance = BalanceConfig::LeastConnections;
        let (handler, _) = handler(servers, least);
        let held = handler.clone();
        let mut held = Box::pin(async move { fetch(&held, get(Path::new(ROOT), "/x")).await });
        // After the first request, the others go to the server that has no requests in progress.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let is_held = held.as_mut().poll(&mut context).is_pending();
        assert!(is_held);
        for _ in 0..10 {
            assert_eq!(
                fetch(&handler, get(Path::new(ROOT), "/x")).await.body,
                "quick"
            );
        }
    });
}

#[test]
fn host_name_resolves_to_group_members() {
    runtime().block_on(async {
        let here = named("here").await;
        let SocketAddr::V4(address) = here.address else {
            panic!("it listens on IPv4");
        };
        let of = |host: &str| UpstreamAddress::Name {
            host: host.into(),
            port: address.port(),
        };
        let (by_name, _) = handler(vec![of("localhost")], |_| {});
        for _ in 0..10 {
            // The host name may also resolve to an IPv6 address without a listener.
            let response = fetch(&by_name, get(Path::new(ROOT), "/x")).await;
            assert_eq!(response.body, "here");
        }
        let (unknown, notices) = handler(vec![of("nobody.invalid")], |_| {});
        let failure = fail(&unknown, get(Path::new(ROOT), "/x")).await;
        assert_eq!(failure.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            failure.detail.starts_with("FastCGI server nobody.invalid:"),
            "{}",
            failure.detail
        );
        notices.wait_for("the name can't be resolved").await;
    });
}
