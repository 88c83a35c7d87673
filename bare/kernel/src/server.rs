//! What runs on the machine: the program of `lowroad-bare`, or, to try the machine alone, something that answers pings.

use alloc::string::String;

use lowroad_bare::Machine;

#[cfg(feature = "echo")]
pub use crate::echo::Server;
#[cfg(not(feature = "echo"))]
pub use lowroad_bare::Server;

/// Makes it, for a site.
#[cfg(not(feature = "echo"))]
pub fn open(site: &'static [u8], machine: Machine) -> Result<Server, String> {
    let archive = lowroad_bare::archive::Archive::open(site)
        .map_err(|error| alloc::format!("the site: {error}"))?;
    Server::new(archive, machine)
}

/// Makes it; whatever the site holds is not looked at.
#[cfg(feature = "echo")]
pub fn open(_site: &'static [u8], machine: Machine) -> Result<Server, String> {
    Server::new(machine)
}
