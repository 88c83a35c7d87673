//! What a guest is: a server, with the program that makes its pages.

use std::path::Path;

use super::super::servers::own;
use super::load::{DatabaseUse, PaperLoad};
use crate::peers::{PeerFailure, carried, programs};

/// A server that is compared.
#[derive(Debug)]
pub struct ComparedServer {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// At the head of its column.
    pub title: &'static str,
    /// What boots.
    pub machine: GuestSystem,
    /// The paths of its pages of rows, by what they do with the connection to the database; `{size}` is
    /// the page's length. Empty: it is asked for files alone.
    pub pages: &'static [(DatabaseUse, &'static str)],
}

/// What a guest boots.
#[derive(Debug)]
pub enum GuestSystem {
    /// Linux, in which a peer's plan is carried out with these settings.
    Linux {
        /// The peer's name: see [`crate::peers::table`].
        peer: &'static str,
        /// What differs from its tuned default.
        settings: &'static [(&'static str, &'static str)],
    },
    /// The site as an image of its own, without Linux.
    Image,
}

impl ComparedServer {
    /// The path of the page of that length; `None` if it has none that uses the database so.
    pub fn page(&self, database: &[DatabaseUse], size: u64) -> Option<String> {
        let found = database.iter().find_map(|wanted| {
            let has = |(how, _): &&(DatabaseUse, &str)| how == wanted;
            self.pages.iter().find(has)
        });
        found.map(|(_, path)| path.replace("{size}", &size.to_string()))
    }

    /// Why it can't be asked this.
    pub fn lacks(&self, load: &PaperLoad) -> Option<&'static str> {
        let lacking = load
            .sizes()
            .any(|size| self.page(load.database, size).is_none());
        lacking.then_some(match self.pages {
            [] => "it makes no pages",
            _ => "its pages do not connect so",
        })
    }

    /// Why it can't be measured here, and the Debian packages that would help; `lowroad` says where our
    /// server's program is, if not where it is built.
    pub fn missing(&self, lowroad: Option<&Path>) -> Option<(String, &'static [&'static str])> {
        let peer = match self.machine {
            GuestSystem::Linux { peer, .. } if !programs::is_lowroad(peer) => peer,
            _ => return own(lowroad).err().map(|why| (why, &[][..])),
        };
        let job = carried::GuestPeerJob {
            peer,
            root: Path::new("/srv"),
            address: ([0, 0, 0, 0], 80).into(),
            workers: 1,
            settings: &[].into(),
            moved: &[],
        };
        let why = carried::carried(&job).err()?;
        let packages = match why {
            PeerFailure::NotInstalled(_) => carried::packages(peer).unwrap_or_default(),
            _ => &[],
        };
        Some((why.to_string(), packages))
    }

    /// Whether pages can be made here, which takes a database.
    pub fn needs_database(&self) -> bool {
        !self.pages.is_empty()
    }
}
