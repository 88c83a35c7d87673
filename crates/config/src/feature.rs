//! Optional parts of the server, and the parts of a configuration that require them. Each build provides its own list
//! of missing features.

use std::fmt;

use crate::module::Marks as ModuleMarks;
use crate::reader::{At, Source};
use crate::site_marks::SiteMarks;
use crate::{Database, Module, ModuleCode, RouteTo, Site};

/// A part of the server that a build may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `lowroad image`.
    Image,
    /// Modules that are linked in or libraries.
    Modules,
    /// CGI, FastCGI and origins.
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

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 7] = [
        Feature::Image,
        Feature::Modules,
        Feature::Programs,
        Feature::Softirq,
        Feature::Sql,
        Feature::Tls,
        Feature::Wasm,
    ];

    /// Its name as a cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Image => "image",
            Feature::Modules => "modules",
            Feature::Programs => "programs",
            Feature::Softirq => "softirq",
            Feature::Sql => "sql",
            Feature::Tls => "tls",
            Feature::Wasm => "wasm",
        }
    }

    /// The feature that a module needs.
    pub fn of_module(code: &ModuleCode) -> Feature {
        match code {
            ModuleCode::Linked(_) | ModuleCode::Library(_) => Feature::Modules,
            ModuleCode::Wasm(_) => Feature::Wasm,
        }
    }

    /// The feature that a route needs; a module's need is reported at its definition.
    fn of_route(to: &RouteTo) -> Option<Feature> {
        match to {
            RouteTo::Module(_) => None,
            RouteTo::Origin(origin) if origin.is_encrypted() => Some(Feature::Tls),
            RouteTo::Cgi(_) | RouteTo::FastCgi(_) | RouteTo::Origin(_) => Some(Feature::Programs),
            RouteTo::Pages(_) => Some(Feature::Sql),
        }
    }
}

/// A feature is missing in this build: `this lowroad was built without sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking(pub Feature);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this lowroad was built without {}", self.0.name())
    }
}

/// Reports the features that sites, modules and databases need and the build lacks.
pub(crate) fn check(
    source: &Source<'_>,
    sites: &[(Site, SiteMarks)],
    modules: &[(Module, ModuleMarks)],
    databases: &[(Database, At)],
    lacking: &[Feature],
) {
    let of_modules = modules.iter().map(|(module, marks)| {
        let at = marks.file.as_ref().unwrap_or(&marks.name);
        (Feature::of_module(&module.code), at)
    });
    let of_databases = databases.iter().map(|(_, at)| (Feature::Sql, at));
    let routes = sites
        .iter()
        .flat_map(|(site, marks)| site.routes.iter().zip(&marks.routes));
    let of_routes = routes.filter_map(|(route, at)| Some((Feature::of_route(&route.to)?, at)));
    let of_tls = sites
        .iter()
        .filter_map(|(_, marks)| Some((Feature::Tls, marks.tls.first()?)));
    let all = of_modules.chain(of_databases).chain(of_routes);
    for (feature, at) in all.chain(of_tls) {
        if lacking.contains(&feature) {
            source.report(at, Lacking(feature).to_string(), "");
        }
    }
}
