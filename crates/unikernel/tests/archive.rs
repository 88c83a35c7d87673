//! Archives are read back after they were built; damaged ones are rejected, or read without a panic.

use std::collections::BTreeMap;

use lowroad_http::content_coding::ContentCoding;
use lowroad_unikernel::archive::{
    ArchiveBuilder, ArchiveEntry, BuildError, DATE_AT, NewVariant, OpenError, SUMMED_LEN,
    SiteArchive,
};
use lowroad_wire::checksum::InternetChecksum;

/// A random number generator with a seed (SplitMix64).
struct RandomNumbers(u64);

impl RandomNumbers {
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

fn open(bytes: &[u8]) -> Result<SiteArchive, OpenError> {
    SiteArchive::open(bytes.to_vec().leak())
}

/// A site of random files, each with its content codings and bodies.
type Site = BTreeMap<Vec<u8>, Vec<(ContentCoding, Vec<u8>)>>;

fn random_site(random: &mut RandomNumbers) -> Site {
    let encodings = [
        ContentCoding::Identity,
        ContentCoding::Brotli,
        ContentCoding::Gzip,
    ];
    let files = (0..random.below(40)).map(|_| {
        let path_len = random.below(30);
        let path = [b"/".to_vec(), random.bytes(path_len)].concat();
        let own = &encodings[..=random.below(3)];
        let bodies = own.iter().map(|encoding| {
            let len = random.below(4000);
            (*encoding, random.bytes(len))
        });
        (path, bodies.collect())
    });
    files.collect()
}

fn build(site: &Site) -> Vec<u8> {
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
fn built_archive_is_read_back() {
    for seed in 0..200 {
        let mut site = random_site(&mut RandomNumbers(seed));
        site.remove(&b"/down"[..]);
        let archive = open(&build(&site)).expect("sound");
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
fn stored_response_has_complete_head_and_checksums() {
    let body: Vec<u8> = (0..3001u32).map(|at| at as u8).collect();
    let mut builder = ArchiveBuilder::new();
    let paths = [&b"/a/"[..], b"/a/index.html"];
    let variants = vec![
        variant(ContentCoding::Identity, body.clone()),
        variant(ContentCoding::Zstd, vec![]),
    ];
    builder.file(&paths, variants).expect("free");
    let archive = open(&builder.finish().expect("short")).expect("sound");
    let Some(ArchiveEntry::File(file)) = archive.find(b"/a/") else {
        panic!("a file");
    };
    let one = &file.variants()[0];
    let expected = "HTTP/1.1 200 OK\r\nDate: \0\r\nETag: \"1-2\"\r\nVary: Accept-Encoding\r\n\
        Content-Type: text/css\r\nAccept-Ranges: bytes\r\nContent-Length: 3001\r\n\r\n";
    let expected = expected.replace('\0', &"\0".repeat(29));
    assert_eq!(one.head(), expected.as_bytes());
    assert_eq!(one.response[DATE_AT..DATE_AT + 29], [0; 29]);
    assert_eq!(one.response, [expected.as_bytes(), &body].concat());
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
    // If a content coding is missing, identity is used.
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
fn redirects_pages_error_pages_and_settings_are_read_back() {
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
        Err(BuildError::Duplicate("a/_part.lrp".into()))
    );
    builder.part("a/_part.lrp", "part").expect("the same");
    builder.error_page(404, "text/html", b"old");
    builder.error_page(404, "text/plain", b"none");
    builder.error_page(403, "text/html", b"");
    for (key, value) in [("from", "10.0.0.0/8"), ("name", "n"), ("from", "::1/128")] {
        builder.setting(key, value);
    }
    let archive = open(&builder.finish().expect("short")).expect("sound");
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
fn empty_site_can_be_opened() {
    let archive = open(&ArchiveBuilder::new().finish().expect("short")).expect("sound");
    assert!(archive.find(b"/").is_none() && archive.find(b"").is_none());
}

#[test]
fn invalid_files_are_rejected_by_builder() {
    let one = || vec![variant(ContentCoding::Identity, vec![])];
    let mut builder = ArchiveBuilder::new();
    builder.file(&[b"/a"], one()).expect("free");
    assert_eq!(
        builder.file(&[b"/a"], one()),
        Err(BuildError::Duplicate("/a".into()))
    );
    assert_eq!(
        builder.file(&[b"a"], one()),
        Err(BuildError::InvalidPath("a".into()))
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
            matches!(refused, Err(BuildError::InvalidEncodings(_))),
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
fn truncated_archive_is_rejected() {
    let bytes = build(&random_site(&mut RandomNumbers(3)));
    for len in (0..200).chain(bytes.len() - 200..bytes.len()) {
        let refused = open(&bytes[..len]).err();
        assert!(refused.is_some(), "{len} of {} bytes", bytes.len());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(open(&longer).err(), Some(OpenError::Length));
    let mut other = bytes;
    other[7] += 1;
    assert_eq!(open(&other).err(), Some(OpenError::NotAnArchive));
}

#[test]
fn modified_archive_is_rejected_or_read_without_panic() {
    let mut refused = 0;
    for seed in 0..30_000 {
        let mut random = RandomNumbers(seed);
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
        let mut bytes = build(&site);
        // The tables are at the end of the archive; changes of bodies would not be noticed.
        for _ in 0..=random.below(3) {
            let from_end = random.below(400.min(bytes.len()));
            let at = match random.below(4) {
                0 => 12 + random.below(60),
                _ => bytes.len() - 1 - from_end,
            };
            bytes[at] = match random.below(3) {
                0 => 0xff,
                1 => bytes[at] ^ 1 << random.below(8),
                _ => random.below(256) as u8,
            };
        }
        match open(&bytes) {
            Ok(archive) => _ = read_all(archive),
            Err(_) => refused += 1,
        }
    }
    assert!((10_000..30_000).contains(&refused), "{refused}");
}
