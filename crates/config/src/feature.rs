//! Build features: parts of the server that a build may lack, and the configuration keys that require them. Each build
//! passes the list of its missing features to the reader.

use std::fmt;

use crate::module::ModuleMarks;
use crate::reader::{ConfigSource, KeyPosition};
use crate::site_marks::SiteMarks;
use crate::{
    DatabaseConfig, ModuleCode, ModuleConfig, OriginConfig, RouteConfig, RouteTo, SiteConfig,
};

/// A part of the server that a build may omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildFeature {
    /// `lowroad image`.
    Image,
    /// Modules that are linked in or libraries.
    Modules,
    /// CGI, FastCGI and origin servers.
    Programs,
    /// The soft-interrupt level.
    Softirq,
    /// Pages and their databases.
    Sql,
    /// TLS, with clients and with origins.
    Tls,
    /// WebAssembly modules.
    Wasm,
}

impl BuildFeature {
    /// All features.
    pub const ALL: [BuildFeature; 7] = [
        BuildFeature::Image,
        BuildFeature::Modules,
        BuildFeature::Programs,
        BuildFeature::Softirq,
        BuildFeature::Sql,
        BuildFeature::Tls,
        BuildFeature::Wasm,
    ];

    /// The name of the cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            BuildFeature::Image => "image",
            BuildFeature::Modules => "modules",
            BuildFeature::Programs => "programs",
            BuildFeature::Softirq => "softirq",
            BuildFeature::Sql => "sql",
            BuildFeature::Tls => "tls",
            BuildFeature::Wasm => "wasm",
        }
    }

    /// The feature that a module requires.
    pub fn from_module(code: &ModuleCode) -> BuildFeature {
        match code {
            ModuleCode::Linked(_) | ModuleCode::Library(_) => BuildFeature::Modules,
            ModuleCode::Wasm(_) => BuildFeature::Wasm,
        }
    }

    /// The feature that a route requires.
    fn from_route(route: &RouteConfig) -> Option<BuildFeature> {
        if route.origins().any(OriginConfig::is_encrypted) {
            return Some(BuildFeature::Tls);
        }
        match &route.to {
            // The feature of a module is checked at its `[[module]]`.
            RouteTo::Module(_) => None,
            RouteTo::Cgi(_) | RouteTo::FastCgi(_) | RouteTo::Origin(_) => {
                Some(BuildFeature::Programs)
            }
            RouteTo::Pages(_) => Some(BuildFeature::Sql),
        }
    }
}

/// A feature that this build lacks; displayed as `this lowroad was built without sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFeature(pub BuildFeature);

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this lowroad was built without {}", self.0.name())
    }
}

/// Reports a key that needs TLS, if the build lacks it.
pub(crate) fn check_tls(
    source: &ConfigSource<'_>,
    position: Option<&KeyPosition>,
    missing_features: &[BuildFeature],
) {
    if let Some(position) = position
        && missing_features.contains(&BuildFeature::Tls)
    {
        let missing = MissingFeature(BuildFeature::Tls);
        source.report(position, missing.to_string(), "");
    }
}

/// Reports uses of features that the build lacks, in sites, modules and databases.
pub(crate) fn check(
    source: &ConfigSource<'_>,
    sites: &[(SiteConfig, SiteMarks)],
    modules: &[(ModuleConfig, ModuleMarks)],
    databases: &[(DatabaseConfig, KeyPosition)],
    missing_features: &[BuildFeature],
) {
    let module_features = modules.iter().map(|(module, marks)| {
        let position = marks.file.as_ref().unwrap_or(&marks.name);
        (BuildFeature::from_module(&module.code), position)
    });
    let database_features = databases
        .iter()
        .map(|(_, position)| (BuildFeature::Sql, position));
    let routes = sites
        .iter()
        .flat_map(|(site, marks)| site.routes.iter().zip(&marks.routes));
    let route_features = routes
        .filter_map(|(route, marks)| Some((BuildFeature::from_route(route)?, &marks.handler)));
    let tls_features = sites
        .iter()
        .filter_map(|(_, marks)| Some((BuildFeature::Tls, marks.tls.first()?)));
    let all = module_features
        .chain(database_features)
        .chain(route_features);
    for (feature, position) in all.chain(tls_features) {
        if missing_features.contains(&feature) {
            source.report(position, MissingFeature(feature).to_string(), "");
        }
    }
}
