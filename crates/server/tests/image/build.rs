//! `lowroad image build`: its output and its errors.

use std::os::unix::fs::{MetadataExt, symlink};

use lowroad_http::content_coding::ContentCoding;
use lowroad_testkit::TempFolder;
use lowroad_unikernel::archive::{ArchiveEntry, SiteArchive};

use crate::place::{image, path};

const PAGE: &str = "<!doctype html><title>a page</title><p>text that repeats itself</p>";

/// Builds an image of the folder `site` as a file in the folder `out`; returns its bytes.
fn build(site: &TempFolder, out: &TempFolder, more: &[&str]) -> Result<Vec<u8>, String> {
    let output = path(out, "site.img");
    let dir = site.path().display().to_string();
    image(&[&["build", &dir, "-o", &output], more].concat())?;
    Ok(std::fs::read(output).expect("it was written"))
}

/// Returns the archive in an image. The archive begins on a page boundary.
fn archive(image: Vec<u8>) -> SiteArchive {
    let image: &'static [u8] = image.leak();
    let mut pages = image.chunks(4096).enumerate();
    let at = pages.find(|(_, page)| page.starts_with(b"lowroad\x02"));
    let rest = &image[at.expect("an archive").0 * 4096..];
    let len = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes"));
    SiteArchive::open(&rest[..len as usize]).expect("sound")
}

#[test]
fn build_is_reproducible() {
    let (site, out) = (TempFolder::new(), TempFolder::new());
    for name in ["b.html", "index.html", "a/index.html", "a/z.css"] {
        site.file(name, PAGE.repeat(50));
    }
    let first = build(&site, &out, &[]).expect("a site");
    assert_eq!(build(&site, &out, &[]), Ok(first.clone()));
    site.file("b.html", "other");
    assert_ne!(build(&site, &out, &[]), Ok(first));
}

#[test]
fn image_contains_files_pages_and_settings() {
    let (site, out) = (TempFolder::new(), TempFolder::new());
    site.file("index.html", PAGE.repeat(50));
    site.file("a b/index.html", "short");
    site.file("empty/x.bin", "x");
    site.file("empty/x.bin.br", "as it was prepared");
    site.file(".hidden", "");
    site.file(".well-known/x", "known");
    site.file("404.html", "nothing here");
    site.file("page.lrp", "<p>made</p>");
    site.file("made/index.lrp", "{% include \"_part.lrp\" %}");
    site.file("made/_part.lrp", "<p>part</p>");
    site.file("both/index.html", "short");
    site.file("both/index.lrp", "<p>made</p>");
    let archive = archive(build(&site, &out, &["--status-from", "10.0.0.0/8"]).expect("a site"));
    let file = |path: &str| match archive.find(path.as_bytes()) {
        Some(ArchiveEntry::File(file)) => *file,
        other => panic!("{path}: {other:?}"),
    };
    let index = file("/");
    assert!(std::ptr::eq(
        index.variants(),
        file("/index.html").variants()
    ));
    let encodings: Vec<_> = index.variants().iter().map(|one| one.encoding).collect();
    assert_eq!(
        encodings,
        [
            ContentCoding::Identity,
            ContentCoding::Brotli,
            ContentCoding::Gzip
        ]
    );
    assert_eq!(file("/a b/").variants().len(), 1);
    let prepared = file("/empty/x.bin")
        .variant(ContentCoding::Brotli)
        .expect("it is there");
    assert_eq!(prepared.body(), b"as it was prepared");
    assert_eq!(file("/.well-known/x").variants()[0].body(), b"known");
    assert!(archive.find(b"/.hidden").is_none() && archive.find(b"/none").is_none());
    assert!(matches!(
        archive.find(b"/a b"),
        Some(ArchiveEntry::Redirect {
            location: "/a%20b/"
        })
    ));
    assert!(matches!(
        archive.find(b"/empty/"),
        Some(ArchiveEntry::Forbidden)
    ));
    for path in ["/page.lrp", "/made/", "/made/index.lrp", "/both/index.lrp"] {
        let found = archive.find(path.as_bytes());
        assert!(
            matches!(found, Some(ArchiveEntry::Page(_))),
            "{path}: {found:?}"
        );
    }
    assert_eq!(file("/both/").variants()[0].body(), b"short");
    assert!(archive.find(b"/made/_part.lrp").is_none() && archive.find(b"/page").is_none());
    assert_eq!(archive.source("made/_part.lrp"), Some("<p>part</p>"));
    assert_eq!(
        archive.error_page(404).map(|page| page.body),
        Some(&b"nothing here"[..])
    );
    // The site has no such page, so the image generates one.
    assert!(archive.error_page(403).is_none());
    assert_eq!(archive.setting("status.from"), Some("10.0.0.0/8"));
}

#[test]
fn image_with_password_is_readable_by_owner_only() {
    let (site, out) = (TempFolder::new(), TempFolder::new());
    site.file("index.html", PAGE);
    let url = "mysql://user:pass%40word@10.0.0.5/name";
    let archive = archive(build(&site, &out, &["--database", url]).expect("a site"));
    let settings = ["address", "user", "password", "name"];
    let settings = settings.map(|key| archive.setting(&format!("database.{key}")));
    let wanted = ["10.0.0.5:3306", "user", "pass@word", "name"].map(Some);
    assert_eq!(settings, wanted);
    let meta = std::fs::metadata(out.path().join("site.img")).expect("it is there");
    assert_eq!(meta.mode() & 0o777, 0o600);
}

#[test]
fn unservable_files_are_named() {
    let (site, out) = (TempFolder::new(), TempFolder::new());
    let refused = |site: &TempFolder| build(site, &out, &[]).expect_err("it is wrong");
    let there = |name: &str| site.path().join(name);
    symlink("/etc/passwd", there("out")).expect("a link");
    assert!(refused(&site).contains("/out leads out of the site, to /etc/passwd"));
    std::fs::remove_file(there("out")).expect("removed");
    symlink("nothing", there("dead")).expect("a link");
    assert!(refused(&site).contains("/dead: No such file"));
    std::fs::remove_file(there("dead")).expect("removed");
    site.file("a/index.html", PAGE);
    symlink("..", there("a/up")).expect("a link");
    assert!(refused(&site).contains("folders are nested too deeply"));
    std::fs::remove_file(there("a/up")).expect("removed");
    let _socket = std::os::unix::net::UnixListener::bind(there("socket")).expect("a socket");
    assert!(refused(&site).contains("/socket: neither a file nor a folder"));
    std::fs::remove_file(there("socket")).expect("removed");
    site.file("p.lrp", "<p>\n{{#each");
    let said = refused(&site);
    assert!(said.contains("p.lrp:2: "), "{said}");
    std::fs::remove_file(there("p.lrp")).expect("removed");
    build(&site, &out, &[]).expect("nothing is wrong any more");
    // No incomplete file is left.
    let names = std::fs::read_dir(out.path()).expect("a folder").count();
    assert_eq!(names, 1);
    let missing = image(&["build", "/nowhere"]).expect_err("no folder");
    assert!(missing.contains("/nowhere: No such file"), "{missing}");
}
