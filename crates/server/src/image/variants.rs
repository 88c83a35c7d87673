//! The variants of a file: header fields and content codings, as the server would choose them.

use std::fs;
use std::io;
use std::path::Path;

use lowroad_config as config;
use lowroad_engine::file::digest_bytes;
use lowroad_file_stamp::FileStamp;
use lowroad_files::etag;
use lowroad_files::file_headers::{self, HeadFacts};
use lowroad_files::{compression, mime};
use lowroad_http::content_coding::{CodingSet, ContentCoding};
use lowroad_http::h1::put_encoded;
use lowroad_http::stored_head::StoredSection;
use lowroad_site_rules::HeaderPatterns;
use lowroad_store::clock;
use lowroad_unikernel::archive::NewVariant;

/// Codings that are compressed here. A precompressed zstd sibling is used if it exists, but none is created, because
/// clients that accept zstd also accept brotli.
const COMPRESSED: [ContentCoding; 2] = [ContentCoding::Brotli, ContentCoding::Gzip];
const ENCODED: [ContentCoding; 3] = [
    ContentCoding::Brotli,
    ContentCoding::Zstd,
    ContentCoding::Gzip,
];

/// The contents and modification time of a file.
struct FileContents {
    body: Vec<u8>,
    modified_ns: i64,
}

/// Returns all variants of the file at `from`, which is served at `path`. The variant without coding comes first.
///
/// # Errors
/// The file can't be read.
pub fn encode_file(
    rules: &config::SiteConfig,
    path: &[u8],
    from: &Path,
) -> Result<Vec<NewVariant>, String> {
    let file = read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    let content_type = mime::content_type(path, &rules.types);
    // The limit is that of the server, which compresses only files that fit into its cache.
    let len_max = config::ProcessConfig::default().cache_object_len_max;
    let len = file.body.len() as u64;
    let coding = mime::coding(path);
    let is_compressed = rules.compress.enabled
        // Files in a compressed format are not compressed again.
        && coding == ContentCoding::Identity
        && (rules.compress.len_min..=len_max).contains(&len)
        && mime::is_compressible(&content_type);
    let siblings = ENCODED.map(|encoding| {
        let sibling = || sibling(from, encoding, file.modified_ns);
        let is_encoded = coding != ContentCoding::Identity;
        (encoding, (!is_encoded).then(sibling).flatten())
    });
    let has_sibling = siblings.iter().any(|(_, sibling)| sibling.is_some());
    let head = VariantHead {
        rules,
        header_patterns: &HeaderPatterns::new(rules),
        path,
        content_type: &content_type,
        coding,
        varies: is_compressed || has_sibling,
        modified_ns: file.modified_ns,
    };
    let mut variants = Vec::new();
    let mut present = CodingSet::EMPTY;
    for (encoding, sibling) in siblings {
        if let Some(sibling) = sibling {
            let etag = etag::with_encoding(&content_tag(&sibling.body), encoding);
            variants.push(head.variant(encoding, &etag, sibling.body));
            present.insert(encoding);
        }
    }
    for encoding in COMPRESSED
        .into_iter()
        .filter(|candidate| is_compressed && !present.contains(*candidate))
    {
        let compressed = compression::compress(&file.body, encoding);
        let compressed = compressed.map_err(|error| format!("{}: {error}", from.display()))?;
        if let Some(body) = compressed {
            let etag = etag::with_encoding(&content_tag(&file.body), encoding);
            variants.push(head.variant(encoding, &etag, body));
        }
    }
    let etag = content_tag(&file.body);
    // The variant without coding is built last, because it takes ownership of the body from which the others are
    // compressed.
    variants.insert(0, head.variant(ContentCoding::Identity, &etag, file.body));
    Ok(variants)
}

/// Derives an ETag from the content: the inode numbers of a build machine do not identify a version.
fn content_tag(body: &[u8]) -> String {
    etag::from_content(digest_bytes(body))
}

/// The properties that all variants of a file share.
struct VariantHead<'s> {
    rules: &'s config::SiteConfig,
    header_patterns: &'s HeaderPatterns,
    path: &'s [u8],
    content_type: &'s str,
    coding: ContentCoding,
    varies: bool,
    modified_ns: i64,
}

impl VariantHead<'_> {
    fn variant(&self, encoding: ContentCoding, etag: &str, body: Vec<u8>) -> NewVariant {
        // Last-Modified must not be later than the response (RFC 9110 §8.8.2.1).
        let modified_ns = self.modified_ns.min(clock::unix_ns());
        let last_modified_s = u64::try_from(modified_ns / 1_000_000_000).ok();
        let facts = HeadFacts {
            path: self.path,
            content_type: self.content_type,
            encoding,
            coding: self.coding,
            varies: self.varies,
            len: body.len() as u64,
            etag,
            modified_s: last_modified_s,
        };
        let head = file_headers::build(&facts, self.rules, self.header_patterns);
        let (head, map) = (head.text, head.map);
        NewVariant {
            encoding,
            shared_fields: lines(map.shared(&head)),
            content_fields: lines(map.content(&head)),
            etag: etag.to_string(),
            content_type: self.content_type.to_string(),
            last_modified_s,
            body,
        }
    }
}

fn read(from: &Path) -> io::Result<FileContents> {
    let body = fs::read(from)?;
    let stamp = FileStamp::from_path(from)?;
    // Length and contents must match, because the header section contains the length.
    if stamp.len != body.len() as u64 {
        return Err(io::Error::other("the file changed while it was read"));
    }
    Ok(FileContents {
        body,
        modified_ns: stamp.modified_ns,
    })
}

/// The file's precompressed sibling for a coding, unless the sibling is older than the file.
fn sibling(from: &Path, encoding: ContentCoding, modified_ns: i64) -> Option<FileContents> {
    let mut name = from.as_os_str().to_owned();
    name.push(encoding.file_suffix());
    let sibling = read(Path::new(&name)).ok()?;
    (sibling.modified_ns >= modified_ns).then_some(sibling)
}

/// Encodes field lines for the archive.
fn lines(section: StoredSection<'_>) -> Vec<u8> {
    let mut lines = Vec::new();
    put_encoded(section, &mut lines);
    lines
}
