//! Aliases: folders outside of the site's root.

use std::fs;
use std::os::unix::fs::symlink;

use lowroad_testkit::{TempFolder, wait_until};

use crate::place::{Place, check, program};

const ALIAS: &str = "[[site.alias]]\npath = \"/static/\"\nfolder = \"{}/app\"\n";

const FILES: [&str; 9] = [
    "root/a.txt",
    "root/static/a.css",
    "root/static/only-here.txt",
    "app/a.css",
    "app/index.html",
    "app/sub/b.js",
    "app/.git/config",
    "app/c d.txt",
    "outside.txt",
];

#[test]
fn alias_maps_a_path_to_another_folder() {
    let place = Place::new(&FILES, ALIAS);
    for (path, said) in [
        ("/a.txt", "root/a.txt"),
        ("/static/a.css", "app/a.css"),
        ("/static/", "app/index.html"),
        ("/static/sub/b.js", "app/sub/b.js"),
        ("//static//sub/b.js", "app/sub/b.js"),
        ("/st%61tic/c%20d.txt", "app/c d.txt"),
        ("/static", "301"),
        ("/static/sub", "301"),
        ("/static/sub/", "403"),
        ("/static/only-here.txt", "404"),
        ("/static/.git/config", "404"),
        ("/static/../outside.txt", "400"),
        ("/static/..%2foutside.txt", "400"),
        ("/static%2fa.css", "400"),
        ("/statica.css", "404"),
        ("/static.txt", "404"),
        ("/app/a.css", "404"),
    ] {
        assert_eq!(place.body_or_status(path), said, "{path}");
    }
    let css = place.get("/static/a.css");
    assert_eq!(css.field("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(place.get("/static").field("location"), Some("/static/"));
    let part = place.get_with("/static/a.css", "Range: bytes=4-\r\n");
    assert_eq!((part.status, part.text()), (206, "a.css".into()));
    let etag = css.field("etag").expect("a tag");
    let same = place.get_with("/static/a.css", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(same.status, 304);
    let told = place.explain("/static/a.css");
    let folder = place.folder.path().canonicalize().expect("a folder");
    let said = format!(
        "alias                  /static is {}/app\n",
        folder.display()
    );
    assert!(told.contains(&said), "{told}");
    let told = place.explain("/static/none");
    assert!(
        told.contains("/app/none: no file or folder has this name"),
        "{told}"
    );
}

#[test]
fn longest_alias_applies_and_rules_match_the_requested_path() {
    let place = Place::new(
        &["app/in/a", "other/a", "other/secret", "root/x"],
        "listing = true\n\
         [[site.alias]]\npath = \"/app\"\nfolder = \"{}/app\"\n\
         [[site.alias]]\npath = \"/app/in\"\nfolder = \"{}/other\"\n\
         [[site.rule]]\npattern = \"/app/in/secret\"\ndeny = 403\n\
         [[site.header]]\npattern = \"/app/**\"\nset = { X-Own = \"1\" }\n",
    );
    let got = place.get("/app/in/a");
    assert_eq!(
        (got.text(), got.field("x-own")),
        ("other/a".into(), Some("1"))
    );
    for path in [
        "/app/in/secret",
        "/app//in/secret",
        "/app/in/secret.gz",
        "/app/in/%73ecret",
    ] {
        assert_eq!(place.body_or_status(path), "403", "{path}");
    }
    let listed = place.body_or_status("/app/in/");
    assert!(
        listed.contains("secret") && listed.contains("/app/in/"),
        "{listed}"
    );
}

#[test]
fn alias_symlinks_can_not_leave_the_folder() {
    for (symlinks, out, beside) in [
        ("beneath", "403", "app/a.css"),
        ("none", "403", "403"),
        ("follow", "outside.txt", "app/a.css"),
    ] {
        let folder = TempFolder::new();
        fs::create_dir_all(folder.path().join("app")).expect("a folder");
        symlink("../outside.txt", folder.path().join("app/out")).expect("a link");
        symlink("a.css", folder.path().join("app/beside")).expect("a link");
        symlink("../root/a.txt", folder.path().join("app/root")).expect("a link");
        let lines = format!("symlinks = \"{symlinks}\"\n{ALIAS}");
        let place = Place::after(folder, &FILES, &lines);
        assert_eq!(place.body_or_status("/static/out"), out, "{symlinks}");
        assert_eq!(place.body_or_status("/static/beside"), beside, "{symlinks}");
        // A link from the alias's folder to the site's root leads out of the alias's folder.
        if symlinks != "follow" {
            assert_eq!(place.body_or_status("/static/root"), "403", "{symlinks}");
        }
    }
}

#[test]
fn precompressed_siblings_are_served_under_an_alias() {
    let folder = TempFolder::new();
    folder.file("app/a.css", "a{}".repeat(1000));
    folder.file("app/a.css.gz", "prepared");
    let place = Place::after(folder, &[], ALIAS);
    for _ in 0..2 {
        let got = place.get_with("/static/a.css", "Accept-Encoding: gzip\r\n");
        assert_eq!(got.field("content-encoding"), Some("gzip"));
        assert_eq!(got.body, b"prepared");
    }
    let made = place.get_with("/static/a.css", "Accept-Encoding: br\r\n");
    assert_eq!(made.field("content-encoding"), Some("br"));
}

#[test]
fn changes_of_aliased_files_are_detected() {
    let folder = TempFolder::new();
    fs::create_dir_all(folder.path().join("v1")).expect("a folder");
    symlink("v1", folder.path().join("app")).expect("a link");
    let place = Place::after(folder, &["v1/a", "v1/sub/a", "v2/a"], ALIAS);
    let notices = |path: &str, said: &str| {
        wait_until(path, || (place.body_or_status(path) == said).then_some(()));
    };
    for _ in 0..3 {
        assert_eq!(place.body_or_status("/static/a"), "v1/a");
        assert_eq!(place.body_or_status("/static/sub/a"), "v1/sub/a");
        assert_eq!(place.body_or_status("/static/new"), "404");
    }
    place.folder.file("v1/a", "changed");
    notices("/static/a", "changed");
    place.folder.file("v1/new", "new");
    notices("/static/new", "new");
    fs::remove_dir_all(place.folder.path().join("v1/sub")).expect("removed");
    notices("/static/sub/a", "404");
    // A new version is installed by replacing a link.
    let link = place.folder.path().join("next");
    symlink("v2", &link).expect("a link");
    fs::rename(link, place.folder.path().join("app")).expect("renamed");
    notices("/static/a", "v2/a");
    notices("/static/new", "404");
}

#[test]
fn reload_with_another_alias_folder_replaces_responses() {
    let place = Place::new(
        &["one/a", "two/a"],
        "[[site.alias]]\npath = \"/x\"\nfolder = \"{}/one\"\n",
    );
    for _ in 0..3 {
        assert_eq!(place.body_or_status("/x/a"), "one/a");
    }
    let file = place.folder.path().join("lowroad.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    fs::write(&file, text.replace("/one\"", "/two\"")).expect("written");
    place.server.signal("HUP");
    wait_until("the reload", || {
        (place.body_or_status("/x/a") == "two/a").then_some(())
    });
}

#[test]
fn cgi_scripts_are_found_under_an_alias() {
    let folder = TempFolder::new();
    let script = "#!/bin/sh\nsaid=\"$SCRIPT_NAME $PATH_INFO $SCRIPT_FILENAME\"\n\
        printf 'Content-Type: text/plain\\nContent-Length: %d\\n\\n%s' ${#said} \"$said\"\n";
    program(&folder, "app/sub/say.cgi", script);
    program(&folder, "root/say.cgi", script);
    fs::create_dir_all(folder.path().join("root/app")).expect("a folder");
    let place = Place::after(
        folder,
        &["app/index.lrp"],
        &format!(
            "{ALIAS}[[site.route]]\npattern = \"*.cgi\"\ncgi = true\n[[site.route]]\npattern = \"*.lrp\"\npages = true\n"
        ),
    );
    let at = place.folder.path().canonicalize().expect("a folder");
    let at = at.display();
    for (path, said) in [
        ("/say.cgi", format!("/say.cgi  {at}/root/say.cgi")),
        (
            "/static/sub/say.cgi",
            format!("/static/sub/say.cgi  {at}/app/sub/say.cgi"),
        ),
        (
            "/static/sub/say.cgi/x",
            format!("/static/sub/say.cgi /x {at}/app/sub/say.cgi"),
        ),
        ("/static/say.cgi", "404".into()),
        ("/static/index.lrp", "app/index.lrp".into()),
    ] {
        assert_eq!(place.body_or_status(path), said, "{path}");
    }
    let told = place.explain("/static/sub/say.cgi");
    assert!(
        told.contains("alias                  /static is "),
        "{told}"
    );
}

#[test]
fn invalid_alias_is_reported_by_check() {
    for (lines, said) in [
        (
            "[[site.alias]]\npath = \"/static\"\nfolder = \"{}/none\"\n",
            "site[0].alias[0].folder: ",
        ),
        (
            "[[site.alias]]\npath = \"static\"\nfolder = \"{}/root\"\n",
            "not the path of a folder",
        ),
        (
            "[[site.alias]]\npath = \"/\"\nfolder = \"{}/root\"\n",
            "not the path of a folder",
        ),
        (
            "[[site.alias]]\npath = \"/a/../b\"\nfolder = \"{}/root\"\n",
            "not the path of a folder",
        ),
        (
            "[[site.alias]]\npath = \"/a\"\nfolder = \"{}/root\"\n[[site.alias]]\npath = \"/a/\"\nfolder = \"{}/root\"\n",
            "/a is listed twice",
        ),
        ("[[site.alias]]\npath = \"/a\"\n", "folder is missing"),
    ] {
        let told = check(lines);
        assert!(told.contains(said), "{lines}: {told}");
    }
    let told = check("[[site.alias]]\npath = \"/a/\"\nfolder = \"{}/root\"\n");
    assert!(told.contains("no problems"), "{told}");
}

/// The files of a location in front of an origin, as the import from nginx writes them.
#[test]
fn rewrite_to_internal_alias_has_folders_and_fallbacks() {
    let files = [
        "app/index.html",
        "app/sub/index.html",
        "app/scripts/index.php",
        "app/page.html",
        "down/50x.html",
    ];
    let place = Place::new(
        &files,
        "index = [\"index.html\", \"index.php\"]\n\
         [site.error_pages]\n502 = \"/down/50x.html\"\n503 = \"/not/there.html\"\n\
         [[site.alias]]\npath = \"/files\"\nfolder = \"{}/app\"\ninternal = true\n\
         [[site.alias]]\npath = \"/down\"\nfolder = \"{}/down\"\ninternal = true\n\
         [[site.rewrite]]\nfrom = \"/app/**\"\nto = \"/files/$1\"\n\
         [[site.rewrite]]\nregex = \"^/files/(.*)$\"\nto = \"/files/$1.html\"\nexists = true\n\
         [[site.rule]]\npattern = \"/files/r/**\"\nfallback = \"/files/index.html\"\n\
         [[site.route]]\npattern = \"*.php\"\nfastcgi = \"127.0.0.1:1\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"http://127.0.0.1:1\"\nintercept_errors = true\n",
    );
    for (path, expected) in [
        ("/app/", "app/index.html"),
        ("/app/sub/", "app/sub/index.html"),
        ("/app/sub", "301"),
        ("/app/page", "app/page.html"),
        ("/app/none", "404"),
        ("/app/r/x", "app/index.html"),
        // A script is no content.
        ("/app/scripts/", "404"),
        ("/files/index.html", "404"),
        ("/files/r/x", "404"),
    ] {
        assert_eq!(place.body_or_status(path), expected, "{path}");
    }
    assert_eq!(
        place.get("/app/sub?x=1").field("location"),
        Some("/app/sub/?x=1")
    );
    // The page is in the folder of an alias.
    let failed = place.get("/other");
    assert_eq!((failed.status, &failed.text()[..]), (502, "down/50x.html"));
}

#[test]
fn missing_error_page_is_a_warning() {
    let printed = check("[site.error_pages]\n404 = \"/none.html\"\n");
    assert!(
        printed.contains("none.html is not a file, so errors have the built-in page"),
        "{printed}"
    );
    let place = Place::new(&[], "[site.error_pages]\n404 = \"/none.html\"\n");
    assert_eq!(place.get("/x").status, 404);
}

#[test]
fn path_with_encoded_slash_has_the_fallback_of_missing_files() {
    let place = Place::new(
        &["root/index.html"],
        "[[site.rule]]\npattern = \"/app/**\"\nfallback = \"/index.html\"\n",
    );
    assert_eq!(place.body_or_status("/app/a%2Fb"), "root/index.html");
    for path in ["/a%2Fb", "/app/..%2Fx", "/app/a%00"] {
        assert_eq!(place.body_or_status(path), "400", "{path}");
    }
}
