//! Templates: their keys at the places of use, and the problem for each mistake.

use super::include::MemoryFiles;
use super::*;

const PHP: &str = "[template.php]\nindex = [\"index.php\"]\nlisting = true\n[[template.php.route]]\npattern = \"*.php\"\nfastcgi = \"unix:php.sock\"\n[template.php.error_pages]\n404 = \"/404.html\"\n";

#[test]
fn keys_of_template_are_taken_over_and_own_keys_win() {
    let config = good(&format!(
        "{PHP}[template.quiet]\nlisting = false\nhidden = true\n[template.slow]\ntimeout = \"5m\"\n\
         [[site]]\nuse = [\"php\", \"quiet\"]\nroot = \"r\"\nindex = \"a.html\"\n\
         [site.error_pages]\n403 = \"/403.html\"\n\
         [[site.route]]\nuse = \"slow\"\npattern = \"/x/**\"\norigin = \"http://127.0.0.1:3000\"\n\
         [[site]]\nnames = \"b\"\nuse = \"php\"\nroot = \"r\"\n"
    ));
    let [first, second] = &config.sites[..] else {
        panic!("two sites")
    };
    // The later template wins, and the site's own keys win over both.
    assert_eq!(
        (first.listing, first.hidden, &first.index[..]),
        (false, true, &["a.html".to_owned()][..])
    );
    assert_eq!(
        (second.listing, second.hidden, &second.index[..]),
        (true, false, &["index.php".to_owned()][..])
    );
    // Arrays of tables: those of the template are first.
    let patterns: Vec<String> = first
        .routes
        .iter()
        .map(|it| it.pattern.to_string())
        .collect();
    assert_eq!(patterns, ["*.php", "/x/**"]);
    assert_eq!(
        (first.routes[0].timeout_ms, first.routes[1].timeout_ms),
        (30_000, 300_000)
    );
    // Tables are united.
    assert_eq!(first.error_pages.keys().collect::<Vec<_>>(), [&403, &404]);
    assert_eq!(second.routes.len(), 1);
}

#[test]
fn templates_use_templates_in_other_files() {
    let files = MemoryFiles::new(&[
        (
            "/c/lowroad.toml",
            "include = [\"t/*.toml\"]\n[[site]]\nuse = \"outer\"\n",
        ),
        (
            "/c/t/a.toml",
            "[template.outer]\nuse = \"inner\"\nhidden = true\n",
        ),
        (
            "/c/t/b.toml",
            "[template.inner]\nroot = \"www\"\nhidden = false\n",
        ),
    ]);
    let config = files.good();
    // A path is relative to the file of the template.
    assert_eq!(config.sites[0].root, SiteRoot::Folder("/c/t/www".into()));
    assert!(config.sites[0].hidden);
}

#[test]
fn problems_name_the_line_of_the_template_and_of_its_use() {
    let shown = shown(
        "[template.a]\nhiden = true\n[[template.a.route]]\npattern = \"/x\"\n[template.b]\nuse = \"a\"\nlisting = 3\n\
         [[site]]\nroot = \"r\"\nuse = \"b\"\n[[site]]\nnames = \"n\"\nroot = \"r\"\nuse = [\"a\"]\n",
    );
    let found: Vec<&str> = shown.lines().collect();
    assert_eq!(found.len(), 5, "{shown}");
    for (line, start, end) in [
        (
            found[0],
            "2:1: site[0].hiden: unknown key; did you mean hidden?",
            "; used at f:6:7; used at f:10:7",
        ),
        (
            found[1],
            "2:1: site[1].hiden: unknown key; did you mean hidden?",
            "; used at f:14:8",
        ),
        (
            found[2],
            "3:1: site[0].route[0]: the route has no handler",
            "; used at f:6:7; used at f:10:7",
        ),
        (
            found[3],
            "3:1: site[1].route[0]: the route has no handler",
            "; used at f:14:8",
        ),
        (
            found[4],
            "7:11: site[0].listing: 3 is not a boolean",
            "; used at f:10:7",
        ),
    ] {
        assert!(line.starts_with(start) && line.ends_with(end), "{line}");
    }
}

#[test]
fn mistakes_of_templates_are_problems() {
    let site = "[[site]]\nroot = \"r\"\nuse = \"a\"\n";
    for (text, expected) in [
        (
            "[template.ab]\nroot = \"r\"\n",
            "5:7: use: there is no template \"a\"; did you mean ab? (allowed: ab)",
        ),
        (
            "",
            "3:7: use: there is no template \"a\" (allowed: the name of a [template.NAME])",
        ),
        (
            "[template.a]\nuse = \"a\"\n",
            "2:7: use: the template uses itself: a uses a (allowed: templates without a cycle); used at f:5:7",
        ),
        (
            "[template]\na = 1\n",
            "2:1: template.a: is not a table (allowed: [template.NAME])\n5:7: use: there is no template \"a\" (allowed: the name of a [template.NAME])",
        ),
        (
            "[template.a]\nuse = [1]\n",
            "2:8: use: not the name of a template (allowed: \"NAME\", or [\"NAME\", …]); used at f:5:7",
        ),
    ] {
        assert_eq!(shown(&format!("{text}{site}")), expected, "{text}");
    }
}

#[test]
fn expansion_is_bounded() {
    // Each template uses the previous one ten times, so four steps take a thousand values ten thousand times.
    let values = vec!["\"a\""; 1000].join(", ");
    let mut text = format!("[template.t0]\nindex = [{values}]\n");
    for step in 1..=4 {
        text += &format!("[template.t{step}]\n");
        for _ in 0..10 {
            text += &format!("[[template.t{step}.route]]\nuse = \"t{}\"\n", step - 1);
        }
    }
    let merged = parse(
        &format!("{text}[[site]]\nroot = \"r\"\nuse = \"t4\"\n"),
        Path::new("f"),
    );
    let problems = merged.expect_err("too many values");
    assert_eq!(problems.len(), 1);
    assert_eq!(
        problems[0].message,
        "templates add more than 1000000 values"
    );
}

#[test]
fn unused_template_is_a_warning() {
    let config = parse(&format!("{PHP}{}", in_site("")), Path::new("f")).expect("valid");
    assert_eq!(
        lines(&config.document.warnings),
        "f:1:11: template.php: the template is not used\n"
    );
}

#[test]
fn use_is_a_plain_key_in_tables_of_free_form_keys() {
    let config = good(&in_site(
        "[[application]]\nname = \"a\"\ncommand = [\"/a\"]\nenv = { use = \"x\" }",
    ));
    assert_eq!(
        config.applications[0].env,
        [("use".to_owned(), "x".to_owned())]
    );
}
