//! The reference covers exactly the keys that the parser accepts, with their defaults; its examples are valid, and the
//! committed pages are rendered from it.

use lowroad_config::reference::{self, DefaultValue};
use lowroad_config::{Config, ConfigDocument, SiteName, SiteRoot, StartTables, load, parse};
use std::path::{Path, PathBuf};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project(path)).expect("a file of this project")
}

/// The keys that the parser accepts in a table, taken from its message about an unknown key.
fn keys_allowed_in(text: &str) -> Vec<String> {
    let problems = parse(text, Path::new("f")).expect_err("there is an unknown key");
    let unknown = problems
        .iter()
        .find(|problem| problem.message.starts_with("unknown key"));
    let allowed = &unknown.expect("there is an unknown key").allowed;
    allowed.split(", ").map(str::to_string).collect()
}

/// A configuration with a table, and with a site unless the table is one.
fn with_site(table: &str) -> String {
    match table.contains("[[site]]") {
        true => table.to_string(),
        false => format!("{table}\n[[site]]\nroot = \"r\"\n"),
    }
}

/// Parses a valid configuration. Whether the operator chose the cache size, and the words of the file are excluded from
/// comparisons.
fn parse_valid(text: &str) -> Config {
    let config = parse(text, Path::new("f"));
    let mut config = config.unwrap_or_else(|problems| panic!("{}\n{text}", problems[0]));
    config.server.is_cache_chosen = false;
    config.start_tables = StartTables::default();
    config.document = ConfigDocument::default();
    config
}

#[test]
fn committed_pages_equal_rendered_reference() {
    let folder = project("docs/configuration");
    let command = "cargo run -p lowroad -- config docs docs/configuration";
    let pages = reference::pages();
    for (name, text) in &pages {
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            committed == *text,
            "docs/configuration/{name} differs from crates/config/src/reference; write it anew: {command}"
        );
    }
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let is_rendered = pages.iter().any(|(page, _)| **page == *name);
        assert!(is_rendered, "{name:?} is not a page of the reference");
    }
}

#[test]
fn all_examples_of_reference_are_valid() {
    let pages = reference::pages();
    let examples = pages.iter().flat_map(|(page, text)| {
        let blocks = text.split("```toml\n").skip(1);
        blocks.map(move |block| (page, block.split("```").next().unwrap_or_default()))
    });
    let examples: Vec<_> = examples.collect();
    assert!(examples.len() >= 30, "{} examples", examples.len());
    for (page, text) in examples {
        match parse(text, Path::new(page)) {
            Err(problems) => panic!("{}\n{text}", problems[0]),
            Ok(config) => {
                let warning = config.document.warnings.first();
                assert!(warning.is_none(), "{warning:?}\n{text}");
            }
        }
    }
}

#[test]
fn each_table_page_has_an_example() {
    for (name, text) in reference::pages() {
        assert!(text.contains("```toml\n"), "{name}");
    }
}

#[test]
fn reference_keys_equal_keys_of_parser() {
    for table in reference::TABLES {
        // The reader knows no keys of a table with free-form keys.
        if table.keys.is_empty() {
            continue;
        }
        let mut described: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
        let mut allowed = keys_allowed_in(&with_site(&format!("{}zzz = 1\n", table.context)));
        described.sort_unstable();
        allowed.sort_unstable();
        allowed.dedup();
        assert_eq!(described, allowed, "{}", table.header);
    }
}

#[test]
fn reference_contains_all_tables() {
    let paths: Vec<&str> = reference::TABLES.iter().map(|table| table.path()).collect();
    // A key with a meaning that refers to another page is a table.
    for table in reference::TABLES {
        let of_tables = table
            .keys
            .iter()
            .filter(|key| key.meaning.contains("See [`["));
        for key in of_tables {
            let path = format!("{}.{}", table.path(), key.name);
            assert!(paths.contains(&&*path), "{path}");
        }
    }
    for key in keys_allowed_in("zzz = 1\n[[site]]\nroot = \"r\"\n") {
        // These two are described with the file: they have no table of keys.
        let is_of_file = ["include", "template"].contains(&&*key);
        // Tables with free names are described under one name.
        let named = format!("{key}.NAME");
        let is_described = [&*key, &*named].iter().any(|path| paths.contains(path));
        assert!(is_of_file || is_described, "{key}");
    }
}

