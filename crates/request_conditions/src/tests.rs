//! Conditions on requests, compared with a reference that evaluates the configuration directly.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use lowroad_config::{RequestConditions, parse};
use lowroad_http::h1;
use lowroad_http::limits::RequestLimits;

use super::*;

fn conditions(lines: &str) -> RequestConditions {
    let text = format!("[[site]]\nroot = \"/srv\"\n[[site.rule]]\ndeny = 403\n{lines}\n");
    let config = parse(&text, Path::new("lowroad.toml"));
    let mut config = config.unwrap_or_else(|problems| panic!("{lines}: {problems:?}"));
    config.sites.remove(0).access.remove(0).conditions
}

/// A request and its circumstances.
struct Case {
    head: String,
    client: IpAddr,
    is_https: bool,
    has_certificate: bool,
}

fn case(target: &str, fields: &str) -> Case {
    Case {
        head: format!("GET {target} HTTP/1.1\r\nHost: www.a.example:8080\r\n{fields}\r\n"),
        client: [10, 1, 2, 3].into(),
        is_https: false,
        has_certificate: false,
    }
}

fn condition_set(lines: &str, file_exists: bool) -> ConditionSet {
    let find_switch = |file: &Path| Arc::new(FileSwitch::new(file.into(), file_exists));
    ConditionSet::new(&conditions(lines), &find_switch)
}

fn holds(set: &ConditionSet, case: &Case) -> bool {
    let head = h1::parse(case.head.as_bytes(), &RequestLimits::default());
    let facts = ConditionInput {
        request: &head.expect("a request").expect("a whole one").request,
        client: case.client,
        is_https: case.is_https,
        has_certificate: case.has_certificate,
        // 2026-11-30, a Monday, 09:30 UTC.
        unix_s: 1_795_996_800 + 34_200,
    };
    set.is_met(&facts)
}

fn is_met(lines: &str, case: &Case) -> bool {
    holds(&condition_set(lines, false), case)
}

#[test]
fn each_condition_holds_for_its_requests_only() {
    let plain = || {
        case(
            "/a?debug&x=1%2B1&name=b+c",
            "User-Agent: ExampleBot/2\r\nCookie: s_1=v; t=w\r\n",
        )
    };
    for (lines, expected) in [
        ("", true),
        ("methods = \"GET\"", true),
        ("methods = [\"POST\", \"PUT\"]", false),
        ("addresses = [\"192.0.2.1\", \"10.0.0.0/8\"]", true),
        ("addresses = \"192.0.2.0/24\"", false),
        ("header = \"user-agent\"", true),
        ("header = \"User-Agent: ExampleBot\"", false),
        ("header = \"User-Agent: ~Bot\"", true),
        ("header = \"User-Agent: ~bot\"", false),
        ("header = \"User-Agent: ~(?i)bot\"", true),
        ("header = [\"User-Agent\", \"X-Other\"]", false),
        ("cookie = \"t=w\"", true),
        ("cookie = \"t=v\"", false),
        ("cookie = \"s_*=v\"", true),
        ("cookie = \"s_*=w\"", false),
        ("cookie = \"T=w\"", false),
        ("argument = \"debug\"", true),
        ("argument = \"debug=1\"", false),
        ("argument = \"x=1+1\"", true),
        ("argument = \"name=~^b c$\"", true),
        ("argument = \"bug\"", false),
        ("host = \"www.a.example\"", true),
        ("host = \"*.a.example\"", true),
        ("host = \"a.example\"", false),
        ("host = \"*.www.a.example\"", false),
        ("scheme = \"http\"", true),
        ("scheme = \"https\"", false),
        ("client_certificate = true", false),
        ("client_certificate = false", true),
        ("time = \"Mon-Fri 09:00-17:00\"", true),
        ("time = [\"Sun\", \"10:00-11:00\"]", false),
        ("file_exists = \"/run/x\"", false),
        ("not = { file_exists = \"/run/x\" }", true),
        ("not = { header = \"User-Agent: ~Bot\" }", false),
        // All conditions of an exception must hold for it to apply.
        (
            "not = { header = \"User-Agent: ~Bot\", scheme = \"https\" }",
            true,
        ),
        (
            "not = [{ scheme = \"https\" }, { argument = \"debug\" }]",
            false,
        ),
        ("methods = \"GET\"\nnot = { cookie = \"u\" }", true),
    ] {
        assert_eq!(is_met(lines, &plain()), expected, "{lines}");
    }
}

#[test]
fn equal_lists_have_equal_results_in_any_number_of_lines() {
    for fields in [
        "X-Lang: de\r\nX-Lang: en\r\n",
        "X-Lang: de, en\r\n",
        "X-Lang: de,en\r\n",
    ] {
        let request = case("/", fields);
        for (lines, expected) in [
            ("header = \"X-Lang: de\"", true),
            ("header = \"X-Lang: en\"", true),
            ("header = \"X-Lang: de, en\"", true),
            ("header = \"X-Lang: ~^en$\"", true),
            ("header = \"X-Lang: fr\"", false),
        ] {
            assert_eq!(is_met(lines, &request), expected, "{fields} {lines}");
        }
    }
}

