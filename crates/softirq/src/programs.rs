//! The eBPF programs: loads the embedded objects into the kernel, attaches the programs to interfaces, and pins them in
//! a folder, so that they outlive the process. Independent of the programs' purpose.

mod calls;
pub mod fan_out;
pub mod folder;
pub mod interception;
pub mod links;
pub mod loader;
pub(crate) mod maps;
pub mod runs;
pub mod sizes;
