//! The rules of a site, compiled once per load of the configuration: patterns, which are matched together, folders, and
//! header fields of responses. This crate is independent of files, programs and requests.

#![forbid(unsafe_code)]

mod base_folders;
mod cors;
mod distinct_patterns;
mod field_map;
mod folders;
mod header_fields;
mod match_cache;
mod request_fields;
mod site_patterns;

use lowroad_config as config;
use lowroad_config::{RequestPath, SiteName, SiteRoot};
use lowroad_http::content_coding::{CodingSet, ContentCoding};

pub use base_folders::BaseFolders;
pub use cors::{CorsPreflight, add_cors_fields, preflight_fields};
pub use distinct_patterns::DistinctPatterns;
pub use field_map::FieldMap;
use folders::RealFolders;
pub use folders::{FolderPath, is_hidden};
pub use header_fields::{HeaderPatterns, SiteFields};
pub use request_fields::RequestFields;
pub use site_patterns::{FormSet, PathMatchCache, PathMatches, SitePatterns, indexes};

/// The name of a site in logs and metrics: its first host name, or its root.
pub fn site_label(site: &config::SiteConfig, bases: &BaseFolders) -> String {
    match site.names.first() {
        Some(SiteName::Exact(name) | SiteName::Wildcard(name)) => name.clone(),
        _ if site.root == SiteRoot::None => "any host".into(),
        _ => bases.root.path.display().to_string(),
    }
}

/// The compiled rules of a site.
pub struct SiteRules {
    /// The number of the site, with which the keys of its stored responses in memory begin.
    pub id: u32,
    /// The identity of the site, with which the keys of its stored responses on disk begin. It is the same in all runs
    /// of the server.
    pub disk_id: [u8; 16],
    /// The site's name in logs and metrics.
    pub label: String,
    /// The site's configuration.
    pub config: config::SiteConfig,
    /// The content codings that may be generated for files.
    pub encodings: CodingSet,
    /// The header rules, by path.
    pub header_patterns: HeaderPatterns,
    patterns: SitePatterns,
    folders: RealFolders,
}

impl SiteRules {
    /// Compiles the rules of a site in these folders.
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

    /// The patterns of the site that match a decoded path.
    pub fn match_path<'a>(&'a self, path: &'a [u8]) -> PathMatches<'a> {
        self.patterns.match_path(path, None)
    }

    /// Like `match_path`, for the path of a request: if `is_for_files` is false, it has encoded slashes or backslashes.
    #[inline]
    pub fn match_request_path<'a>(
        &'a self,
        path: RequestPath<'a>,
        is_for_files: bool,
    ) -> PathMatches<'a> {
        // Without encoded slashes, a path has only one form.
        let raw = (!is_for_files).then_some(path.raw());
        self.patterns.match_path(path.decoded(), raw)
    }

    /// Whether a route that does not require the file to be missing matches a path.
    pub fn has_route(&self, path: &[u8]) -> bool {
        let matches = self.match_path(path);
        // The conditions of the routes are ignored, since they depend on the request.
        let mut routes = matches.routes();
        routes.any(|pattern| self.patterns.is_routed(pattern))
    }

    /// Whether a handler executes the file of a path instead of its content being sent. No route takes the files of internal
    /// aliases, but a script there is no content either.
    pub fn is_executed(&self, path: &[u8]) -> bool {
        let is_internal = self.alias(path).is_some_and(|(alias, ..)| alias.internal);
        if !is_internal {
            return self.has_route(path);
        }
        let mut routes = self.config.routes.iter().filter(|it| !it.missing);
        routes.any(|route| !route.pattern.is_absolute() && route.pattern.matches(path))
    }

    /// Whether paths with encoded slashes or backslashes can be answered, although no file can have one.
    #[inline]
    pub fn allows_encoded_slashes(&self) -> bool {
        let has_fallback = || {
            let mut rules = self.config.access.iter();
            rules.any(|it| matches!(it.action, config::RuleAction::Fallback(_)))
        };
        !self.config.routes.is_empty() || !self.config.redirects.is_empty() || has_fallback()
    }
}

/// The configured content codings as a set.
pub fn content_codings(configured: &[config::OfferedCoding]) -> CodingSet {
    configured.iter().fold(CodingSet::EMPTY, |codings, coding| {
        codings.with(match coding {
            config::OfferedCoding::Br => ContentCoding::Brotli,
            config::OfferedCoding::Zstd => ContentCoding::Zstd,
            config::OfferedCoding::Gzip => ContentCoding::Gzip,
        })
    })
}
