//! The program on the machine: `lowroad-bare`, or, to test the machine alone, the stand-in `echo`.

use alloc::string::String;

use lowroad_unikernel::MachineSetup;

#[cfg(feature = "echo")]
pub use crate::echo::EchoServer as UnikernelServer;
#[cfg(not(feature = "echo"))]
pub use lowroad_unikernel::UnikernelServer;

/// Creates the server for a site.
#[cfg(not(feature = "echo"))]
pub fn open(site: &'static [u8], machine: MachineSetup) -> Result<UnikernelServer, String> {
    let archive = lowroad_unikernel::archive::SiteArchive::open(site)
        .map_err(|error| alloc::format!("the site: {error}"))?;
    UnikernelServer::new(archive, machine)
}

/// Creates the stand-in; the site is ignored.
#[cfg(feature = "echo")]
pub fn open(_site: &'static [u8], machine: MachineSetup) -> Result<UnikernelServer, String> {
    UnikernelServer::new(machine)
}
