//! The configuration as plain structs, with every default.
//!
//! The schema is independent of TOML, files and sockets. The server is built from it, whether the values came from a
//! file, from the command line or from [`Default`]. [`crate::reference`] describes the keys for operators.

mod acme;
mod admin;
mod alias;
mod authentication;
mod caching;
mod class;
mod condition;
mod limits;
mod log;
mod origin;
mod program;
mod representation;
mod request;
mod route;
mod rule;
mod server;
mod site;
mod site_policy;
mod tls;
mod traces;

use std::sync::Arc;

use lowroad_variables::ValueMap;

pub use acme::{AcmeAuthority, AcmeChallenge, AcmeConfig, ExternalKey, OnDemandConfig};
pub use admin::{AdminClientConfig, AdminConfig, AdminTlsConfig};
pub use alias::AliasConfig;
pub use authentication::{
    AuthConfig, ForwardAuth, PasswordAuth, TokenAlgorithm, TokenAuth, TokenKeys,
};
pub use caching::{
    CACHE_RULES_MAX, CacheBypass, CacheConfig, CacheRule, CacheRuleAction, CookieStorage,
    StatusRange,
};
pub use class::{ClassConfig, ClassMembers, FieldMatch};
pub use condition::{
    ClientShare, NamedCondition, RequestConditions, ValueCondition, VariableCondition, WeekTime,
};
pub use limits::{BandwidthLimit, BufferConfig, LimitsConfig};
pub use log::{
    AccessLogConditions, AccessLogConfig, AccessLogFormat, BinaryLogConfig, ErrorLogLevel,
    LogConfig, LogTarget, PathCondition, SiteCondition, StatusCondition,
};
pub use origin::{
    BalanceConfig, HashBy, OriginCheck, OriginConfig, OriginHost, OriginProtocol, OriginServer,
    OriginSticky, OriginTls, OriginUrl, ProxyProtocol, SameSite,
};
pub use program::{ApplicationConfig, DatabaseConfig, ModuleCode, ModuleConfig};
pub use representation::{
    CompressConfig, EntityTags, HeaderRule, OfferedCoding, PatternRule, RedirectConfig,
    RewriteConfig,
};
pub use request::{PathPrefixes, RequestRule};
pub use route::{
    CgiConfig, FastCgiConfig, InterceptedErrors, MirrorConfig, PagesConfig, ResponseStorage,
    RouteConfig, RouteTo, UpstreamAddress,
};
pub use rule::{ClientField, FixedResponse, RuleAction, RuleConfig, TrustedProxies};
pub use server::{AcceptLimit, ProcessConfig, SoftirqMode};
pub use site::{PassThroughConfig, SiteConfig, SiteName, SiteRoot, SymlinkPolicy, site_for_folder};
pub use site_policy::{CorsConfig, CorsHeaders, CorsOrigin, MaintenanceConfig, TrailingSlash};
pub use tls::{CertificateFiles, ClientAuthConfig, TlsConfig, TlsVersion};
pub use traces::{TracesConfig, TracesEndpoint};

/// The whole configuration of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The process: workers, cache, user. `[server]`
    pub server: ProcessConfig,
    /// The limits for clients. `[limits]`
    pub limits: LimitsConfig,
    /// Buffers between clients and programs. `[buffering]`
    pub buffering: BufferConfig,
    /// The targets of the logs. `[log]`
    pub log: LogConfig,
    /// The tables that are only read at the start, as the file has them.
    pub start_tables: crate::StartTables,
    /// The files of the configuration, and its values with their places.
    pub document: crate::ConfigDocument,
    /// The admin service on TCP. `[admin]`
    pub admin: AdminConfig,
    /// Automatic certificates. `[acme]`
    pub acme: Option<AcmeConfig>,
    /// Traces of requests; None = off, the default. `[traces]`
    pub traces: Option<TracesConfig>,
    /// Modules, which routes refer to by name. `[[module]]`
    pub modules: Vec<ModuleConfig>,
    /// Databases, which routes refer to by name. `[[database]]`
    pub databases: Vec<DatabaseConfig>,
    /// Programs that the server starts and supervises. `[[application]]`
    pub applications: Vec<ApplicationConfig>,
    /// Traffic classes, in the order of matching. `[[class]]`
    pub classes: Vec<ClassConfig>,
    /// The maps, which are variables. `[map.NAME]`
    pub maps: Vec<Arc<ValueMap>>,
    /// The sites, in the order of the file. `[[site]]`; a parsed file has at least one.
    pub sites: Vec<SiteConfig>,
}