#[test]
fn reference_defaults_equal_schema_defaults() {
    for table in reference::TABLES {
        for key in table.keys {
            let DefaultValue::Toml(value) = key.default else {
                continue;
            };
            let lines = key.with.iter().map(|with| {
                let line = table.with_line(with);
                line.unwrap_or_else(|| panic!("{} {}: no line for {with}", table.header, key.name))
            });
            let mut lines: Vec<&str> = lines.collect();
            if lines.is_empty() {
                // The line of the empty word makes a table valid that requires one of several keys.
                lines.push(table.with_line("").unwrap_or_default());
            }
            for line in lines {
                let plain = with_site(&format!("{}{line}\n", table.context));
                // Lines like `local = true` make the table valid, and may contain the key itself.
                let own_lines = table.context.rsplit("]\n").next().unwrap_or_default();
                if own_lines
                    .lines()
                    .any(|line| line.starts_with(&format!("{} = ", key.name)))
                {
                    continue;
                }
                let set = format!("{}{line}\n{} = {value}\n", table.context, key.name);
                let (plain, set) = (parse_valid(&plain), parse_valid(&with_site(&set)));
                assert_eq!(set, plain, "{} {} = {value}", table.header, key.name);
            }
        }
    }
}

#[test]
fn links_between_pages_refer_to_existing_headings() {
    let pages = reference::pages();
    let folder = project("docs/configuration");
    for (name, text) in &pages {
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap_or_default();
            if target.starts_with("https:") {
                continue;
            }
            let (page, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = if page.is_empty() { name } else { page };
            let linked = std::fs::read_to_string(folder.join(page));
            let linked = linked.unwrap_or_else(|error| panic!("{name}: {target}: {error}"));
            let mut headings = linked.lines().filter(|line| line.starts_with('#'));
            let is_there = anchor.is_empty() || headings.any(|line| anchor_of(line) == anchor);
            assert!(is_there, "{name}: {target}");
        }
    }
}

/// The anchor that GitHub generates for a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|it| it.is_alphanumeric() || "-_ ".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[test]
fn man_page_contains_all_keys() {
    let page = reference::man_page("1.0.0");
    for table in reference::TABLES {
        for key in table.keys {
            assert!(
                page.contains(&format!("\n\\fB{}\\fR (", key.name)),
                "{}",
                key.name
            );
        }
    }
    // No Markdown markup remains.
    for line in page.lines() {
        assert!(!line.contains('`') && !line.contains("]("), "{line}");
    }
}

#[test]
fn example_configuration_is_valid() {
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
fn specweb99_example_configuration_is_valid() {
    let file = "examples/specweb99/lowroad.toml";
    let config = parse(&read(file), &project(file));
    let config = config.unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert_eq!((config.modules.len(), config.sites[0].routes.len()), (2, 4));
}

#[test]
fn commented_out_lines_of_example_are_the_defaults() {
    let text = read("examples/lowroad.toml");
    // The commented-out lines of a table show defaults: uncommented, they must not change the result.
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
        parse_valid(&format!(
            "[{table}]\n{}\n[[site]]\nroot = \"r\"",
            keys.join("\n")
        ))
    };
    let plain = parse_valid("[[site]]\nroot = \"r\"");
    for table in ["server", "limits", "buffering", "log"] {
        assert_eq!(shown(table), plain, "{table}");
    }
}

#[test]
fn example_configuration_loads_if_its_site_exists() {
    let file = project("examples/lowroad.toml");
    let loaded = load(&file, &[]);
    let is_there = project("examples/site/404.html").is_file();
    assert_eq!(loaded.is_ok(), is_there, "{loaded:?}");
}

