//! The kernel of images, as it is linked: built by this crate's build script from `bare/`, so that who has the
//! `lowroad` program needs nothing else to make an image. Knows nothing of what is in it.
#![no_std]
#![forbid(unsafe_code)]

/// The ELF file. `None` where it is not built: on other processors than x86_64.
pub const KERNEL: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/kernel.rs"));
