//! The server notices changes of files, of every kind. `mixtures` tests that a response is never a mixture of two
//! versions.
//!
//! Each test first makes the server store the old response, and then waits for the new one.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A server with one client, and the folder that it serves.
struct Site {
    folder: TempFolder,
    client: TestClient,
    _server: TestServer,
}

impl Site {
    fn new(files: &[(&str, &str)]) -> Site {
        let folder = TempFolder::new();
        for (name, content) in files {
            folder.file(format!("root/{name}"), content);
        }
        let root = folder.path().join("root").display().to_string();
        let arguments = ["serve", &root, "--listen", "127.0.0.1:0", "--listing"];
        let server = TestServer::start(PROGRAM, &arguments);
        let client = server.connect();
        Site {
            folder,
            client,
            _server: server,
        }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    /// The response to a path: the body if the status is 200, otherwise the status.
    fn says(&mut self, path: &str) -> String {
        let got = self.client.get(path, "");
        match got.status {
            200 => got.text(),
            status => status.to_string(),
        }
    }

    /// Repeats a request until the expected response is stored.
    fn stores(&mut self, path: &str, answer: &str) {
        for _ in 0..3 {
            assert_eq!(self.says(path), answer, "{path} before the change");
        }
    }

    fn notices(&mut self, path: &str, answer: &str) {
        let what = format!("{path} to be {answer}");
        wait_until(&what, || (self.says(path) == answer).then_some(()));
    }
}

/// Overwrites a file in place with content of the same length.
fn overwrite(path: &Path, content: &str) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.write_all_at(content.as_bytes(), 0).expect("written");
}

#[test]
fn rewrite_in_place_is_noticed() {
    let mut site = Site::new(&[("same", "one"), ("longer", "one"), ("sub/empty", "one")]);
    for path in ["/same", "/longer", "/sub/empty"] {
        site.stores(path, "one");
    }
    overwrite(&site.root("same"), "two");
    fs::write(site.root("longer"), "seventeen").expect("written");
    fs::write(site.root("sub/empty"), "").expect("written");
    site.notices("/same", "two");
    site.notices("/longer", "seventeen");
    site.notices("/sub/empty", "");
    // Again, after the first change was noticed.
    overwrite(&site.root("same"), "six");
    site.notices("/same", "six");
}

#[test]
fn replacement_by_rename_is_noticed() {
    let mut site = Site::new(&[("a", "one")]);
    site.stores("/a", "one");
    // The new file has the same length and date, and comes from a folder that is not watched.
    let modified = fs::metadata(site.root("a")).and_then(|meta| meta.modified());
    let new = site
        .folder
        .file_modified_at("elsewhere/new", "two", modified.expect("a date"));
    fs::rename(new, site.root("a")).expect("renamed");
    site.notices("/a", "two");
}

#[test]
fn deletion_and_creation_are_noticed() {
    let mut site = Site::new(&[("a", "one"), ("sub/a", "one")]);
    for path in ["/a", "/sub/a"] {
        site.stores(path, "one");
    }
    for path in ["/b", "/sub/b", "/new/b", "/new/deep/b"] {
        site.stores(path, "404");
    }
    fs::remove_file(site.root("a")).expect("removed");
    fs::remove_dir_all(site.root("sub")).expect("removed");
    for path in ["/a", "/sub/a", "/sub/b"] {
        site.notices(path, "404");
    }
    for path in ["b", "sub/b", "new/b", "new/deep/b"] {
        site.folder.file(format!("root/{path}"), "here");
        site.notices(&format!("/{path}"), "here");
    }
}

