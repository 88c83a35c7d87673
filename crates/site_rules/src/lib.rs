//! The rules of a site, made ready for requests once per load of the configuration: its patterns, which are matched with a
//! path together, its folders, and the fields of its responses. Knows nothing of files, programs or requests.

#![forbid(unsafe_code)]

mod base_folders;
mod distinct_patterns;
mod field_map;
mod folders;
mod header_fields;
mod site_patterns;

use lowroad_config as config;
use lowroad_config::{RequestPath, SiteName, SiteRoot};
use lowroad_http::content_coding::{CodingSet, ContentCoding};

pub use base_folders::BaseFolders;
pub use distinct_patterns::DistinctPatterns;
pub use field_map::FieldMap;
use folders::RealFolders;
pub use folders::{FolderPath, is_hidden};
pub use header_fields::{HeaderPatterns, SiteFields};
pub use site_patterns::{FormSet, PathMatches, SitePatterns, indexes};

/// The name of a site in logs and metrics: its first host name, or its root.
pub fn site_label(site: &config::SiteConfig, bases: &BaseFolders) -> String {
    match site.names.first() {
        Some(SiteName::Exact(name) | SiteName::Wildcard(name)) => name.clone(),
        _ if site.root == SiteRoot::None => "any host".into(),
        _ => bases.root.path.display().to_string(),
    }
}

/// The rules of one site.
pub struct SiteRules {
    /// The site's number, which begins the keys of its stored responses.
    pub id: u32,
    /// Begins the keys of its stored responses on the disk, in all runs of the server.
    pub disk_id: [u8; 16],
    /// The site's name in logs and metrics.
    pub label: String,
    /// The site's configuration.
    pub config: config::SiteConfig,
    /// Encodings that may be made of its files.
    pub encodings: CodingSet,
    /// Selects the fields of its responses by path.
    pub header_patterns: HeaderPatterns,
    patterns: SitePatterns,
    folders: RealFolders,
}

impl SiteRules {
    /// The rules of a site in these folders.
    pub fn new(
        id: u32,
        disk_id: [u8; 16],
        site: &config::SiteConfig,
        bases: &BaseFolders,
    ) -> SiteRules {
        SiteRules {
            id,
            disk_id,
            label: site_label(site, bases),
            config: site.clone(),
            encodings: content_codings(&site.compress.encodings),
            header_patterns: HeaderPatterns::new(site),
            patterns: SitePatterns::new(site),
            folders: RealFolders::new(bases),
        }
    }

    /// The site's patterns that match a decoded path.
    pub fn match_path<'a>(&'a self, path: &'a [u8]) -> PathMatches<'a> {
        self.patterns.match_path(path, None)
    }

    /// The same for a path as a client sent it, which has encoded slashes or backslashes unless a file may have it.
    #[inline]
    pub fn match_request_path<'a>(
        &'a self,
        path: RequestPath<'a>,
        is_for_files: bool,
    ) -> PathMatches<'a> {
        // Without encoded slashes, a path has one form only.
        let raw = (!is_for_files).then_some(path.raw());
        self.patterns.match_path(path.decoded(), raw)
    }

    /// Whether a route has a path even if there is a file.
    pub fn has_route(&self, path: &[u8]) -> bool {
        let matches = self.match_path(path);
        // Conditions aside: they depend on the request.
        let mut routes = matches.routes();
        routes.any(|pattern| self.patterns.is_routed(pattern))
    }

    /// Whether paths with encoded slashes or backslashes may be answered: no file has one.
    #[inline]
    pub fn allows_encoded_slashes(&self) -> bool {
        !self.config.routes.is_empty() || !self.config.redirects.is_empty()
    }
}

/// The content codings that a configuration names.
pub fn content_codings(configured: &[config::OfferedCoding]) -> CodingSet {
    configured.iter().fold(CodingSet::EMPTY, |codings, coding| {
        codings.with(match coding {
            config::OfferedCoding::Br => ContentCoding::Brotli,
            config::OfferedCoding::Zstd => ContentCoding::Zstd,
            config::OfferedCoding::Gzip => ContentCoding::Gzip,
        })
    })
}