#[test]
fn host_of_absolute_target_replaces_the_field() {
    let mut request = case("http://evil.example/x", "");
    request.head = request.head.replace("www.a.example:8080", "b.example");
    assert!(is_met("header = \"Host: evil.example\"", &request));
    assert!(!is_met("header = \"Host: b.example\"", &request));
}

#[test]
fn circumstances_of_connection_are_conditions() {
    let mut tls = case("/", "");
    (tls.is_https, tls.has_certificate) = (true, true);
    assert!(is_met(
        "scheme = \"https\"\nclient_certificate = true",
        &tls
    ));
    assert!(!is_met("scheme = \"http\"", &tls));
    assert!(holds(
        &condition_set("file_exists = \"/run/x\"", true),
        &tls
    ));
}

#[test]
fn head_is_included_in_get() {
    let mut head = case("/", "");
    head.head = head.head.replacen("GET", "HEAD", 1);
    assert!(is_met("methods = \"GET\"", &head));
    assert!(is_met("methods = \"HEAD\"", &head));
    assert!(!is_met("methods = \"POST\"", &head));
}

#[test]
fn condition_sets_agree_with_reference_for_all_combinations() {
    /// Conditions, each with the bit of a request's feature that it tests.
    const PARTS: [(&str, usize); 5] = [
        ("header = \"X-A\"", 0),
        ("cookie = \"b=1\"", 1),
        ("argument = \"c\"", 2),
        ("scheme = \"https\"", 3),
        ("addresses = \"192.0.2.1\"", 4),
    ];
    let has = |set: usize, bit: usize| set & (1 << bit) != 0;
    let lines = |set: usize, separator: &str| {
        let parts = PARTS.iter().filter(|(_, bit)| has(set, *bit));
        parts
            .map(|(line, _)| *line)
            .collect::<Vec<_>>()
            .join(separator)
    };
    let requests: Vec<Case> = (0..32)
        .map(|features| {
            let fields = [(0, "X-A: 1\r\n"), (1, "Cookie: b=1\r\n")];
            let fields = fields.into_iter().filter(|(bit, _)| has(features, *bit));
            let fields: String = fields.map(|(_, line)| line).collect();
            let target = if has(features, 2) { "/?c" } else { "/" };
            let mut request = case(target, &fields);
            request.is_https = has(features, 3);
            if has(features, 4) {
                request.client = [192, 0, 2, 1].into();
            }
            request
        })
        .collect();
    for required in 0..32 {
        for excluded in [0, 1, 6, 24, 31] {
            let mut text = lines(required, "\n");
            if excluded != 0 {
                text += &format!("\nnot = {{ {} }}", lines(excluded, ", "));
            }
            let set = condition_set(&text, false);
            for (features, request) in requests.iter().enumerate() {
                let is_excluded = excluded != 0 && features & excluded == excluded;
                let expected = features & required == required && !is_excluded;
                assert_eq!(holds(&set, request), expected, "{features:05b}: {text}");
            }
        }
    }
}

#[test]
fn share_has_the_same_clients_every_time() {
    let sizes = ["5%", "10%", "50%", "99%"];
    let sets = sizes.map(|size| condition_set(&format!("share = \"{size} cookie:id\""), false));
    let mut counts = [0; 4];
    for number in 0..10_000 {
        let case = case("/", &format!("Cookie: a=b; id={number}\r\n"));
        let results = [0, 1, 2, 3].map(|index| holds(&sets[index], &case));
        assert_eq!(
            results,
            [0, 1, 2, 3].map(|index| holds(&sets[index], &case))
        );
        // A smaller share is a part of a larger one.
        assert!(results.is_sorted(), "{number}: {results:?}");
        (0..4).for_each(|index| counts[index] += usize::from(results[index]));
    }
    for (count, expected) in counts.into_iter().zip([500, 1000, 5000, 9900]) {
        assert!(usize::abs_diff(count, expected) < 200, "{counts:?}");
    }
    // Without the cookie, the address decides.
    let by_address = condition_set("share = \"50%\"", false);
    let by_cookie = condition_set("share = \"50% cookie:id\"", false);
    let mut both = [false; 2];
    for last in 0..=255 {
        let case = Case {
            client: [192, 0, 2, last].into(),
            ..case("/", "")
        };
        assert_eq!(holds(&by_address, &case), holds(&by_cookie, &case));
        both[usize::from(holds(&by_address, &case))] = true;
    }
    assert_eq!(both, [true; 2]);
}
