//! The parts of the kernel that don't touch the machine: formats of loaders and firmware, the memory map, clock
//! arithmetic. The program is `main.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod acpi;
pub mod bytes;
pub mod command_line;
pub mod multiboot2;
pub mod pvh;
pub mod regions;
pub mod site;
pub mod symbols;
pub mod ticks;
