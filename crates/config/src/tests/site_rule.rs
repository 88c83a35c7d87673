//! `[[site.rule]]` and trusted proxies.

use super::*;
use crate::{ClientField, Rate};

fn site(lines: &str) -> String {
    format!("[[site]]\nroot = \"/srv\"\n{lines}")
}

#[test]
fn a_rule_has_who_and_what() {
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
    assert_eq!(deny.pattern, Pattern::everything());
    assert_eq!(deny.action, Action::Deny(404));
    assert!(deny.methods.is_empty() && deny.addresses.is_empty() && deny.except.is_empty());
    assert_eq!(allow.methods, ["POST"]);
    assert_eq!(allow.addresses, [Prefix::parse("10.0.0.0/8").expect("one")]);
    assert_eq!(allow.except, [Prefix::parse("10.0.0.1").expect("one")]);
    assert_eq!(allow.action, Action::Allow);
    let rate = Rate {
        requests: 30,
        period_ms: 60_000,
        burst: 5,
    };
    assert_eq!(limit.action, Action::Limit(rate));
}

#[test]
fn what_no_rule_may_say() {
    for (lines, said) in [
        ("[[site.rule]]\npattern = \"/a\"\n", "the rule does nothing"),
        (
            "[[site.rule]]\ndeny = 403\nallow = true\n",
            "deny and allow are two rules",
        ),
        (
            "[[site.rule]]\ndeny = 401\n",
            "401 is not a status of a refusal",
        ),
        (
            "[[site.rule]]\nallow = false\n",
            "false is not what a rule may say",
        ),
        ("[[site.rule]]\ndeny = 403\nburst = 1\n", "only with rate"),
        (
            "[[site.rule]]\ndeny = 403\naddresses = []\n",
            "nothing is in it",
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
            "client_field = \"Forwarded\"\n",
            "only with trusted_proxies",
        ),
        (
            "trusted_proxies = \"10.0.0.1\"\nclient_field = \"X-Real-IP\"\n",
            "none of the allowed words",
        ),
    ] {
        let text = shown(&site(lines));
        assert!(text.contains(said), "{lines}: {text}");
    }
}
