//! The database of a guest: a separate MariaDB on the host's side of the guest's network, so that its instructions are
//! not counted and other guests can't reach it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::super::guest::GuestNetwork;
use super::super::kernel::{build_once, cache};
use super::page::schema;
use crate::peers::{self, PeerOptions, PeerPlace, RunningPeer, carried, programs};

const PORT: u16 = 3306;
/// The database's name among the peers.
const PEER: &str = "mariadb";

/// The database's address, as seen by the guest.
pub fn address(network: &GuestNetwork) -> SocketAddr {
    SocketAddr::from((network.host, PORT))
}

/// Account and database as a URL, for Lowroad's own programs.
pub fn url(network: &GuestNetwork) -> String {
    format!(
        "mysql://lowroad_lab:lowroad_lab@{}/lowroad_lab",
        address(network)
    )
}

/// Why no database is available, and the packages that would help.
pub fn missing() -> Option<(String, &'static [&'static str])> {
    let packages = carried::packages(PEER).unwrap_or_default();
    let peer = peers::all().iter().find(|peer| peer.name == PEER)?;
    let is_missing = !programs::installed(peer);
    is_missing.then(|| {
        (
            format!("no database: {} is missing", packages.join(" ")),
            packages,
        )
    })
}

/// Starts the database with all rows, in a network that exists already.
///
/// # Errors
/// The database failed; the text is its output.
pub fn start(network: &GuestNetwork) -> Result<RunningPeer, String> {
    let options = PeerOptions {
        root: cache()?, // it serves no folder, but a peer has one
        workers: 1,
        place: PeerPlace::At(address(network)),
        settings: [("schema".to_owned(), schema_file()?.display().to_string())].into(),
        ..PeerOptions::default()
    };
    peers::start(PEER, &options).map_err(|error| error.to_string())
}

/// The file with the rows as SQL, named by a hash of its content, so that concurrent labs with other contents use other
/// files.
fn schema_file() -> Result<PathBuf, String> {
    let text = schema();
    let name = format!("rows-{:08x}.sql", crc32fast::hash(text.as_bytes()));
    build_once(&cache()?.join(name), |file| {
        fs::write(file, &text).map_err(|error| format!("{}: {error}", file.display()))
    })
}
