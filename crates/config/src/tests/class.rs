//! Traffic classes: the result of valid classes, and the problem for each mistake.

use lowroad_limits::RequestRate;

use super::*;

/// A text to which a site is appended, so that it is a complete configuration.
fn with_site(text: &str) -> String {
    format!("{text}\n[[site]]\nroot = \"r\"\n")
}

/// The problems of a class with these lines, the first of which is line 3.
fn said(lines: &str) -> String {
    shown(&with_site(&format!("[[class]]\nname = \"a\"\n{lines}")))
}

#[test]
fn all_keys_of_class_are_read() {
    let config = good(&with_site(
        r#"
        [limits]
        calls_max = 8
        calls_waiting_max = 0
        [[class]]
        name = "gold"
        weight = 60
        concurrency = 5
        rate = "90/m"
        burst = 7
        queue = 0
        deadline = "2s"
        hosts = ["Shop.example.com", "*.example.org"]
        routes = ["/api/**", "*.php"]
        addresses = ["10.0.0.0/8", "::1"]
        headers = ["X-Tier: gold", "Authorization"]
        [[class]]
        name = "all"
        rate = 100
        "#,
    ));
    assert_eq!(
        (config.limits.calls_max, config.limits.calls_waiting_max),
        (8, 0)
    );
    let pattern = |text: &str| PathPattern::parse(text).expect("a pattern");
    let prefix = |text: &str| AddressPrefix::parse(text).expect("a prefix");
    let line = |name: &str, value: Option<&str>| FieldMatch {
        name: name.into(),
        value: value.map(Into::into),
    };
    let gold = ClassConfig {
        name: "gold".into(),
        weight: 60,
        concurrency_max: Some(5),
        rate: Some(RequestRate {
            requests: 90,
            period_ms: 60_000,
            burst: 7,
        }),
        queue_len_max: 0,
        deadline_ms: 2000,
        members: ClassMembers {
            hosts: vec![
                SiteName::Exact("shop.example.com".into()),
                SiteName::Wildcard("example.org".into()),
            ],
            routes: vec![pattern("/api/**"), pattern("*.php")],
            addresses: vec![prefix("10.0.0.0/8"), prefix("::1/128")],
            headers: vec![line("X-Tier", Some("gold")), line("Authorization", None)],
        },
    };
    let all = ClassConfig {
        rate: Some(RequestRate {
            requests: 100,
            period_ms: 1000,
            burst: 100,
        }),
        ..ClassConfig::new("all".into())
    };
    assert_eq!(config.classes, [gold, all]);
}

#[test]
fn class_defaults_are_as_documented() {
    let config = good(&with_site(
        "[[class]]\nname = \"a\"\nrate = \"5/h\"\nhosts = \"b\"\n",
    ));
    let class = &config.classes[0];
    assert_eq!((class.weight, class.concurrency_max), (10, None));
    assert_eq!((class.queue_len_max, class.deadline_ms), (128, 10_000));
    assert_eq!(class.rate.map(|rate| rate.burst), Some(1));
    let LimitsConfig {
        calls_max,
        calls_waiting_max,
        ..
    } = config.limits;
    assert_eq!((calls_max, calls_waiting_max), (256, 1024));
}

#[test]
fn class_mistakes_are_reported() {
    for (lines, expected) in [
        (
            "weight = 0",
            "3:10: class[0].weight: 0 is out of range (allowed: 1 to 1000)",
        ),
        (
            "concurrency = 0",
            "3:15: class[0].concurrency: 0 is out of range (allowed: 1 to 65536)",
        ),
        (
            "rate = \"5/d\"",
            "3:8: class[0].rate: \"5/d\" is not a rate \
             (allowed: 1 to 1000000 requests a second, or with /s, /m or /h: 100, 100/s, 30/m, 5/h)",
        ),
        (
            "burst = 5",
            "3:9: class[0].burst: has no effect here (allowed: only with rate)",
        ),
        (
            "hosts = \"_\"",
            "3:9: class[0].hosts: \"_\" is not a host name (allowed: example.com, *.example.com (one or more \
             labels in front), or an address (192.0.2.1, [2001:db8::1]))",
        ),
        (
            "addresses = [\"10.0.0.0/33\"]",
            "3:14: class[0].addresses[0]: \"10.0.0.0/33\" is not an address or a prefix (allowed: ADDRESS or \
             ADDRESS/BITS: 127.0.0.1, 10.0.0.0/8, ::1, 2001:db8::/32)",
        ),
        (
            "headers = \"X Y: Z\"",
            "3:11: class[0].headers: \"X Y: Z\" is not a header field (allowed: \"NAME: VALUE\", or \"NAME\" for any value; no * in the name)",
        ),
        (
            "routes = []",
            "3:10: class[0].routes: the list is empty (allowed: at least one; or leave the key out)",
        ),
        (
            "wait = 5",
            "3:1: class[0].wait: unknown key (allowed: name, weight, concurrency, rate, burst, queue, deadline, \
             hosts, routes, addresses, headers)",
        ),
    ] {
        assert_eq!(said(lines), expected, "{lines}");
    }
}

#[test]
fn unreachable_classes_are_reported() {
    assert_eq!(
        said("[[class]]\nname = \"b\"\nhosts = \"b\""),
        "4:8: class[1].name: no requests are left for \"b\" (allowed: a class without conditions must be the last)"
    );
    assert_eq!(
        said("hosts = \"b\"\n[[class]]\nname = \"a\"\n"),
        "5:8: class[1].name: \"a\" is already class[0] (allowed: each name once)"
    );
    assert_eq!(
        shown(&with_site("[[class]]\nname = \"others\"\nhosts = \"b\"")),
        "2:8: class[0].name: \"others\" is the class of requests without a class (allowed: another name, or no conditions)"
    );
}
