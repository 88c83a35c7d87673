//! Stored pages, and their invalidation when source files change.

use std::fs;

use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

use crate::host::PROGRAM;

/// Two sites with pages of long lifetime, one of which includes a fragment.
fn start(folder: &TempFolder) -> TestServer {
    for (name, text) in [
        (
            "a/index.lrp",
            "{{ cache(9999) }}{% include '_part.lrp' %} and index",
        ),
        ("a/_part.lrp", "part"),
        (
            "a/other.lrp",
            "{{ header('Cache-Control', 'max-age=9999') }}other",
        ),
        ("b/index.lrp", "{{ cache(9999) }}b"),
    ] {
        folder.file(name, text);
    }
    TestServer::run(PROGRAM, folder, &config(folder, ""))
}

fn config(folder: &TempFolder, more: &str) -> String {
    let site = |name: &str| {
        format!(
            "[[site]]\nnames = \"{name}\"\nlisten = \"127.0.0.1:0\"\nroot = \"{}/{name}\"\nindex = \"index.lrp\"\n\
             [[site.route]]\npattern = \"*.lrp\"\npages = true\n",
            folder.path().display()
        )
    };
    format!("[server]\nworkers = 1\n{more}{}{}", site("a"), site("b"))
}

/// The text of a page, and whether it came from the cache.
fn page(client: &mut TestClient, host: &str, path: &str) -> (String, bool) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let got = client.response();
    assert_eq!(got.status, 200, "{}", got.text());
    (got.text(), got.field("age").is_some())
}

fn is_from_cache(client: &mut TestClient, host: &str, path: &str) -> bool {
    page(client, host, path);
    page(client, host, path).1
}

#[test]
fn stored_page_is_invalidated_when_its_template_changes() {
    let folder = TempFolder::new();
    let server = start(&folder);
    let client = &mut server.connect();
    for (host, path) in [("a", "/"), ("a", "/other.lrp"), ("b", "/")] {
        assert!(is_from_cache(client, host, path), "{host} {path}");
    }
    // The pages have long lifetimes, so only invalidation can replace a stored page.
    for (file, text, shown) in [
        ("a/_part.lrp", "new part", "new part and index"),
        ("a/index.lrp", "{{ cache(9999) }}index", "index"),
    ] {
        folder.file(file, text);
        wait_until(shown, || (page(client, "a", "/").0 == shown).then_some(()));
        assert!(is_from_cache(client, "a", "/"), "{shown}");
        // The site's other pages are dropped, too, but not another site's.
        assert!(!page(client, "a", "/other.lrp").1, "{shown}");
        assert!(page(client, "b", "/").1, "{shown}");
    }
    fs::remove_file(folder.path().join("a/other.lrp")).expect("it is there");
    wait_until("the page is gone", || {
        client.send("GET /other.lrp HTTP/1.1\r\nHost: a\r\n\r\n");
        (client.response().status == 404).then_some(())
    });
}

#[test]
fn template_files_are_watched_after_reload() {
    let folder = TempFolder::new();
    let server = start(&folder);
    let client = &mut server.connect();
    assert!(is_from_cache(client, "a", "/"));
    folder.file("lowroad.toml", config(&folder, "helpers = 3\n"));
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    let client = &mut server.connect();
    assert!(page(client, "a", "/").1, "it is kept still");
    folder.file("a/_part.lrp", "new part");
    wait_until("the new page", || {
        (page(client, "a", "/").0 == "new part and index").then_some(())
    });
}
