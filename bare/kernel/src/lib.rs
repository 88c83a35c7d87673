//! What the kernel knows without touching the machine: the formats of loaders and firmware, the map of memory, arithmetic
//! of clocks. The program that touches the machine is `main.rs`; its words are told to it by the types here.
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
