//! Built archives are read back; damaged ones are refused, or read without a panic.

use std::collections::BTreeMap;

use lowroad_http::content_coding::ContentCoding;
use lowroad_unikernel::archive::{
    ArchiveBuilder, ArchiveEntry, BuildError, DATE_AT, NewVariant, OpenError, SUMMED_LEN,
    SiteArchive,
};
use lowroad_wire::checksum::InternetChecksum;

/// Random numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % limit as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

fn variant(encoding: ContentCoding, body: Vec<u8>) -> NewVariant {
    NewVariant {
        encoding,
        shared_fields: b"ETag: \"1-2\"\r\nVary: Accept-Encoding\r\n".to_vec(),
        content_fields: b"Content-Type: text/css\r\nAccept-Ranges: bytes\r\n".to_vec(),
        etag: "\"1-2\"".into(),
        content_type: "text/css".into(),
        last_modified_s: Some(784_111_777),
        body,
    }
}

fn opened(bytes: &[u8]) -> Result<SiteArchive, OpenError> {
    SiteArchive::open(bytes.to_vec().leak())
}

/// A site of random files, each with its bodies.
type Site = BTreeMap<Vec<u8>, Vec<(ContentCoding, Vec<u8>)>>;

fn drawn(draws: &mut Draws) -> Site {
    let encodings = [
        ContentCoding::Identity,
        ContentCoding::Brotli,
        ContentCoding::Gzip,
    ];
    let files = (0..draws.below(40)).map(|_| {
        let path_len = draws.below(30);
        let path = [b"/".to_vec(), draws.bytes(path_len)].concat();
        let own = &encodings[..=draws.below(3)];
        let bodies = own.iter().map(|encoding| {
            let len = draws.below(4000);
            (*encoding, draws.bytes(len))
        });
        (path, bodies.collect())
    });
    files.collect()
}

fn built(site: &Site) -> Vec<u8> {
    let mut builder = ArchiveBuilder::new();
    for (path, bodies) in site {
        let variants = bodies
            .iter()
            .map(|(encoding, body)| variant(*encoding, body.clone()));
        builder.file(&[path], variants.collect()).expect("a file");
    }
    builder.redirect(b"/down", "/down/").expect("free");
    builder.error_page(404, "text/html", b"none");
    builder.setting("name", "value");
    builder.finish().expect("short")
}

#[test]
fn what_is_built_is_read_back() {
    for seed in 0..200 {
        let mut site = drawn(&mut Draws(seed));
        site.remove(&b"/down"[..]);
        let archive = opened(&built(&site)).expect("sound");
        assert_eq!(archive.entries().count(), site.len() + 1, "seed {seed}");
        for (path, bodies) in &site {
            let Some(ArchiveEntry::File(file)) = archive.find(path) else {
                panic!("seed {seed}: {path:?}");
            };
            assert_eq!(file.variants().len(), bodies.len());
            for (encoding, body) in bodies {
                let got = file.variant(*encoding).expect("a variant");
                assert_eq!(
                    (got.encoding, got.body()),
                    (*encoding, &body[..]),
                    "seed {seed}"
                );
            }
            let absent = [&path[..], b"/"].concat();
            assert_eq!(archive.find(&absent).is_some(), site.contains_key(&absent));
        }
    }
}

