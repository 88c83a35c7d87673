//! The configuration as plain structs, with every default.
//!
//! The schema is independent of TOML, files and sockets. The server is built from it, whether the values came from a
//! file, from the command line or from [`Default`]. `docs/configuration.md` describes the keys for operators.

mod acme;
mod alias;
mod caching;
mod class;
mod limits;
mod log;
mod origin;
mod program;
mod representation;
mod route;
mod rule;
mod server;
mod site;
mod tls;

pub use acme::{Acme, AcmeAuthority, AcmeChallenge, OnDemand};
pub use alias::Alias;
pub use caching::{CacheBypass, Caching, Cookies};
pub use class::{Class, FieldLine, Members};
pub use limits::{Buffering, Limits};
pub use log::{AccessLog, Format, Level, Log, LogTarget};
pub use origin::{
    Balance, HashBy, Origin, OriginCheck, OriginHost, OriginServer, OriginTls, OriginUrl,
    ProxyProtocol,
};
pub use program::{Application, Database, Module, ModuleCode};
pub use representation::{
    Compress, Encoding, EntityTags, HeaderRule, PatternRule, Redirect, Rewrite,
};
pub use route::{Cgi, Conditions, FastCgi, Keep, Pages, Route, RouteTo, Upstream};
pub use rule::{Action, Auth, ClientField, Rule, TrustedProxies};
pub use server::{Accept, Server, Softirq};
pub use site::{Name, PassThrough, Root, Site, Symlinks, site_for_folder};
pub use tls::{CertificateFiles, ClientCertificates, Tls, TlsVersion};

/// The whole configuration of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The process: workers, cache, user. `[server]`
    pub server: Server,
    /// The limits for clients. `[limits]`
    pub limits: Limits,
    /// Buffers between clients and programs. `[buffering]`
    pub buffering: Buffering,
    /// The targets of the logs. `[log]`
    pub log: Log,
    /// Automatic certificates. `[acme]`
    pub acme: Option<Acme>,
    /// Modules, which routes refer to by name. `[[module]]`
    pub modules: Vec<Module>,
    /// Databases, which routes refer to by name. `[[database]]`
    pub databases: Vec<Database>,
    /// Programs that the server starts and supervises. `[[application]]`
    pub applications: Vec<Application>,
    /// Traffic classes, in the order of matching. `[[class]]`
    pub classes: Vec<Class>,
    /// The sites, in the order of the file. `[[site]]`; a parsed file has at least one.
    pub sites: Vec<Site>,
}
