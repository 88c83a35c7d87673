use super::*;

fn document() -> ConfigDocument {
    let mut document = ConfigDocument::new(vec!["head".to_string()]);
    document.push(
        ConfigTable::essential("[[site]]")
            .key("a", "1")
            .key("b", "2"),
    );
    document.push(
        ConfigTable::new("[[site.route]]")
            .entry(7)
            .key("pattern", "\"/\""),
    );
    document.push(ConfigTable::new("[site.route.env]").entry(8).key("A", "1"));
    document.push(ConfigTable::new("[[site.route]]").key("pattern", "\"/b\""));
    document
}

#[test]
fn tables_are_separated_by_empty_lines() {
    let text = document().to_text();
    assert!(
        text.starts_with("# head\n\n[[site]]\na = 1\nb = 2\n\n[[site.route]]\n"),
        "{text}"
    );
}

#[test]
fn refused_rules_refuse_their_paths() {
    let mut document = ConfigDocument::default();
    let rule = ConfigTable::new("[[site.rule]]")
        .entry(3)
        .key("pattern", "\"/a\"");
    document.push(rule.key("auth", "7"));
    assert_eq!(document.disable_line(3, "auth: no path"), Some(vec![3]));
    let text = document.to_text();
    assert!(
        text.contains("[[site.rule]]\npattern = \"/a\"\n# auth = 7\ndeny = 503\n"),
        "{text}"
    );
    // A pattern that is refused, too: all paths.
    assert_eq!(document.disable_line(3, "pattern: no"), Some(vec![3]));
    let text = document.to_text();
    assert!(
        text.contains("[[site.rule]]\n# pattern = \"/a\"\n# auth = 7\ndeny = 503\n"),
        "{text}"
    );
}

#[test]
fn refused_lines_are_commented_out_with_their_tables() {
    let mut document = document();
    assert_eq!(
        document.disable_line(5, "x"),
        Some(Vec::new()),
        "a key of an essential table"
    );
    assert_eq!(document.disable_line(3, "x"), None, "its header");
    assert_eq!(document.disable_line(8, "no such key"), Some(vec![7, 8]));
    let text = document.to_text();
    assert!(text.contains("a = 1\n# b = 2\n"), "{text}");
    assert!(
        text.contains("# By hand: no such key\n# [[site.route]]\n# pattern"),
        "{text}"
    );
    assert!(
        text.contains("# [site.route.env]\n# A = 1\n\n[[site.route]]\npattern = \"/b\""),
        "{text}"
    );
}

#[test]
fn refused_tables_close_their_requests() {
    // The line of the refused key, and the rule in its place.
    for (table, line, expected) in [
        (
            ConfigTable::new("[site.tls]").key("client_ca", "1"),
            5,
            "deny = 503\n",
        ),
        (
            ConfigTable::new("[[site.route]]")
                .key("pattern", "\"*.php\"")
                .key("origin", "7"),
            6,
            "pattern = \"*.php\"\ndeny = 503\n",
        ),
        (
            ConfigTable::new("[[site.route]]").key("pattern", "7"),
            5,
            "deny = 503\n",
        ),
        (
            ConfigTable::new("[[site.redirect]]")
                .key("from", "\"/a\"")
                .key("to", "7"),
            6,
            "pattern = \"/a\"\ndeny = 503\n",
        ),
    ] {
        let mut document = ConfigDocument::default();
        document.push(ConfigTable::essential("[[site]]").key("names", "\"a\""));
        document.push(table);
        document.disable_line(line, "x").expect("a line");
        let text = document.to_text();
        let (first, rest) = text.split_once("[[site.rule]]\n").expect("a rule");
        assert!(first.starts_with("[[site]]"), "{text}");
        assert!(rest.starts_with(expected), "{text}");
    }
}

#[test]
fn routes_keep_all_but_a_refused_limit() {
    let mut document = ConfigDocument::default();
    let route = ConfigTable::new("[[site.route]]").entry(1);
    document.push(route.key("pattern", "\"/\"").key("timeout", "\"9000d\""));
    assert_eq!(document.disable_line(3, "timeout: x"), Some(vec![1]));
    let text = document.to_text();
    assert!(
        text.contains("\n[[site.route]]\npattern = \"/\"\n# timeout"),
        "{text}"
    );
}

#[test]
fn site_without_its_names_refuses_requests() {
    let mut document = ConfigDocument::default();
    document.push(ConfigTable::essential("[[site]]").key("names", "7"));
    document.disable_line(2, "names: x").expect("a line");
    let text = document.to_text();
    assert!(text.contains("# names = 7\n"), "{text}");
    assert!(text.ends_with("[[site.rule]]\ndeny = 503\n"), "{text}");
}

#[test]
fn line_ends_begin_no_lines_of_the_configuration() {
    let evil = "1\n[[site]]\r\nroot = \"/\"";
    let mut document = ConfigDocument::new(vec![evil.to_string()]);
    let table = ConfigTable::new(&format!("[map.{evil}]")).comment(evil);
    document.push(table.key("a", evil));
    let text = document.to_text();
    let starts = |line: &str| ["#", "[map.", "a ="].iter().any(|it| line.starts_with(it));
    assert!(
        text.lines().all(|line| line.is_empty() || starts(line)),
        "{text}"
    );
}

#[test]
fn refused_rewrites_refuse_their_paths() {
    for (key, value, rule) in [
        ("from", "\"/a/**\"", "pattern = \"/a/**\"\ndeny = 503\n"),
        (
            "regex",
            "'^/a\\.b'",
            "variable = '$path=~^/a\\.b'\ndeny = 503\n",
        ),
    ] {
        let mut document = ConfigDocument::default();
        document.push(ConfigTable::essential("[[site]]").key("a", "1"));
        let rewrite = ConfigTable::new("[[site.rewrite]]").key(key, value);
        document.push(rewrite.key("to", "7"));
        assert_eq!(document.disable_line(6, "to: no path"), Some(Vec::new()));
        let text = document.to_text();
        assert!(text.contains(rule), "{text}");
    }
    // Without it, missing files are missing.
    let mut document = ConfigDocument::default();
    let rewrite = ConfigTable::new("[[site.rewrite]]").key("missing", "true");
    document.push(ConfigTable::essential("[[site]]").key("a", "1"));
    document.push(rewrite.key("to", "7"));
    document.disable_line(6, "to: no path");
    assert!(!document.to_text().contains("deny"));
}
