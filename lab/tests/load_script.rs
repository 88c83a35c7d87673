//! The load generator with a script, against a shop that rejects requests if steps were skipped.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lowroad_lab::load::{LoadResult, LoadRun, RequestPace, run};
use lowroad_lab::workload::script::{ScriptConnection, ScriptWorkload};
use lowroad_lab::workload::{PerConnection, WorkloadVersion};
use lowroad_testkit::origin::{OriginRequest, TestOrigin};

const SHOPPING: &str = r#"
[[step]]
path = "/login"
take = { token = 'name="token" value="([0-9]+)"' }
think = "1ms-5ms"

[[step]]
path = "/login"
form = { user = "somebody", token = "{token}" }
status = 303
take = { home = '(?i)\nlocation: ([^\r\n]+)' }

[[step]]
path = "{home}"
take = { bye = 'href="([^"]+)"' }

[[step]]
path = "{bye}"
"#;

/// Assigns a number to each new user, which the user must send back as a cookie and as a token.
fn shop() -> TestOrigin {
    TestOrigin::start(|asked: &OriginRequest, stream: &mut TcpStream| {
        let user = asked
            .field("cookie")
            .and_then(|it| it.strip_prefix("user="));
        let (method, body) = (&*asked.method, String::from_utf8_lossy(&asked.body));
        let number = asked.number;
        let answer = |status: &str, fields: &str, body: &str| {
            format!(
                "HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let answer = match (method, &*asked.target, user) {
            ("GET", "/login", None) => {
                let cookie = format!(
                    "Set-Cookie: user={number}; HttpOnly\r\nSet-Cookie: gone=1; Max-Age=0\r\n"
                );
                let form = format!("<input name=\"token\" value=\"{number}\">");
                answer("200 OK", &cookie, &form)
            }
            ("POST", "/login", Some(user)) if body == format!("token={user}&user=somebody") => {
                answer(
                    "303 See Other",
                    &format!("Location: /home/{user}?a=1\r\n"),
                    "",
                )
            }
            ("GET", home, Some(user)) if home == format!("/home/{user}?a=1") => {
                answer("200 OK", "", &format!("<a href=\"/bye?{user}&amp;now\">"))
            }
            ("GET", bye, Some(user)) if bye == format!("/bye?{user}&now") => {
                answer("200 OK", "", "bye")
            }
            _ => answer("403 Forbidden", "", "no"),
        };
        stream.write_all(answer.as_bytes()).is_ok()
    })
}

fn outcome(
    shop: &TestOrigin,
    carries: ScriptConnection,
    change: impl FnOnce(&mut LoadRun),
) -> LoadResult {
    let script = ScriptWorkload::parse(SHOPPING, "shop", WorkloadVersion::Http11, carries)
        .expect("a script");
    let mut load = LoadRun {
        connections: 4,
        timeout: Duration::from_secs(5),
        ..LoadRun::plain(
            shop.url()["http://".len()..].parse().expect("an address"),
            Arc::new(script),
        )
    };
    change(&mut load);
    run(&load, &mut |_| {}, &AtomicBool::new(false)).expect("a run")
}

#[test]
fn users_execute_all_steps_of_the_script() {
    let five = PerConnection::Fixed(5);
    for carries in [
        ScriptConnection::All,
        ScriptConnection::Once,
        ScriptConnection::Requests(five),
    ] {
        let shop = shop();
        let outcome = outcome(&shop, carries, |load| load.requests = Some(400));
        assert_eq!((outcome.errors, outcome.requests), (0, 400), "{outcome:?}");
        let classes: BTreeMap<_, _> = outcome
            .classes
            .iter()
            .map(|class| (&*class.name, class.requests))
            .collect();
        assert_eq!(classes.len(), 4);
        // Each request belongs to one of the steps.
        assert!(
            classes
                .values()
                .all(|requests| (96..=104).contains(requests)),
            "{classes:?}"
        );
    }
}

#[test]
fn connection_rate_starts_new_users() {
    let shop = shop();
    let outcome = outcome(&shop, ScriptConnection::Once, |load| {
        load.pace = RequestPace::Connections(50.0);
        load.duration = Duration::from_secs(2);
    });
    assert_eq!(outcome.errors, 0);
    assert!(outcome.connections >= 50, "{}", outcome.connections);
    // At the end, some users have completed only their first steps.
    assert!(outcome.requests >= 4 * (outcome.connections - 8));
}

#[test]
fn missing_captured_value_is_an_error() {
    let closed = TestOrigin::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbusy")
            .is_ok()
    });
    let outcome = outcome(&closed, ScriptConnection::All, |load| {
        load.requests = Some(20)
    });
    assert_eq!(outcome.requests, 0);
    assert_eq!(outcome.errors_by_kind.get("lacking"), Some(&20));
    let all = closed.requests();
    assert!(
        all.iter().all(|asked| asked.target == "/login"),
        "nobody goes on"
    );
}