/// The examples of the reference and of the folder `examples`, as JSON without merging and expanding.
fn examples_as_json() -> Vec<(String, serde_json::Value)> {
    let pages = reference::pages();
    let blocks = pages.iter().flat_map(|(page, text)| {
        let blocks = text.split("```toml\n").skip(1);
        blocks.map(move |block| (page.clone(), block.split("```").next().unwrap_or_default()))
    });
    let files = [
        "examples/lowroad.toml",
        "examples/specweb99/lowroad.toml",
        "dist/deb/lowroad.toml",
    ];
    let files = files.map(|file| (file.to_owned(), read(file)));
    let mut texts: Vec<(String, String)> =
        blocks.map(|(page, text)| (page, text.to_owned())).collect();
    texts.extend(files);
    texts
        .into_iter()
        .map(|(name, text)| {
            let json = lowroad_config::toml_text_to_json(&text);
            (name, json.expect("TOML"))
        })
        .collect()
}

/// Calls a function with a copy of the value for each of its tables, which has an unknown key.
fn with_unknown_keys(value: &serde_json::Value, check: &mut impl FnMut(&serde_json::Value)) {
    // Pointers of all tables, without those of free-form keys.
    fn pointers(value: &serde_json::Value, pointer: &str, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(values) => {
                let table = reference::table(path);
                if path.is_empty() || table.is_some_and(|table| !table.keys.is_empty()) {
                    found.push(pointer.to_owned());
                }
                for (key, value) in values {
                    let path = if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    };
                    pointers(value, &format!("{pointer}/{key}"), &path, found);
                }
            }
            serde_json::Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    pointers(item, &format!("{pointer}/{index}"), path, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    pointers(value, "", "", &mut found);
    for pointer in found {
        let mut changed = value.clone();
        changed.pointer_mut(&pointer).expect("a table")["zzz"] = 1.into();
        check(&changed);
    }
}

#[test]
fn json_schema_accepts_examples_and_refuses_typos() {
    let schema = reference::json_schema();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let mut typo_count = 0;
    for (name, example) in examples_as_json() {
        let errors: Vec<String> = validator
            .iter_errors(&example)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        with_unknown_keys(&example, &mut |typo| {
            typo_count += 1;
            assert!(!validator.is_valid(typo), "{name}: {typo}");
        });
    }
    assert!(typo_count > 100, "{typo_count}");
    for text in [
        "[server]\naffinity = 1",
        "[server]\nworkers = 2000",
        "[server]\nworkers = \"many\"",
        "[server]\ncache = \"1T\"",
        "[limits]\nidle_timeout = \"1 minute\"",
        "[log]\nlevel = \"verbose\"",
        "[site]\nroot = \"r\"",
        "[[site]]\nsymlinks = true",
        "[[site.route]]\nfastcgi = \"x\"",
        "[[database]]\nname = \"d\"\nurl = { fil = \"x\" }",
        "[admin]\ntoken = \"plain\"",
        "[[origin]]\nname = \"o\"\nservers = [true]",
        "sites = []",
    ] {
        let value = lowroad_config::toml_text_to_json(text).expect("TOML");
        assert!(!validator.is_valid(&value), "{text}");
    }
}

#[test]
fn schema_has_the_defaults_that_it_accepts() {
    for table in reference::TABLES {
        let schema = reference::json_schema();
        let definition = &schema["$defs"][table.path()];
        for key in table.keys {
            let Some(default) = definition["properties"][key.name].get("default") else {
                continue;
            };
            let mut of_key = schema.clone();
            of_key["properties"] = serde_json::json!({"key": definition["properties"][key.name]});
            let validator = jsonschema::draft202012::new(&of_key).expect("a schema");
            let value = serde_json::json!({"key": default});
            assert!(validator.is_valid(&value), "{} {}", table.header, key.name);
        }
    }
}

#[test]
fn example_configurations_are_formatted_once() {
    for file in [
        "examples/lowroad.toml",
        "examples/specweb99/lowroad.toml",
        "dist/deb/lowroad.toml",
    ] {
        let formatted = lowroad_config::format(&read(file)).expect("TOML");
        let again = lowroad_config::format(&formatted);
        assert_eq!(again.as_ref(), Ok(&formatted), "{file}");
    }
    let package = read("dist/deb/lowroad.toml");
    assert_eq!(lowroad_config::format(&package), Ok(package));
}
