//! The values in force: their defaults and origins, and the comparison of two configurations.

use super::include::MemoryFiles;
use super::*;
use crate::reference::{self, TABLES};

fn effective(text: &str) -> EffectiveConfig {
    let config = parse(text, Path::new("/c/lowroad.toml"));
    config
        .unwrap_or_else(|problems| panic!("{}\n{text}", lines(&problems)))
        .document
        .effective
}

/// All examples of the reference.
fn examples() -> Vec<String> {
    let pages = reference::pages();
    let blocks = pages
        .iter()
        .flat_map(|(_, text)| text.split("```toml\n").skip(1));
    blocks
        .map(|block| block.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn shown_configuration_has_the_same_values() {
    for text in examples() {
        let file = Path::new("/c/lowroad.toml");
        let config = parse(&text, file).expect("valid");
        let shown = config.document.effective.to_toml();
        if shown.contains("(hidden)") {
            continue;
        }
        let reread =
            parse(&shown, file).unwrap_or_else(|problems| panic!("{}\n{shown}", lines(&problems)));
        let plain = |mut config: Config| {
            config.server.is_cache_chosen = false;
            Config {
                start_tables: StartTables::default(),
                document: ConfigDocument::default(),
                ..config
            }
        };
        assert_eq!(
            changes(&config.document.effective, &reread.document.effective),
            []
        );
        assert_eq!(plain(reread), plain(config), "{text}\n{shown}");
    }
}

#[test]
fn origins_are_file_and_line_or_default() {
    let files = MemoryFiles::new(&[
        (
            "/c/lowroad.toml",
            "include = \"sites/a.toml\"\n[server]\nworkers = 2\ncache = \"2M\"\n[template.t]\nhidden = true\n",
        ),
        (
            "/c/sites/a.toml",
            "[[site]]\nuse = \"t\"\nnames = \"a.example\"\nroot = 'a'\nerror_pages = { 404 = \"/404.html\" }\n[[site.rule]]\npattern = \"/x\"\ndeny = 403\n",
        ),
    ]);
    let shown = files.good().document.effective.to_toml();
    for line in [
        "workers = 2 # /c/lowroad.toml:3",
        "affinity = false # default",
        // The default depends on `cache`.
        "cache_object = 524288 # default",
        "# user: \"lowroad\", or \"nobody\" if that user doesn't exist; \"root\" if other users can't read the roots (default)",
        "names = \"a.example\" # /c/sites/a.toml:3",
        "root = \"/c/sites/a\" # /c/sites/a.toml:4",
        "hidden = true # /c/lowroad.toml:6, used at /c/sites/a.toml:2",
        "[[site.rule]]",
        "deny = 403 # /c/sites/a.toml:8",
        "[site.compress]",
        "404 = \"/404.html\" # /c/sites/a.toml:5",
    ] {
        assert!(shown.lines().any(|it| it == line), "{line}\n{shown}");
    }
    assert!(!shown.contains("template") && !shown.contains("include") && !shown.contains("use ="));
}

#[test]
fn absent_tables_have_defaults_where_they_are_in_force() {
    // A table that changes nothing when it is empty is in force without its header.
    for table in TABLES {
        let has_defaults = table.keys.iter().any(|key| {
            matches!(key.default, reference::DefaultValue::Toml(_)) && key.with.is_empty()
        });
        if table.header.starts_with("[[") || !has_defaults {
            continue;
        }
        let (parent, name) = table.path().rsplit_once('.').unwrap_or(("", table.path()));
        let context = reference::table(parent).map_or("", |parent| parent.context);
        let context = match parent {
            "site.route" => {
                "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/x\"\norigin = \"http://a\"\n"
            }
            "site.rule" => "[[site]]\nroot = \"r\"\n[[site.rule]]\ndeny = 403\n",
            "origin" => {
                "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/x\"\norigin = \"o\"\n[[origin]]\nname = \"o\"\nservers = \"https://a\"\n"
            }
            _ => context,
        };
        let site = if context.contains("[[site]]") {
            ""
        } else {
            "[[site]]\nroot = \"r\"\n"
        };
        let absent = parse(&format!("{context}{site}"), Path::new("f")).expect("valid");
        let Ok(empty) = parse(
            &format!("{context}[{}]\n{site}", table.path()),
            Path::new("f"),
        ) else {
            continue;
        };
        let shown = absent.document.effective.to_toml();
        let is_shown = shown.contains(&format!("[{}]\n", table.path()));
        let is_in_force = Config {
            document: ConfigDocument::default(),
            ..empty
        } == Config {
            document: ConfigDocument::default(),
            ..absent
        };
        assert_eq!(is_shown, is_in_force, "{} {name}\n{shown}", table.header);
    }
}

#[test]
fn secrets_are_hidden() {
    let text = in_site(
        "[[database]]\nname = \"d\"\nurl = \"mysql://u:hunter2@h/d\"\n[traces.headers]\nA = \"hunter2\"\n[[application]]\nname = \"a\"\ncommand = [\"a\"]\nenv = { K = \"hunter2\", L = { file = \"k\" } }\n",
    );
    let config = parse(&text, Path::new("/c/lowroad.toml")).expect("valid");
    let document = config.document;
    let json = document.effective.to_json().to_string();
    for shown in [document.effective.to_toml(), json, format!("{document:?}")] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    assert!(
        document
            .effective
            .to_toml()
            .contains("env = { K = \"(hidden)\", L = { file = \"/c/k\" } } # /c/lowroad.toml:11")
    );
    let other = effective(
        &text
            .replace("u:hunter2", "u:hunter3")
            .replace("K = \"hunter2\"", "K = 2"),
    );
    let found = changes(&document.effective, &other);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        found[1].to_string(),
        "- database[\"d\"].url = \"(hidden)\" # /c/lowroad.toml:5\n+ database[\"d\"].url = \"(hidden)\" # /c/lowroad.toml:5"
    );
    // The admin service doesn't send secrets, so they can't be compared.
    let running = EffectiveConfig::from_json(&document.effective.to_json()).expect("values");
    assert_eq!(changes(&running, &other), []);
}

#[test]
fn changes_are_found_by_value() {
    let old = "[server]\nworkers = 2\n[limits]\nidle_timeout = \"1m\"\n[[site]]\nnames = \"a\"\nroot = \"/a\"\nlisten = 8080\n\
               [[site.rule]]\npattern = \"/x\"\ndeny = 403\n[[site.rule]]\npattern = \"/y\"\ndeny = 403\n[[site]]\nnames = \"b\"\nroot = \"/b\"\n";
    // Another notation, order of tables, and explicit defaults.
    let same = "[limits]\nidle_timeout = 60\nbody_len_max = 1048576\n[server]\nworkers = \"2\"\n[log]\nlevel = \"info\"\n[[site]]\nnames = [\"a\"]\nroot = \"/a\"\nlisten = [\"8080\"]\n\
               [[site.rule]]\npattern = \"/x\"\ndeny = 403\n[[site.rule]]\npattern = \"/y\"\ndeny = 403\n[[site]]\nnames = \"b\"\nroot = \"/b\"\n";
    assert_eq!(changes(&effective(old), &effective(same)), []);
    let new = "[server]\nworkers = 4\n[limits]\nidle_timeout = \"1m\"\n[[site]]\nnames = \"new\"\nroot = \"/n\"\n[[site]]\nnames = \"a\"\nroot = \"/a\"\nlisten = 8080\n\
               [[site.rule]]\npattern = \"/y\"\ndeny = 404\n[[site.rule]]\npattern = \"/x\"\ndeny = 403\n";
    let found: Vec<String> = changes(&effective(old), &effective(new))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "- server.workers = 2 # /c/lowroad.toml:2\n+ server.workers = 4 # /c/lowroad.toml:2",
            "- site[\"a\"].rule[\"/y\"].deny = 403 # /c/lowroad.toml:14\n+ site[\"a\"].rule[\"/y\"].deny = 404 # /c/lowroad.toml:14",
            "- site[\"a\"].rule in this order = [\"/x\", \"/y\"]\n+ site[\"a\"].rule in this order = [\"/y\", \"/x\"]",
            "- site[\"b\"] = { names = \"b\", root = \"/b\" }",
            "+ site[\"new\"] = { names = \"new\", root = \"/n\" }",
        ]
    );
}