#[test]
fn a_response_is_what_the_server_sends() {
    let body: Vec<u8> = (0..3001u32).map(|at| at as u8).collect();
    let mut builder = ArchiveBuilder::new();
    let paths = [&b"/a/"[..], b"/a/index.html"];
    let variants = vec![
        variant(ContentCoding::Identity, body.clone()),
        variant(ContentCoding::Zstd, vec![]),
    ];
    builder.file(&paths, variants).expect("free");
    let archive = opened(&builder.finish().expect("short")).expect("sound");
    let Some(ArchiveEntry::File(file)) = archive.find(b"/a/") else {
        panic!("a file");
    };
    let one = &file.variants()[0];
    let wanted = "HTTP/1.1 200 OK\r\nDate: \0\r\nETag: \"1-2\"\r\nVary: Accept-Encoding\r\n\
        Content-Type: text/css\r\nAccept-Ranges: bytes\r\nContent-Length: 3001\r\n\r\n";
    let wanted = wanted.replace('\0', &"\0".repeat(29));
    assert_eq!(one.head(), wanted.as_bytes());
    assert_eq!(one.response[DATE_AT..DATE_AT + 29], [0; 29]);
    assert_eq!(one.response, [wanted.as_bytes(), &body].concat());
    assert_eq!(
        one.shared_fields,
        b"ETag: \"1-2\"\r\nVary: Accept-Encoding\r\n"
    );
    let own = b"Content-Type: text/css\r\nAccept-Ranges: bytes\r\n";
    assert_eq!(one.fields, [one.shared_fields, own].concat());
    assert_eq!((one.etag, one.content_type), ("\"1-2\"", "text/css"));
    assert_eq!(one.last_modified_s, Some(784_111_777));
    let sums = one.body().chunks(SUMMED_LEN);
    let sums: Vec<u16> = sums
        .map(|part| !InternetChecksum::default().bytes(part).checksum())
        .collect();
    assert_eq!((one.sums, one.sums.len()), (&sums[..], 3));
    // A missing content coding falls back to identity.
    assert!(
        file.encodings.contains(ContentCoding::Zstd)
            && !file.encodings.contains(ContentCoding::Gzip)
    );
    assert_eq!(
        file.variant(ContentCoding::Gzip).map(|one| one.encoding),
        Some(ContentCoding::Identity)
    );
    let Some(ArchiveEntry::File(same)) = archive.find(b"/a/index.html") else {
        panic!("a file");
    };
    assert!(std::ptr::eq(same.variants(), file.variants()));
}

#[test]
fn other_entries_and_settings() {
    let mut builder = ArchiveBuilder::new();
    builder.redirect(b"/a b", "/a%20b/").expect("free");
    builder.forbidden(b"/a b/").expect("free");
    builder
        .page(b"/page", "page.lrp", "<p>\0</p>")
        .expect("free");
    builder
        .page(b"/", "page.lrp", "<p>\0</p>")
        .expect("the same");
    builder.part("a/_part.lrp", "part").expect("free");
    assert_eq!(
        builder.part("a/_part.lrp", "other"),
        Err(BuildError::Twice("a/_part.lrp".into()))
    );
    builder.part("a/_part.lrp", "part").expect("the same");
    builder.error_page(404, "text/html", b"old");
    builder.error_page(404, "text/plain", b"none");
    builder.error_page(403, "text/html", b"");
    for (key, value) in [("from", "10.0.0.0/8"), ("name", "n"), ("from", "::1/128")] {
        builder.setting(key, value);
    }
    let archive = opened(&builder.finish().expect("short")).expect("sound");
    assert!(matches!(
        archive.find(b"/a b"),
        Some(ArchiveEntry::Redirect {
            location: "/a%20b/"
        })
    ));
    assert!(matches!(
        archive.find(b"/a b/"),
        Some(ArchiveEntry::Forbidden)
    ));
    let Some(ArchiveEntry::Page(page)) = archive.find(b"/page") else {
        panic!("a page");
    };
    assert_eq!((page.name, page.text), ("page.lrp", "<p>\0</p>"));
    assert_eq!(archive.source("page.lrp"), Some("<p>\0</p>"));
    assert_eq!(archive.source("a/_part.lrp"), Some("part"));
    assert_eq!(archive.source("part.lrp"), None);
    let page = archive.error_page(404).expect("there");
    assert_eq!((page.content_type, page.body), ("text/plain", &b"none"[..]));
    assert!(archive.error_page(403).is_some() && archive.error_page(405).is_none());
    assert!(archive.settings("from").eq(["10.0.0.0/8", "::1/128"]));
    assert_eq!(
        (archive.setting("name"), archive.setting("")),
        (Some("n"), None)
    );
}

