//! Handlers in modules: built in, loaded as shared libraries, in separate processes, or in WebAssembly.

mod lock;
pub mod module;
#[cfg(feature = "wasm")]
pub mod wasm;