#[test]
fn renamed_folders_are_noticed() {
    let mut site = Site::new(&[("a/b/c/file", "one"), ("x/b/c/file", "two")]);
    site.stores("/a/b/c/file", "one");
    site.stores("/x/b/c/file", "two");
    site.stores("/z/b/c/file", "404");
    fs::rename(site.root("a"), site.root("z")).expect("renamed");
    site.notices("/a/b/c/file", "404");
    site.notices("/z/b/c/file", "one");
    fs::rename(site.root("x"), site.root("a")).expect("renamed");
    site.notices("/a/b/c/file", "two");
    site.notices("/x/b/c/file", "404");
    // The file is watched at its new path.
    overwrite(&site.root("a/b/c/file"), "six");
    site.notices("/a/b/c/file", "six");
    fs::rename(site.root("z"), site.folder.path().join("away")).expect("renamed");
    site.notices("/z/b/c/file", "404");
}

#[test]
fn change_between_file_and_folder_is_noticed() {
    let mut site = Site::new(&[("a", "one")]);
    site.stores("/a", "one");
    fs::remove_file(site.root("a")).expect("removed");
    site.folder.file("root/a/index.html", "home");
    site.notices("/a", "301");
    site.notices("/a/", "home");
    fs::remove_dir_all(site.root("a")).expect("removed");
    site.folder.file("root/a", "two");
    site.notices("/a", "two");
    site.notices("/a/", "404");
}

/// Changes a link's target atomically.
fn retarget(link: &Path, target: &str) {
    let new = link.with_extension("new");
    symlink(target, &new).expect("a link");
    fs::rename(new, link).expect("renamed");
}

#[test]
fn retargeted_symbolic_links_are_noticed() {
    let mut site = Site::new(&[("one/file", "one"), ("two/file", "two")]);
    symlink("one", site.root("folder")).expect("a link");
    symlink("one/file", site.root("link")).expect("a link");
    for path in ["/folder/file", "/link"] {
        site.stores(path, "one");
    }
    retarget(&site.root("folder"), "two");
    retarget(&site.root("link"), "two/file");
    for path in ["/folder/file", "/link"] {
        site.notices(path, "two");
    }
    // The file that the link refers to changes.
    overwrite(&site.root("two/file"), "six");
    for path in ["/folder/file", "/link"] {
        site.notices(path, "six");
    }
}

#[test]
fn retargeted_link_to_root_is_noticed() {
    let folder = TempFolder::new();
    for version in ["one", "two"] {
        folder.file(format!("releases/{version}/file"), version);
        folder.file(
            format!("releases/{version}/404.html"),
            format!("no page in {version}"),
        );
    }
    let current = folder.path().join("current");
    symlink("releases/one", &current).expect("a link");
    let config = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n[site.error_pages]\n404 = \"/404.html\"\n",
        current.display()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/file", "").text(), "one");
        assert_eq!(client.get("/missing", "").text(), "no page in one");
    }
    retarget(&current, "releases/two");
    wait_until("the other release", || {
        let page = client.get("/missing", "").text();
        (client.get("/file", "").text() == "two" && page == "no page in two").then_some(())
    });
    // As long as the link dangles, the previous release is served.
    retarget(&current, "releases/three");
    fs::write(folder.path().join("releases/two/file"), "six").expect("written");
    wait_until("a change in the release", || {
        (client.get("/file", "").text() == "six").then_some(())
    });
}

#[test]
fn write_through_another_hard_link_is_noticed() {
    let mut site = Site::new(&[("near", "one"), ("far", "one"), ("sub/a.bin", "plain")]);
    let outside = site.folder.file("outside/file", "x");
    let packed = site.folder.file("outside/packed", "packed one");
    fs::hard_link(site.root("near"), site.root("sub/near")).expect("a link");
    fs::remove_file(&outside).expect("removed");
    fs::hard_link(site.root("far"), &outside).expect("a link");
    fs::hard_link(&packed, site.root("sub/a.bin.gz")).expect("a link");
    site.stores("/near", "one");
    site.stores("/far", "one");
    let gzip = "Accept-Encoding: gzip\r\n";
    assert_eq!(site.client.get("/sub/a.bin", gzip).text(), "packed one");
    overwrite(&site.root("sub/near"), "two");
    site.notices("/near", "two");
    overwrite(&outside, "two");
    site.notices("/far", "two");
    overwrite(&packed, "packed two");
    wait_until("the sibling's other name", || {
        (site.client.get("/sub/a.bin", gzip).text() == "packed two").then_some(())
    });
}

