//! From the objects in this program to programs that run: loaded into the kernel, attached to interfaces,
//! pinned in a folder, so that they outlive the process. It knows nothing of what they do.

mod calls;
pub mod fan_out;
pub mod folder;
pub mod intercept;
pub mod links;
pub mod load;
pub(crate) mod maps;
pub mod runs;
pub mod sizes;
