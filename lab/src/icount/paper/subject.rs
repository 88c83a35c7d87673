//! A compared server, with the programs of its pages.

use std::path::Path;

use super::super::servers::lowroad_path;
use super::load::{DatabaseUse, PaperLoad};
use crate::peers::{PeerFailure, carried, programs};

/// A compared server.
#[derive(Debug)]
pub struct ComparedServer {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// The title of the server's column in the table.
    pub title: &'static str,
    /// The system that boots.
    pub machine: GuestSystem,
    /// The paths of the server's row pages, by the use of database connections; `{size}` is the page's length. Empty if
    /// only files are requested.
    pub pages: &'static [(DatabaseUse, &'static str)],
}

/// The system of a guest.
#[derive(Debug)]
pub enum GuestSystem {
    /// Linux, running the plan of a peer.
    Linux {
        /// The peer's name: see [`crate::peers::table`].
        peer: &'static str,
        /// Deviations from the peer's tuned defaults.
        settings: &'static [(&'static str, &'static str)],
    },
    /// A bare image of the site, without Linux.
    Image,
}

impl ComparedServer {
    /// The path of the page of that length; `None` if the server has no page that uses the database in one of these
    /// ways.
    pub fn page(&self, database: &[DatabaseUse], size: u64) -> Option<String> {
        let found = database.iter().find_map(|database_use| {
            let is_match = |(page_use, _): &&(DatabaseUse, &str)| page_use == database_use;
            self.pages.iter().find(is_match)
        });
        found.map(|(_, path)| path.replace("{size}", &size.to_string()))
    }

    /// Why the server does not support this load.
    pub fn missing_feature(&self, load: &PaperLoad) -> Option<&'static str> {
        let is_missing = load
            .sizes()
            .any(|size| self.page(load.database, size).is_none());
        is_missing.then_some(match self.pages {
            [] => "it makes no pages",
            _ => "its pages do not connect so",
        })
    }

    /// Why the server can't be measured on this machine, and the Debian packages that would help; `lowroad` overrides
    /// the default path of Lowroad's program.
    pub fn missing(&self, lowroad: Option<&Path>) -> Option<(String, &'static [&'static str])> {
        let peer = match self.machine {
            GuestSystem::Linux { peer, .. } if !programs::is_lowroad(peer) => peer,
            _ => return lowroad_path(lowroad).err().map(|error| (error, &[][..])),
        };
        let job = carried::GuestPeerJob {
            peer,
            root: Path::new("/srv"),
            address: ([0, 0, 0, 0], 80).into(),
            workers: 1,
            settings: &[].into(),
            moved_paths: &[],
        };
        let error = carried::prepare(&job).err()?;
        let packages = match error {
            PeerFailure::NotInstalled(_) => carried::packages(peer).unwrap_or_default(),
            _ => &[],
        };
        Some((error.to_string(), packages))
    }

    /// Whether the server generates pages, for which it needs a database.
    pub fn needs_database(&self) -> bool {
        !self.pages.is_empty()
    }
}
