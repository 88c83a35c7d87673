//! The parts of the kernel that don't access hardware: formats of boot loaders and firmware, the memory map, clock
//! arithmetic. The kernel itself is `main.rs`.
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
