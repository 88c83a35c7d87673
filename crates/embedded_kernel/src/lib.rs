//! The unikernel's kernel, built by this crate's build script from `bare/` and embedded in the `lowroad` program, which
//! therefore can make images without other files. The crate does not interpret the kernel's contents.
#![no_std]
#![forbid(unsafe_code)]

/// The ELF file. `None` on processors other than x86_64, where it is not built.
pub const KERNEL: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/kernel.rs"));
