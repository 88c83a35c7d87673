//! Representations of a site's files: content codings, fields, redirects.

use lowroad_variables::Template;

use super::RequestConditions;
use crate::{PathPattern, PathSelector};

/// Compression of responses. `[site.compress]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressConfig {
    /// Whether text without a precompressed sibling is compressed on the fly. Default true.
    pub enabled: bool,
    /// Files shorter than this, in bytes, are not compressed. 0 to 1 GiB. Default 256.
    pub len_min: u64,
    /// The codings, in the order of preference, without duplicates; not empty. Default br, zstd, gzip.
    pub encodings: Vec<OfferedCoding>,
    /// Siblings with `.br`, `.zst` and `.gz` are sent to clients that accept them. Default true.
    pub precompressed: bool,
    /// The codings for responses of programs and origins, unless their route sets them; no duplicates. Default none:
    /// they are not compressed. `true` is `CompressConfig::ON_THE_FLY`.
    pub programs: Vec<OfferedCoding>,
}

impl CompressConfig {
    /// The codings that are fast enough for dynamic responses.
    pub const ON_THE_FLY: [OfferedCoding; 2] = [OfferedCoding::Zstd, OfferedCoding::Gzip];
}

impl Default for CompressConfig {
    fn default() -> CompressConfig {
        CompressConfig {
            enabled: true,
            len_min: 256,
            encodings: vec![OfferedCoding::Br, OfferedCoding::Zstd, OfferedCoding::Gzip],
            precompressed: true,
            programs: Vec::new(),
        }
    }
}

/// A content coding (RFC 9110 §8.4.1) that the server can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedCoding {
    /// Brotli, RFC 7932. `"br"`
    Br,
    /// Zstandard, RFC 8878. `"zstd"`
    Zstd,
    /// Gzip, RFC 1952. `"gzip"`
    Gzip,
}

/// The source of entity tags (RFC 9110 §8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityTags {
    /// Inode, times and length of the file: each version has a different tag, on this machine. `"file"`
    File,
    /// A hash of the content, so servers with the same files have the same tags. `"content"`
    Content,
}

/// A field value for the paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternRule {
    /// The paths.
    pub pattern: PathPattern,
    /// The value: visible ASCII, spaces and tabs between.
    pub value: String,
}

/// A redirect. `RedirectConfig::location` computes its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectConfig {
    /// The paths.
    pub from: PathSelector,
    /// An absolute path or an `http`/`https` URL, percent-encoded, with variables and captures.
    pub to: Template,
    /// 301, 302, 303, 307 or 308. Default 301.
    pub status: u16,
    /// Further conditions on requests.
    pub conditions: RequestConditions,
}

/// A rewrite: another path is answered in place of the requested one. `RewriteConfig::target` computes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteConfig {
    /// The paths.
    pub from: PathSelector,
    /// An absolute path, percent-encoded, perhaps with a query; variables and captures as in a redirect.
    pub to: Template,
    /// It applies only if no file is at the path, and no route takes the path regardless of files. Default false.
    pub missing: bool,
    /// It applies only if there is a file at the new path, and none at the requested one. Default false.
    pub exists: bool,
    /// Further conditions on requests.
    pub conditions: RequestConditions,
}

/// Changes to the fields of responses for the paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// The paths. Default: all. Several patterns of a table are several rules.
    pub pattern: PathPattern,
    /// The number of the table in the site.
    pub table: usize,
    /// Further conditions on requests; then `default` is empty.
    pub conditions: RequestConditions,
    /// Names as written (tokens) and values, each set in place of any field of that name. A value with variables is
    /// computed for each response; if it is empty, no field is sent.
    pub set: Vec<(String, Template)>,
    /// Names and values of lines that are added to existing fields of the same name.
    pub append: Vec<(String, Template)>,
    /// Names and values of fields for responses without a field of that name.
    pub default: Vec<(String, String)>,
    /// Names, in lower case, of fields to remove.
    pub remove: Vec<String>,
}
