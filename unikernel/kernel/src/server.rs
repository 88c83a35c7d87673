//! The server that the kernel runs: `lowroad_unikernel`, or, to test the kernel alone, the stand-in `echo`.

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

/// Creates the stand-in, which ignores the site.
#[cfg(feature = "echo")]
pub fn open(_site: &'static [u8], machine: MachineSetup) -> Result<UnikernelServer, String> {
    UnikernelServer::new(machine)
}