#[test]
fn precompressed_siblings_are_followed() {
    let mut site = Site::new(&[("a.bin", "plain"), ("index.html", "home")]);
    site.stores("/a.bin", "plain");
    site.stores("/", "home");
    let wait_for = |site: &mut Site, path: &str, answer: &str| {
        wait_until(answer, || {
            let got = site.client.get(path, "Accept-Encoding: br\r\n");
            let varies = got.field("vary") == Some("Accept-Encoding");
            (got.text() == answer && varies == answer.starts_with("packed")).then_some(())
        });
    };
    wait_for(&mut site, "/a.bin", "plain");
    fs::write(site.root("a.bin.br"), "packed").expect("written");
    fs::write(site.root("index.html.br"), "packed home").expect("written");
    wait_for(&mut site, "/a.bin", "packed");
    wait_for(&mut site, "/", "packed home");
    overwrite(&site.root("a.bin.br"), "packer");
    fs::write(site.root("a.bin.br"), "packed again").expect("written");
    wait_for(&mut site, "/a.bin", "packed again");
    fs::remove_file(site.root("a.bin.br")).expect("removed");
    wait_for(&mut site, "/a.bin", "plain");
    // From now on, the compressed sibling is older than its original.
    fs::write(site.root("index.html"), "new home").expect("written");
    wait_for(&mut site, "/", "new home");
}

#[test]
fn compressed_response_changes_with_its_file() {
    let text = |word: &str| format!("{word} goes the low road\n").repeat(100);
    let mut site = Site::new(&[("a.txt", &text("one"))]);
    let mut get = |encoding: &str| {
        let fields = format!("Accept-Encoding: {encoding}\r\n");
        site.client.get("/a.txt", &fields)
    };
    let old: Vec<_> = ["br", "gzip", "zstd"].map(&mut get).into();
    fs::write(site.folder.path().join("root/a.txt"), text("two")).expect("written");
    for (encoding, old) in ["br", "gzip", "zstd"].iter().zip(old) {
        let new = wait_until("another body", || {
            let new = get(encoding);
            (new.body != old.body).then_some(new)
        });
        assert_ne!(new.field("etag"), old.field("etag"), "{encoding}");
        assert_eq!(new.field("content-encoding"), Some(*encoding));
    }
}

#[test]
fn folder_lists_and_index_files_are_followed() {
    let mut site = Site::new(&[("sub/a", "x")]);
    assert!(!site.says("/sub/").contains("./b\""));
    assert!(!site.says("/sub/").contains("./b\""));
    site.folder.file("root/sub/b", "x");
    wait_until("the new name", || {
        site.says("/sub/").contains("./b\"").then_some(())
    });
    fs::write(site.root("sub/a"), "x".repeat(5_000)).expect("written");
    wait_until("the new length", || {
        site.says("/sub/").contains("5.0 KB").then_some(())
    });
    site.folder.file("root/sub/index.html", "home");
    site.notices("/sub/", "home");
    fs::remove_file(site.root("sub/index.html")).expect("removed");
    wait_until("the list again", || {
        site.says("/sub/").contains("./b\"").then_some(())
    });
}

#[test]
fn changed_permissions_and_dates_are_noticed() {
    let mut site = Site::new(&[("a", "one"), ("b", "one")]);
    site.stores("/a", "one");
    site.stores("/b", "one");
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode(&site.root("a"), 0);
    site.notices("/a", "403");
    mode(&site.root("a"), 0o644);
    site.notices("/a", "one");
    let dated = std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
    site.folder.file_modified_at("root/b", "one", dated);
    wait_until("the new date", || {
        let got = site.client.get("/b", "");
        (got.field("last-modified") == Some("Sun, 06 Nov 1994 08:49:37 GMT")).then_some(())
    });
}
