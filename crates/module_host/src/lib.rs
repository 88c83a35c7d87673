//! Handlers in modules: linked in, loaded as libraries, in processes of their own, or in WebAssembly.

mod lock;
pub mod module;
#[cfg(feature = "wasm")]
pub mod wasm;
