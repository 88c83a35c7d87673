//! The parser accepts the examples in the documentation, and the documentation covers all keys.

use lowroad_config::{SiteName, SiteRoot, load, parse};
use std::path::{Path, PathBuf};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project(path)).expect("a file of this project")
}

/// The keys that the parser allows in a table, from its problem about an unknown key.
fn keys_allowed_in(text: &str) -> Vec<String> {
    let problems = parse(text, Path::new("f")).expect_err("there is an unknown key");
    let unknown = problems
        .iter()
        .find(|problem| problem.what.starts_with("unknown key"));
    let allowed = &unknown.expect("there is an unknown key").allowed;
    allowed.split(", ").map(str::to_string).collect()
}

/// The part of a document from a heading to the next one of any level.
fn chapter<'t>(document: &'t str, heading: &str) -> &'t str {
    let start = document
        .find(&format!("\n{heading}"))
        .expect("the heading is there")
        + 1;
    let body = &document[start..];
    let end = body[1..].find("\n#").map_or(body.len(), |at| at + 1);
    &body[..end]
}

#[test]
fn every_example_in_the_documentation_is_right() {
    let document = read("docs/configuration.md");
    let blocks: Vec<&str> = document.split("```toml\n").skip(1).collect();
    assert!(blocks.len() >= 6, "{} examples", blocks.len());
    for block in blocks {
        let text = block
            .split("```")
            .next()
            .expect("split gives at least one part");
        if let Err(problems) = parse(text, Path::new("configuration.md")) {
            panic!("{}\n{text}", problems[0]);
        }
    }
}

#[test]
fn every_key_is_documented_in_its_chapter_and_no_other_is() {
    let document = read("docs/configuration.md");
    for (heading, text) in [
        ("## `[server]`", "[server]\nzzz = 1"),
        ("## `[limits]`", "[limits]\nzzz = 1"),
        ("## `[buffering]`", "[buffering]\nzzz = 1"),
        ("## `[log]`", "[log]\nzzz = 1"),
        ("## `[acme]`", "[acme]\nzzz = 1"),
        (
            "### `[[acme.authority]]`",
            "[acme]\n[[acme.authority]]\nzzz = 1",
        ),
        (
            "### `[acme.on_demand]`",
            "[acme]\n[acme.on_demand]\nzzz = 1",
        ),
        ("## `[[site]]`", "[[site]]\nzzz = 1"),
        ("### `[site.tls]`", "[[site]]\n[site.tls]\nzzz = 1"),
        (
            "### `[site.compress]`",
            "[[site]]\n[site.compress]\nzzz = 1",
        ),
        (
            "### `[[site.cache_control]]`",
            "[[site]]\n[[site.cache_control]]\nzzz = 1",
        ),
        ("### `[[site.alias]]`", "[[site]]\n[[site.alias]]\nzzz = 1"),
        ("### `[[site.rule]]`", "[[site]]\n[[site.rule]]\nzzz = 1"),
        (
            "### `[[site.redirect]]`",
            "[[site]]\n[[site.redirect]]\nzzz = 1",
        ),
        (
            "### `[[site.rewrite]]`",
            "[[site]]\n[[site.rewrite]]\nzzz = 1",
        ),
        (
            "### `[[site.header]]`",
            "[[site]]\n[[site.header]]\nzzz = 1",
        ),
        ("### `[[site.route]]`", "[[site]]\n[[site.route]]\nzzz = 1"),
        (
            "### `[site.route.cache]`",
            "[[site]]\n[[site.route]]\norigin = \"http://a\"\n[site.route.cache]\nzzz = 1",
        ),
        ("## `[[application]]`", "[[application]]\nzzz = 1"),
        ("## `[[origin]]`", "[[origin]]\nzzz = 1"),
        (
            "### `[origin.check]`",
            "[[origin]]\n[origin.check]\nzzz = 1",
        ),
        (
            "### `[origin.tls]`",
            "[[origin]]\nservers = \"https://a\"\n[origin.tls]\nzzz = 1",
        ),
        ("## `[[class]]`", "[[class]]\nzzz = 1"),
        ("## `[[module]]`", "[[module]]\nzzz = 1"),
        ("## `[[database]]`", "[[database]]\nzzz = 1"),
    ] {
        let rows = chapter(&document, heading)
            .lines()
            .filter_map(|line| line.strip_prefix("| `"));
        let mut documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        let mut allowed = keys_allowed_in(text);
        documented.sort_unstable();
        allowed.sort_unstable();
        assert_eq!(documented, allowed, "{heading}");
    }
}

#[test]
fn the_example_is_right() {
    let config = parse(
        &read("examples/lowroad.toml"),
        &project("examples/lowroad.toml"),
    );
    let config = config.unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert_eq!(config.sites.len(), 2);
    assert_eq!(config.sites[0].names, [SiteName::Default]);
    assert_eq!(
        config.sites[0].root,
        SiteRoot::Folder(project("examples/site"))
    );
    assert_eq!(
        config.sites[1].names,
        [SiteName::Exact("plain.localhost".into())]
    );
}

#[test]
fn the_dynamic_set_s_configuration_is_right() {
    let file = "examples/specweb99/lowroad.toml";
    let config = parse(&read(file), &project(file));
    let config = config.unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert_eq!((config.modules.len(), config.sites[0].routes.len()), (2, 4));
}

#[test]
fn the_examples_comments_tell_the_defaults() {
    let text = read("examples/lowroad.toml");
    // The commented-out lines of a table, uncommented: they show defaults, so they must change nothing in the result.
    let shown = |table: &str| {
        let start = text
            .find(&format!("\n[{table}]\n"))
            .expect("the table is there")
            + 1;
        let body = text[start..]
            .split("\n\n")
            .next()
            .expect("split gives at least one part");
        let lines = body.lines().filter_map(|line| line.strip_prefix("# "));
        let keys: Vec<&str> = lines.filter(|line| !line.contains("no default")).collect();
        assert!(keys.len() >= 3, "{table}: {keys:?}");
        parse(
            &format!("[{table}]\n{}\n[[site]]\nroot = \"r\"", keys.join("\n")),
            Path::new("f"),
        )
    };
    let plain = parse("[[site]]\nroot = \"r\"", Path::new("f"));
    for table in ["server", "limits", "buffering", "log"] {
        assert_eq!(shown(table), plain, "{table}");
    }
}

#[test]
fn the_example_can_be_loaded_once_its_site_is_there() {
    let file = project("examples/lowroad.toml");
    let loaded = load(&file, &[]);
    let is_there = project("examples/site/404.html").is_file();
    assert_eq!(loaded.is_ok(), is_there, "{loaded:?}");
}
