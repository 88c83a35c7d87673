//! `[[site.rule]]` and trusted proxies.

use super::*;
use lowroad_limits::RequestRate;

use crate::ClientField;

fn site(lines: &str) -> String {
    format!("[[site]]\nroot = \"/srv\"\n{lines}")
}

#[test]
fn all_keys_of_access_rule_are_read() {
    let config = good(&site(
        "trusted_proxies = \"10.0.0.1\"\nclient_field = \"Forwarded\"\n\
         [[site.rule]]\ndeny = 404\n\
         [[site.rule]]\npattern = \"/a/**\"\nmethods = \"POST\"\naddresses = \"10.0.0.0/8\"\nexcept = [\"10.0.0.1\"]\nallow = true\n\
         [[site.rule]]\nrate = \"30/m\"\nburst = 5\n",
    ));
    let site = &config.sites[0];
    assert_eq!(site.trusted_proxies.field, ClientField::Forwarded);
    let [deny, allow, limit] = &site.access[..] else {
        panic!("three rules");
    };
    assert_eq!(deny.pattern, PathPattern::everything());
    assert_eq!(deny.action, RuleAction::Deny(404));
    assert!(deny.conditions.is_empty());
    assert_eq!(allow.conditions.methods, ["POST"]);
    assert_eq!(
        allow.conditions.addresses,
        [AddressPrefix::parse("10.0.0.0/8").expect("one")]
    );
    assert_eq!(
        allow.conditions.exceptions[0].addresses,
        [AddressPrefix::parse("10.0.0.1").expect("one")]
    );
    assert_eq!(allow.action, RuleAction::Allow);
    let rate = RequestRate {
        requests: 30,
        period_ms: 60_000,
        burst: 5,
    };
    assert_eq!(limit.action, RuleAction::Limit(rate));
}

#[test]
fn several_patterns_of_a_table_are_several_rules() {
    let config = good(&site(
        "[[site.rule]]\npattern = [\"/a/**\", \"*.b\"]\ndeny = 403\n\
         [[site.redirect]]\nfrom = [\"/c/*\", \"/d/*\"]\nto = \"/$1\"\n\
         [[site.rewrite]]\nfrom = [\"/e\", \"/f/*\"]\nto = \"/g\"\n\
         [[site.header]]\npattern = [\"/h\", \"/i\"]\nset = { X = \"1\" }\n\
         [[site.header]]\nset = { X = \"2\" }\nmethods = \"GET\"\n\
         [[site.cache_control]]\npattern = [\"/j\", \"/k\"]\nvalue = \"no-store\"\n",
    ));
    let site = &config.sites[0];
    let patterns: Vec<String> = site
        .access
        .iter()
        .map(|it| it.pattern.to_string())
        .collect();
    assert_eq!(patterns, ["/a/**", "*.b"]);
    assert_eq!((site.redirects.len(), site.rewrites.len()), (2, 2));
    let tables: Vec<usize> = site.headers.iter().map(|it| it.table).collect();
    assert_eq!(tables, [0, 0, 1]);
    assert_eq!(site.cache_control.len(), 2);
}

#[test]
fn access_rule_mistakes_are_reported() {
    for (lines, message) in [
        (
            "[[site.rule]]\npattern = []\ndeny = 403\n",
            "the list is empty",
        ),
        (
            "[[site.rule]]\npattern = [\"/a\", \"[b]\"]\ndeny = 403\n",
            "is not a pattern",
        ),
        (
            "[[site.rule]]\npattern = [\"/a\", \"/b\"]\nrate = 1\n",
            "rate has several patterns",
        ),
        (
            "[[site.redirect]]\nfrom = [\"/a\", \"/b/*\"]\nto = \"/$1\"\n",
            "nothing is captured",
        ),
        (
            "[[site.header]]\nheader = \"A\"\ndefault = { B = \"c\" }\n",
            "default is not possible with conditions",
        ),
        (
            "[[site.header]]\nheader = \"A\"\nset = { Expires = \"0\" }\n",
            "expires is changed under a condition",
        ),
        ("[[site.rule]]\nlog = \"no\"\n", "is not a boolean"),
        ("[[site.cors]]\n", "origins is missing"),
        (
            "[[site.cors]]\norigins = \"*\"\ncredentials = true\n",
            "is refused by browsers",
        ),
        (
            "[[site.cors]]\norigins = \"https://A.example\"\n",
            "is not an origin",
        ),
        (
            "[[site.cors]]\norigins = \"https://a.example/\"\n",
            "is not an origin",
        ),
        (
            "[[site.cors]]\norigins = \"https://a.example:443\"\n",
            "is not an origin",
        ),
        ("[[site.cors]]\norigins = \"null\"\n", "is not an origin"),
        (
            "canonical_host = \"b.example\"\nnames = \"a.example\"\n",
            "is not a host name",
        ),
        ("trailing_slash = \"no\"\n", "is not an allowed value"),
        ("security_headers = 1\n", "is not a boolean or a table"),
        (
            "security_headers = { Content-Length = \"1\" }\n",
            "is managed by the server",
        ),
        ("[site.maintenance]\nexcept = {}\n", "the table is empty"),
        ("[[site.rule]]\npattern = \"/a\"\n", "the rule does nothing"),
        (
            "[[site.rule]]\ndeny = 403\nallow = true\n",
            "deny and allow are two actions",
        ),
        (
            "[[site.rule]]\ndeny = 401\n",
            "401 is not a status of a refusal",
        ),
        ("[[site.rule]]\nclose = false\n", "false is not an action"),
        (
            "[[site.rule]]\nrespond = 301\n",
            "301 is not a status of a fixed response",
        ),
        (
            "[[site.rule]]\nrespond = { status = 200, type = \"a/b\" }\n",
            "has no effect here (allowed: only with text)",
        ),
        (
            "[[site.rule]]\nrespond = { text = \"a\" }\n",
            "status is missing",
        ),
        (
            "[[site.rule]]\nrespond = { status = 200, header = { Date = \"x\" } }\n",
            "Date is managed by the server",
        ),
        ("[[site.rule]]\nallow = false\n", "false is not an action"),
        ("[[site.rule]]\ndeny = 403\nburst = 1\n", "only with rate"),
        (
            "[[site.rule]]\ndeny = 403\naddresses = []\n",
            "the list is empty",
        ),
        (
            "[[site.rule]]\ndeny = 403\nexcept = \"x\"\n",
            "not an address",
        ),
        (
            "[[site.rule]]\ndeny = 403\nmethods = \"get\"\n",
            "not a method",
        ),
        ("[[site.rule]]\ndeny = 403\npath = \"/\"\n", "unknown key"),
        ("[[site.rule]]\nrate = \"0\"\n", "not a rate"),
        (
            "[[site.rule]]\npattern = \"/api/queues///x\"\ndeny = 403\n",
            "paths are compared with slashes merged",
        ),
        (
            "[[site.rule]]\npattern = \"/a/../b\"\ndeny = 403\n",
            "paths with them are refused",
        ),
        (
            "client_field = \"Forwarded\"\n",
            "only with trusted_proxies",
        ),
        (
            "trusted_proxies = \"10.0.0.1\"\nclient_field = \"X-Real-IP\"\n",
            "not an allowed value",
        ),
    ] {
        let text = shown(&site(lines));
        assert!(text.contains(message), "{lines}: {text}");
    }
}

