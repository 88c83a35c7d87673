//! Paths are forwarded to the origin unchanged, and rules match all their encodings.

use crate::front::{TestAccelerator, TestOrigin, response};

/// An accelerator with these lines after its route. The origin answers with the request target.
fn front_with_target_echo(lines: &str) -> TestAccelerator {
    let origin = TestOrigin::with_response(|request| response("200 OK", "", &request.target));
    TestAccelerator::with_route_settings(origin, lines)
}

#[test]
fn origin_gets_the_path_unchanged() {
    let front = front_with_target_echo(
        "[[site.redirect]]\nfrom = \"/old/**\"\nto = \"/new/$1\"\n\
         [[site.rewrite]]\nfrom = \"/pre/**\"\nto = \"/$1\"\n",
    );
    for path in [
        "api/queues/%2F/q",
        "projects/g%2fp",
        "@scope%2Fpackage",
        "%23a%2Fb:c.test",
        "a%5Cb",
        "C%3A%5Cx",
        "a\\b",
        "app;jsessionid=1",
        "a+b%2Bc",
        "it's",
        "f(1)!$&*",
        "a//b///c",
        "%7Ex%41",
        "%252F",
    ] {
        let text = |at: &str| front.get(at, "").text();
        assert_eq!(text(&format!("/{path}")), format!("/{path}"));
        assert_eq!(text(&format!("/{path}?a=%2F")), format!("/{path}?a=%2F"));
        assert_eq!(text(&format!("/pre/{path}")), format!("/{path}"));
        let moved = front.get(&format!("/old/{path}"), "");
        // Browsers treat a backslash as a slash.
        let location = format!("/new/{path}").replace('\\', "%5C");
        assert_eq!(moved.field("location"), Some(&*location));
    }
}

#[test]
fn explain_shows_why_a_target_is_refused() {
    let front = front_with_target_echo("");
    for (path, why) in [
        ("/a/..%2Fb", "dot segment"),
        ("/a%2f..", "dot segment"),
        ("/a/..%2f..%2fx", "dot segment"),
        ("/a/..%5Cb", "dot segment"),
        ("/a\\..\\b", "dot segment"),
        ("/a/%2e%2e/b", "dot segment"),
        ("/%2F%00", "NUL"),
        ("/%2", "percent escape"),
    ] {
        assert_eq!(front.get(path, "").status, 400, "{path}");
        let told = front.run_command(&[
            "explain",
            &format!("http://{}{path}", front.server.address()),
        ]);
        assert!(told.contains(why), "{path}: {told}");
    }
    let told = front.run_command(&[
        "explain",
        &format!("http://{}/a%2Fb", front.server.address()),
    ]);
    assert!(told.contains("level                  origin"), "{told}");
}

#[test]
fn deny_rules_match_all_encodings_of_a_path() {
    let front = front_with_target_echo(
        "[[site.rule]]\npattern = \"/api/*/secret\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/api/*/secret\"\ndeny = 404\n\
         [[site.rule]]\npattern = \"/admin/**\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/open/**\"\nallow = true\n\
         [[site.rule]]\npattern = \"/o*/**\"\ndeny = 403\n",
    );
    for (path, status) in [
        ("/api/a/secret", 403),
        ("/api/a%2Fb/secret", 403),
        ("/api/a%2fb%2Fc/secret", 403),
        ("/api%2Fa/secret", 403),
        ("/api/a%2Fsecret", 403),
        ("/api/a/b/secret", 200),
        ("/admin%2Fx", 403),
        ("/admin%5Cx", 403),
        ("/admin\\x", 403),
        ("/%61dmin%2fx", 403),
        ("/x%2Fadmin%2Fx", 200),
        ("/open/x", 200),
        ("/open/a%2Fb", 200),
        ("/open/a%5Cb", 200),
        // Only one of the two decoded forms is allowed.
        ("/other%2F../open/x", 400),
        ("/open%2Fx", 403),
    ] {
        assert_eq!(front.get(path, "").status, status, "{path}");
    }
}

#[test]
fn allow_rules_must_match_each_reading_of_a_path() {
    let front = front_with_target_echo(
        "[[site.rule]]\npattern = \"/api/queues/*/public\"\nallow = true\n\
         [[site.rule]]\npattern = \"/api/queues/public\"\nallow = true\n\
         [[site.rule]]\npattern = \"/@scope/*\"\nallow = true\n\
         [[site.rule]]\npattern = \"/@scope/private/**\"\ndeny = 404\n\
         [[site.rule]]\npattern = \"/@scope*\"\nallow = true\n\
         [[site.rule]]\npattern = \"/half/*/x\"\nallow = true\n\
         [[site.rule]]\ndeny = 403\n",
    );
    for (path, status) in [
        ("/api/queues/%2F/public", 200),
        ("/api/queues/%2f/public", 200),
        ("/api/queues/v/public", 200),
        // With the slash decoded, the path is /api/queues/a/b/public, which no rule allows.
        ("/api/queues/a%2Fb/public", 403),
        ("/api/queues/%2F/secret", 403),
        ("/api/queues%2F%2F/public", 403),
        ("/@scope/name", 200),
        ("/@scope%2Fname", 200),
        ("/@scope%2Fname/x", 403),
        ("/@scope%2Fprivate%2Fx", 404),
        ("/@scope%5Cname", 200),
        ("/@scope\\name\\x", 403),
        ("/@scope%2Fa%5Cb", 403),
        ("/half/a/x", 200),
        ("/half/%2F/x", 403),
    ] {
        assert_eq!(front.get(path, "").status, status, "{path}");
    }
    let url = format!("http://{}/half/%2F/x", front.server.address());
    let told = front.run_command(&["explain", &url]);
    let reason = "no earlier rule allows the form /half/x of the path";
    assert!(told.contains(reason), "{told}");
}

#[test]
fn documented_rules_allow_rabbitmq_and_npm_clients() {
    let docs = include_str!("../../../../docs/configuration/site-rule.md");
    let (_, rules) = docs.split_once("# RabbitMQ: ").expect("the example");
    let (rules, _) = rules.split_once("```").expect("its end");
    let front = front_with_target_echo(&format!("# {rules}"));
    for (path, status) in [
        ("/api/queues/%2F/public", 200),
        ("/api/queues/%2F/secret", 403),
        ("/@scope%2fname", 200),
        ("/@scope/name", 200),
        ("/@scope%2fname?write=true", 200),
        ("/@scope%2fname/-rev/3-47808ef16bb23ace", 200),
        ("/@scope/name/-/name-1.0.0.tgz", 200),
        ("/@scope/name/-/name-1.0.0.tgz/-rev/9-2f0a3c552acb260b", 200),
        ("/-/package/@scope%2fname/dist-tags/beta", 200),
        ("/-/user/org.couchdb.user:bob", 200),
        ("/-/v1/search?text=scope", 200),
        ("/plain", 403),
        ("/plain/-/plain-1.0.0.tgz", 403),
        ("/@scoped/name", 403),
        ("/@scoped%2fname", 403),
        ("/@scoped%2fname/-rev/1-a", 403),
        ("/@scope%2f..%2fplain", 400),
    ] {
        assert_eq!(front.get(path, "").status, status, "{path}");
    }
}
