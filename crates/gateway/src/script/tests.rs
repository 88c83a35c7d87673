use lowroad_config::PathPattern;

use super::{
    LocatedScript, PathMeaning, RequestedPath, ScriptKind, ScriptRules, base_path, find,
    find_by_name, front_controller, mounted_program,
};

const FILES: &[&str] = &[
    "/index.php",
    "/a/index.php",
    "/a/b.php",
    "/up/evil.jpg",
    "/up/.x.php",
    "/tool",
];
const FOLDERS: &[&str] = &["/a", "/up", "/empty", "/dir.php"];

fn kind(path: &[u8]) -> ScriptKind {
    let path = std::str::from_utf8(path).expect("text");
    let trimmed = path.trim_end_matches('/');
    if FILES.contains(&path) {
        ScriptKind::File
    } else if FOLDERS.contains(&trimmed) || trimmed.is_empty() {
        ScriptKind::Folder
    } else {
        ScriptKind::Nothing
    }
}

fn rules(pattern: &str) -> ScriptRules {
    ScriptRules {
        pattern: PathPattern::parse(pattern).expect("a pattern"),
        suffix: ".php".to_string(),
        index: "index.php".to_string(),
    }
}

fn found(pattern: &str, path: &str) -> Option<(String, String)> {
    found_within(pattern, path, path.len())
}

fn requested(path: &str, plain_len: usize) -> RequestedPath<'_> {
    RequestedPath {
        path: path.as_bytes(),
        plain_len,
    }
}

fn found_within(pattern: &str, path: &str, plain_len: usize) -> Option<(String, String)> {
    match find(requested(path, plain_len), &rules(pattern), kind) {
        PathMeaning::Script(LocatedScript { name, info }) => Some((
            String::from_utf8(name).expect("text"),
            String::from_utf8(info).expect("text"),
        )),
        PathMeaning::SlashMissing => Some(("slash".to_string(), String::new())),
        PathMeaning::Nothing => None,
    }
}

#[test]
fn paths_map_to_script_and_path_info() {
    for (pattern, path, want) in [
        ("*.php", "/index.php", Some(("/index.php", ""))),
        ("*.php", "/a/b.php", Some(("/a/b.php", ""))),
        ("/**.php/**", "/a/b.php/x/y", Some(("/a/b.php", "/x/y"))),
        ("/**.php/**", "/a/b.php/", Some(("/a/b.php", "/"))),
        ("/**", "/a/b.php/x.php", Some(("/a/b.php", "/x.php"))),
        ("/**", "/", Some(("/index.php", ""))),
        ("/**", "/a/", Some(("/a/index.php", ""))),
        ("/**", "/a", Some(("slash", ""))),
        ("/**", "/empty/", None),
        ("/**", "/empty", None),
        ("/**", "/dir.php", None),
        ("*.php", "/none.php", None),
        ("/**", "/none.php/x", None),
        ("/**", "/none/index.php", None),
        // Text after the name of a picture does not turn the picture into a script.
        ("*.php", "/up/evil.jpg/x.php", None),
        ("/**", "/up/evil.jpg/x.php", None),
        ("/**.php/**", "/up/evil.jpg/x.php/", None),
        ("/**", "/up/evil.jpg", None),
        ("/**", "/up/.x.php", None),
        (
            "*.php",
            "/a/b.php/.gitignore",
            Some(("/a/b.php", "/.gitignore")),
        ),
        ("/**", "/tool", None),
        ("/b/**", "/a/b.php", None),
    ] {
        let got = found(pattern, path);
        let got = got.as_ref().map(|(name, info)| (&name[..], &info[..]));
        assert_eq!(got, want, "{pattern} {path}");
    }
}

#[test]
fn script_name_contains_no_encoded_slash() {
    // The raw paths: /a%2Fb.php, /a/b.php%2Fx, /a%2F
    assert_eq!(found_within("*.php", "/a/b.php", 2), None);
    assert!(found_within("*.php", "/a/b.php/x", 8).is_some());
    assert_eq!(found_within("/**", "/a/", 2), None);
}

#[test]
fn front_controller_handles_all_paths() {
    for (path, info) in [
        ("/2026/11/hello/", ""),
        ("/index.php", ""),
        ("/index.php/x/y", "/x/y"),
        ("/index.phpx/y", ""),
    ] {
        let script = front_controller(path.as_bytes(), "/index.php");
        assert_eq!(script.name, b"/index.php");
        assert_eq!(script.info, info.as_bytes(), "{path}");
    }
}

#[test]
fn mounted_program_gets_rest_of_path_as_path_info() {
    for (base, path, want) in [
        ("", "/", ("", "/")),
        ("", "/a/b", ("", "/a/b")),
        ("/app", "/app/", ("/app", "/")),
        ("/app", "/app/x/y", ("/app", "/x/y")),
        ("/app", "/app", ("/app", "")),
        ("/app", "/apple", ("", "/apple")),
    ] {
        let script = mounted_program(path.as_bytes(), base);
        let want = LocatedScript {
            name: want.0.into(),
            info: want.1.into(),
        };
        assert_eq!(script, want, "{base} {path}");
    }
}

#[test]
fn base_path_is_pattern_up_to_last_slash_before_wildcard() {
    for (pattern, want) in [
        ("/cgi-bin/**", "/cgi-bin"),
        ("/cgi-bin/*", "/cgi-bin"),
        ("/a/b*", "/a"),
        ("/**", ""),
        ("*.cgi", ""),
    ] {
        let pattern = PathPattern::parse(pattern).expect("a pattern");
        assert_eq!(base_path(&pattern), want);
    }
}

#[test]
fn remote_scripts_are_found_by_name() {
    for (pattern, path, want) in [
        ("*.php", "/a.php", Some(("/a.php", ""))),
        (
            "*.php",
            "/folder.php/a.php",
            Some(("/folder.php", "/a.php")),
        ),
        ("/**.php/**", "/a/b.php/x/y", Some(("/a/b.php", "/x/y"))),
        ("/**", "/a/b.php/x.php", Some(("/a/b.php", "/x.php"))),
        ("/**", "/", Some(("/index.php", ""))),
        ("*.php", "/a/", Some(("/a/index.php", ""))),
        ("/**", "/a", None),
        ("/**", "/style.css", None),
        ("/**", "/.x.php", None),
        ("/**", "/.git/", None),
        (
            "/**",
            "/.well-known/a.php",
            Some(("/.well-known/a.php", "")),
        ),
    ] {
        let meaning = find_by_name(requested(path, path.len()), &rules(pattern));
        let want = want.map_or(PathMeaning::Nothing, |(name, info)| {
            PathMeaning::Script(LocatedScript {
                name: name.into(),
                info: info.into(),
            })
        });
        assert_eq!(meaning, want, "{pattern} {path}");
    }
    // The script's name must end before the first needlessly encoded byte.
    let encoded = find_by_name(requested("/a.php/x", 3), &rules("/**"));
    assert_eq!(encoded, PathMeaning::Nothing);
    // Without a suffix, the script is the whole path.
    let any = ScriptRules {
        suffix: String::new(),
        index: String::new(),
        ..rules("/cgi/**")
    };
    let meaning = find_by_name(requested("/cgi/a/b", 8), &any);
    assert_eq!(
        meaning,
        PathMeaning::Script(LocatedScript {
            name: b"/cgi/a/b".into(),
            info: Vec::new(),
        })
    );
}
