use std::path::Path;

use crate::{ClientShare, HashBy, RequestConditions, RuleConfig, SiteName, ValueCondition, parse};

fn rule(lines: &str) -> Result<RuleConfig, String> {
    let text = format!("[[site]]\nroot = \"/srv\"\n[[site.rule]]\ndeny = 403\n{lines}\n");
    match parse(&text, Path::new("lowroad.toml")) {
        Ok(config) => Ok(config.sites[0].access[0].clone()),
        Err(problems) => Err(problems[0].to_string()),
    }
}

fn conditions(lines: &str) -> RequestConditions {
    rule(lines).expect(lines).conditions
}

#[test]
fn all_conditions_are_read() {
    let conditions = conditions(
        "methods = \"POST\"\naddresses = \"10.0.0.0/8\"\nheader = [\"X-A\", \"X-B: c d\", \"X-C: ~(?i)^e\"]\n\
         cookie = \"s_*=~.\"\nargument = [\"debug\", \"a b=c=d\"]\nhost = [\"a.example\", \"*.b.example\"]\n\
         scheme = \"https\"\nclient_certificate = false\ntime = [\"Mon 08:00-09:00\", \"Sun\"]\n\
         file_exists = \"/run/x\"\nshare = \"5% cookie:id\"",
    );
    assert_eq!(conditions.methods, ["POST"]);
    assert_eq!(conditions.addresses.len(), 1);
    let [any, exact, matching] = &conditions.headers[..] else {
        panic!("{:?}", conditions.headers);
    };
    assert_eq!((&any.name[..], &any.value), ("X-A", &ValueCondition::Any));
    assert_eq!(exact.value, ValueCondition::Exact("c d".into()));
    let ValueCondition::Matches(expression) = &matching.value else {
        panic!("{matching:?}");
    };
    assert!(expression.is_match(b"Ef") && !expression.is_match(b"fe"));
    assert_eq!(conditions.cookies[0].name, "s_*");
    assert_eq!(conditions.arguments[1].name, "a b");
    assert_eq!(
        conditions.arguments[1].value,
        ValueCondition::Exact("c=d".into())
    );
    let wildcard = SiteName::Wildcard("b.example".into());
    assert_eq!(
        conditions.hosts,
        [SiteName::Exact("a.example".into()), wildcard]
    );
    assert_eq!(conditions.is_https, Some(true));
    assert_eq!(conditions.has_certificate, Some(false));
    assert_eq!(conditions.times.len(), 2);
    assert_eq!(conditions.file.as_deref(), Some(Path::new("/run/x")));
    let by = HashBy::Cookie("id".into());
    assert_eq!(conditions.share, Some(ClientShare { percent: 5, by }));
}

#[test]
fn exceptions_are_one_table_or_several() {
    let one = conditions("not = { addresses = \"10.0.0.1\", scheme = \"http\" }");
    let [exception] = &one.exceptions[..] else {
        panic!("{:?}", one.exceptions);
    };
    assert_eq!(exception.is_https, Some(false));
    let two = conditions("not = [{ cookie = \"a\" }, { header = \"B\" }]");
    assert_eq!(two.exceptions.len(), 2);
    // `except` is a shorter form of one of them.
    let short = conditions("except = \"10.0.0.1\"");
    assert_eq!(short, conditions("not = { addresses = \"10.0.0.1\" }"));
}

#[test]
fn mistakes_in_conditions_are_reported() {
    for (line, message) in [
        ("header = \"a b\"", "is not a condition of a field"),
        ("header = \"A: ~(\"", "is not a regular expression"),
        ("cookie = \"a*b\"", "one * at the end of the name"),
        ("argument = \"=1\"", "is not a condition of an argument"),
        ("argument = \"a&b\"", "is not a condition of an argument"),
        ("variable = \"a\"", "is not a condition of a variable"),
        ("variable = \"$nobody=1\"", "$nobody is not a variable"),
        ("variable = \"$1\"", "nothing is captured"),
        ("variable = \"$tls_version\"", "is not allowed here"),
        ("host = \"_\"", "is not a host name"),
        ("host = \"a.example:80\"", "is not a host name"),
        ("scheme = \"ftp\"", "\"http\", \"https\""),
        ("client_certificate = 1", "is not a boolean"),
        ("time = \"always\"", "is not a time of the week"),
        ("share = \"0%\"", "is not a share of the clients"),
        ("share = \"100%\"", "is not a share of the clients"),
        ("share = \"+5%\"", "is not a share of the clients"),
        ("share = \"10\"", "is not a share of the clients"),
        ("share = \"10% url\"", "is not a share of the clients"),
        ("share = 10", "is not a share of the clients"),
        ("not = {}", "the table is empty"),
        ("not = []", "the list is empty"),
        ("not = { not = { scheme = \"http\" } }", "unknown key"),
        ("not = true", "is not a table"),
        ("not = { headers = \"A\" }", "did you mean header?"),
    ] {
        let problem = rule(line).expect_err(line);
        assert!(problem.contains(message), "{line}: {problem}");
    }
}