#[test]
fn an_empty_site_is_one() {
    let archive = opened(&ArchiveBuilder::new().finish().expect("short")).expect("sound");
    assert!(archive.find(b"/").is_none() && archive.find(b"").is_none());
}

#[test]
fn what_is_wrong_is_not_built() {
    let one = || vec![variant(ContentCoding::Identity, vec![])];
    let mut builder = ArchiveBuilder::new();
    builder.file(&[b"/a"], one()).expect("free");
    assert_eq!(
        builder.file(&[b"/a"], one()),
        Err(BuildError::Twice("/a".into()))
    );
    assert_eq!(
        builder.file(&[b"a"], one()),
        Err(BuildError::NotAPath("a".into()))
    );
    for wrong in [
        vec![],
        vec![ContentCoding::Gzip],
        vec![ContentCoding::Identity; 2],
    ] {
        let wrong = wrong
            .into_iter()
            .map(|encoding| variant(encoding, vec![]))
            .collect();
        let refused = builder.file(&[b"/b"], wrong);
        assert!(
            matches!(refused, Err(BuildError::Encodings(_))),
            "{refused:?}"
        );
    }
}

/// Reads all parts of an archive.
fn read_all(archive: SiteArchive) -> usize {
    let entries = archive.entries().map(|(path, entry)| {
        let found = usize::from(archive.find(path).is_some());
        found
            + match entry {
                ArchiveEntry::File(file) => {
                    let lens = file.variants().iter().map(|one| {
                        one.head().len() + one.body().len() + one.fields.len() + one.sums.len()
                    });
                    lens.sum()
                }
                ArchiveEntry::Redirect { location } => location.len(),
                ArchiveEntry::Page(page) => page.text.len(),
                ArchiveEntry::Forbidden => 0,
            }
    });
    entries.sum::<usize>() + usize::from(archive.setting("name").is_some())
}

#[test]
fn a_cut_archive_is_refused() {
    let bytes = built(&drawn(&mut Draws(3)));
    for len in (0..200).chain(bytes.len() - 200..bytes.len()) {
        let refused = opened(&bytes[..len]).err();
        assert!(refused.is_some(), "{len} of {} bytes", bytes.len());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(opened(&longer).err(), Some(OpenError::Length));
    let mut other = bytes;
    other[7] += 1;
    assert_eq!(opened(&other).err(), Some(OpenError::NotAnArchive));
}

#[test]
fn a_changed_archive_does_no_harm() {
    let mut refused = 0;
    for seed in 0..30_000 {
        let mut draws = Draws(seed);
        let site: Site = [
            (
                b"/".to_vec(),
                vec![
                    (ContentCoding::Identity, vec![1; 50]),
                    (ContentCoding::Gzip, vec![]),
                ],
            ),
            (
                b"/b".to_vec(),
                vec![(ContentCoding::Identity, vec![2; 1500])],
            ),
        ]
        .into();
        let mut bytes = built(&site);
        // The tables are at the end; changes in the bodies are of no interest.
        for _ in 0..=draws.below(3) {
            let from_end = draws.below(400.min(bytes.len()));
            let at = match draws.below(4) {
                0 => 12 + draws.below(60),
                _ => bytes.len() - 1 - from_end,
            };
            bytes[at] = match draws.below(3) {
                0 => 0xff,
                1 => bytes[at] ^ 1 << draws.below(8),
                _ => draws.below(256) as u8,
            };
        }
        match opened(&bytes) {
            Ok(archive) => _ = read_all(archive),
            Err(_) => refused += 1,
        }
    }
    assert!((10_000..30_000).contains(&refused), "{refused}");
}
