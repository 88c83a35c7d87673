//! Hosts modules, which answer requests: built-in modules, shared libraries, libraries in separate processes, and
//! WebAssembly.

mod lock;
pub mod module;
#[cfg(feature = "wasm")]
pub mod wasm;
