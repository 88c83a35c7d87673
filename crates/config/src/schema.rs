//! The configuration as plain structs, with every default.
//!
//! It knows nothing of TOML, of files and of sockets: it is what the server is built from, whether the
//! values came from a file, from the command line or from [`Default`]. `docs/configuration.md` says what
//! they mean to operators.

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

/// Everything that a server has to know before it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The process: workers, cache, user. `[server]`
    pub server: Server,
    /// What clients may cost. `[limits]`
    pub limits: Limits,
    /// What waits between clients and programs. `[buffering]`
    pub buffering: Buffering,
    /// Where the logs go. `[log]`
    pub log: Log,
    /// Where certificates come from by themselves. `[acme]`
    pub acme: Option<Acme>,
    /// Modules that routes name. `[[module]]`
    pub modules: Vec<Module>,
    /// Databases that routes name. `[[database]]`
    pub databases: Vec<Database>,
    /// Programs that the server keeps alive. `[[application]]`
    pub applications: Vec<Application>,
    /// Classes of requests, in the order in which they are tried. `[[class]]`
    pub classes: Vec<Class>,
    /// The sites, in the order of the file. `[[site]]`; a parsed file has at least one.
    pub sites: Vec<Site>,
}
