//! The program on the machine: `lowroad-bare`, or, to test the machine alone, the stand-in `echo`.

use alloc::string::String;

use lowroad_bare::Machine;

#[cfg(feature = "echo")]
pub use crate::echo::Server;
#[cfg(not(feature = "echo"))]
pub use lowroad_bare::Server;

/// Creates the server for a site.
#[cfg(not(feature = "echo"))]
pub fn open(site: &'static [u8], machine: Machine) -> Result<Server, String> {
    let archive = lowroad_bare::archive::Archive::open(site)
        .map_err(|error| alloc::format!("the site: {error}"))?;
    Server::new(archive, machine)
}

/// Creates the stand-in; the site is ignored.
#[cfg(feature = "echo")]
pub fn open(_site: &'static [u8], machine: Machine) -> Result<Server, String> {
    Server::new(machine)
}
