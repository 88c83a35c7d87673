//! The changes that an operator makes to the servers of origins while the server runs: out of rotation and back, other
//! weights, further servers. They last until a restart: a reload keeps those of each origin that is still configured.

use std::fmt;

use crate::upstream_status::UpstreamFailure;

/// Whether a server gets requests.
// The discriminants are the indices in `NAMES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerMode {
    /// While its checks and its failed requests show that it works.
    #[default]
    Ready,
    /// Only those of sticky sessions that belong to it.
    Drain,
    /// None; those in progress go on.
    Down,
    /// Always, whatever its checks show.
    Force,
}

impl ServerMode {
    /// All modes with their names.
    pub const NAMES: [(ServerMode, &'static str); 4] = [
        (ServerMode::Ready, "ready"),
        (ServerMode::Drain, "drain"),
        (ServerMode::Down, "down"),
        (ServerMode::Force, "force"),
    ];

    /// Whether the server gets requests that belong to no session.
    pub fn is_in_rotation(self) -> bool {
        matches!(self, ServerMode::Ready | ServerMode::Force)
    }

    /// The name in the admin service.
    pub fn as_str(self) -> &'static str {
        ServerMode::NAMES[self as usize].1
    }

    /// The mode with a name.
    pub fn from_name(name: &str) -> Option<ServerMode> {
        let named = ServerMode::NAMES.iter().find(|(_, known)| *known == name);
        named.map(|(mode, _)| *mode)
    }
}

/// A change of a server; `None` leaves a setting unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerChange {
    /// The new mode.
    pub mode: Option<ServerMode>,
    /// The new weight, 1 to 1000; `Some(None)` for the configured one.
    pub weight: Option<Option<u32>>,
}

/// A server to be added to an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedServer {
    /// The address: `10.0.0.3:3000`, or `unix:/PATH`.
    pub address: String,
    /// The weight, 1 to 1000.
    pub weight: u32,
    /// Whether the server is a backup.
    pub is_backup: bool,
    /// Whether it gets requests.
    pub mode: ServerMode,
}

/// The servers of an origin.
#[derive(Clone, Debug)]
pub struct OriginView {
    /// The name, or the URL of an origin without a name.
    pub name: String,
    /// The servers, ordered by address.
    pub servers: Vec<ServerView>,
}

/// A server of an origin.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// The address: `10.0.0.3:3000`, or `unix:/PATH`.
    pub address: String,
    /// The operator's decision.
    pub mode: ServerMode,
    /// The health as a text: `up`, `ejected`, `down` and others; `not checked` for the only server of an origin.
    pub health: String,
    /// Whether the server works, as far as is known.
    pub is_available: bool,
    /// Whether the server is a backup.
    pub is_backup: bool,
    /// Whether an operator has added the server.
    pub is_added: bool,
    /// The weight in force.
    pub weight: u32,
    /// The configured weight.
    pub configured_weight: u32,
    /// Requests in progress; `None` if they are not counted, since the origin has one server.
    pub requests: Option<u32>,
    /// Connections with a request, and open ones with HTTP/2.
    pub connections: u64,
    /// Idle connections.
    pub idle_connections: u64,
    /// The last failure.
    pub latest_failure: Option<UpstreamFailure>,
}

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginRefusal {
    /// No origin has this name; the names of all.
    UnknownOrigin(Vec<String>),
    /// The origin has no server at this address; the addresses of all.
    UnknownServer(Vec<String>),
    /// The origin has a single fixed server without health checks, and so no load balancing.
    NoGroup,
    /// The address of a server to be added can't be used; the reason.
    InvalidAddress(&'static str),
    /// The origin has this server already.
    Exists,
    /// The server is configured, so it can't be removed.
    IsConfigured,
    /// Too many servers were added.
    TooMany(usize),
    /// FastCGI servers have states only.
    FastCgi,
}

impl fmt::Display for OriginRefusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OriginRefusal::UnknownOrigin(names) if names.is_empty() => {
                to.write_str("no route in force has an origin")
            }
            OriginRefusal::UnknownOrigin(names) => {
                write!(to, "there is no such origin; the origins are {}", names.join(", "))
            }
            OriginRefusal::UnknownServer(addresses) => write!(
                to,
                "the origin has no such server; its servers are {}",
                addresses.join(", ")
            ),
            OriginRefusal::NoGroup => to.write_str(
                "the origin has a single server without health checks, so it has no load balancing; configure two \
                 servers or [origin.check], and reload",
            ),
            OriginRefusal::InvalidAddress(reason) => to.write_str(reason),
            OriginRefusal::Exists => to.write_str("the origin has this server already"),
            OriginRefusal::IsConfigured => to.write_str(
                "the server is in the configuration; take it out of service, or change the configuration",
            ),
            OriginRefusal::FastCgi => to.write_str(
                "FastCGI servers have no weight here, and only the configuration adds and removes them; change their state",
            ),
            OriginRefusal::TooMany(max) => {
                write!(to, "{max} servers were added to this origin, which is the maximum")
            }
        }
    }
}

/// The changes of one server that differ from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChange {
    /// The name of the origin.
    pub origin: String,
    /// The address of the server.
    pub address: String,
    /// The operator's decision.
    pub mode: ServerMode,
    /// The weight; `None`: the configured one.
    pub weight: Option<u32>,
    /// The configured weight of a server that an operator has added, and whether it is a backup.
    pub added: Option<(u32, bool)>,
}

/// Lists and changes the servers of origins. Callers may block briefly, so these are no operations for workers.
pub trait OriginControl {
    /// All origins in use, ordered by name.
    fn views(&self) -> Vec<OriginView>;

    /// Changes a server.
    ///
    /// # Errors
    /// [`OriginRefusal`]
    fn change_server(
        &self,
        origin: &str,
        address: &str,
        change: ServerChange,
    ) -> Result<(), OriginRefusal>;

    /// Adds a server. Returns its address in the form in which it is listed.
    ///
    /// # Errors
    /// [`OriginRefusal`]
    fn add_server(&self, origin: &str, server: &AddedServer) -> Result<String, OriginRefusal>;

    /// Removes a server that was added. Its requests in progress go on.
    ///
    /// # Errors
    /// [`OriginRefusal`]
    fn remove_server(&self, origin: &str, address: &str) -> Result<(), OriginRefusal>;

    /// All changes, for the process that takes over from this one.
    fn kept_changes(&self) -> Vec<KeptChange>;

    /// Sets the changes of the process from which this one takes over, before any origin is created.
    fn restore_changes(&self, changes: &[KeptChange]);
}