#[test]
fn regex_redirects_and_rewrites_are_read() {
    let config = good(&site(
        "[[site.redirect]]\nregex = \"^/([a-z]+)/old$\"\nto = \"/$1/new\"\n\
         [[site.rewrite]]\nregex = \"^/(.*)$\"\nto = \"/index.php?q=$1&$query\"\nmissing = true\n\
         [[site.rewrite]]\nfrom = \"/a/**\"\nto = \"/b/$1\"\n",
    ));
    let site = &config.sites[0];
    assert_eq!(site.redirects[0].to.as_str(), "/$1/new");
    let [front, move_] = &site.rewrites[..] else {
        panic!("two rewrites");
    };
    assert!(front.missing && !move_.missing);
    assert_eq!(front.from.to_string(), "^/(.*)$");
}

#[test]
fn rewrite_mistakes_are_reported() {
    let regex =
        |regex: &str, to: &str| format!("[[site.rewrite]]\nregex = '{regex}'\nto = \"{to}\"\n");
    let to = |to: &str| format!("[[site.rewrite]]\nfrom = \"/a/**\"\nto = \"{to}\"\n");
    for (lines, message) in [
        (
            regex("(", "/x"),
            "4:9: site[0].rewrite[0].regex: \"(\" is not a regular expression: unclosed group",
        ),
        (
            regex("(a)", "/$2"),
            "5:8: site[0].rewrite[0].to: $2 has no meaning here: the only capture is $1 (allowed: $host, ",
        ),
        (to("/$2"), "the only capture is $1"),
        (to("/$cookie_a"), "$cookie_a is not allowed here"),
        (
            to("/$1$2x"),
            "5:10: site[0].rewrite[0].to: $2 has no meaning",
        ),
        (to("x"), "not a target"),
        (to("https://a/"), "not a target"),
        (to("/a#b"), "not a target"),
        (to("/a/../b"), "not a target"),
        (to("/a%2fb"), "not a target"),
        (to("/a%0"), "not a target"),
        (to("/a b"), "not a target"),
        (
            "[[site.rewrite]]\nto = \"/x\"\n".into(),
            "from is missing (allowed: from, or regex)",
        ),
        (
            "[[site.rewrite]]\nfrom = \"/a\"\nregex = \"a\"\nto = \"/x\"\n".into(),
            "from already selects the paths",
        ),
        (
            "[[site.redirect]]\nregex = '^/(.*)$'\nto = \"/x/$1\"\n".into(),
            "redirected by the same rule again, in an endless loop",
        ),
    ] {
        let text = shown(&site(&lines));
        assert!(text.contains(message), "{lines}: {text}");
    }
}

#[test]
fn redirect_to_its_own_path_is_allowed_if_a_condition_ends_it() {
    for lines in [
        "from = \"/**\"\nargument = \"fbclid\"\nto = \"/$1?\"\n",
        "from = \"/**\"\nnot = { argument = \"lang\" }\nto = \"/$1?lang=de\"\n",
        "from = \"/form/**\"\nmethods = \"POST\"\nto = \"/form/thanks\"\nstatus = 303\n",
    ] {
        let config = good(&site(&format!("[[site.redirect]]\n{lines}")));
        assert_eq!(config.sites[0].redirects.len(), 1, "{lines}");
    }
}
