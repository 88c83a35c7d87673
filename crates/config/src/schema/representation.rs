//! How a site's files are answered: codings, fields, redirects.

use crate::{Paths, Pattern};

/// Compression of responses. `[site.compress]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// Text is compressed where no prepared sibling is found. Default true.
    pub enabled: bool,
    /// Shorter files, in bytes, are sent as they are. 0 to 1 GiB. Default 256.
    pub len_min: u64,
    /// The codings, the most liked first, none twice; not empty. Default br, zstd, gzip.
    pub encodings: Vec<Encoding>,
    /// Siblings with `.br`, `.zst` and `.gz` are sent to who accepts them. Default true.
    pub precompressed: bool,
    /// The codings for what programs and origins answer, where their route says nothing; none twice. Default none: they
    /// are sent as they come. `true` is [`Compress::ON_THE_FLY`].
    pub programs: Vec<Encoding>,
}

impl Compress {
    /// The codings that are quick enough for what is made for each request.
    pub const ON_THE_FLY: [Encoding; 2] = [Encoding::Zstd, Encoding::Gzip];
}

impl Default for Compress {
    fn default() -> Compress {
        Compress {
            enabled: true,
            len_min: 256,
            encodings: vec![Encoding::Br, Encoding::Zstd, Encoding::Gzip],
            precompressed: true,
            programs: Vec::new(),
        }
    }
}

/// A content coding (RFC 9110 §8.4.1) that the server can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Brotli, RFC 7932. `"br"`
    Br,
    /// Zstandard, RFC 8878. `"zstd"`
    Zstd,
    /// Gzip, RFC 1952. `"gzip"`
    Gzip,
}

/// What entity tags (RFC 9110 §8.8.3) are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityTags {
    /// Inode, times and length of the file: another version has another one, on this machine. `"file"`
    File,
    /// A hash of the content, so servers with the same files have the same tags. `"content"`
    Content,
}

/// A field value for the paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternRule {
    /// Which paths.
    pub pattern: Pattern,
    /// The value: visible ASCII, spaces and tabs between.
    pub value: String,
}

/// A redirect. Where it leads is told by [`Redirect::location`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Which paths.
    pub from: Paths,
    /// An absolute path or an `http`/`https` URL, percent-encoded; `$1` in its path, query or fragment stands
    /// for what was captured, `$query` for the request's query.
    pub to: String,
    /// 301, 302, 303, 307 or 308. Default 301.
    pub status: u16,
}

/// What is answered for a path in place of what is there. Where it leads is told by [`Rewrite::target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Which paths.
    pub from: Paths,
    /// An absolute path, percent-encoded, perhaps with a query; `$1` and `$query` as in a redirect.
    pub to: String,
    /// It counts only where there is no such file, and no route takes the path whatever files there are. Default false.
    pub missing: bool,
}

/// Fields to add to and to take from the responses for the paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// Which paths. Default: all.
    pub pattern: Pattern,
    /// Names as written (tokens) and values, each set in place of any field of that name.
    pub set: Vec<(String, String)>,
    /// Names and values of lines that are added beside the fields of their names.
    pub append: Vec<(String, String)>,
    /// Names and values of fields for responses that have none of their names.
    pub default: Vec<(String, String)>,
    /// Names, in lower case, of fields to take away.
    pub remove: Vec<String>,
}
