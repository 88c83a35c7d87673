//! The modules of a configuration: opens them, creates their handlers, and runs modules in separate processes.

#[cfg(feature = "wasm")]
mod wasm;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lowroad_child_processes::process::helper_command;
#[cfg(not(feature = "wasm"))]
use lowroad_config::{BuildFeature, MissingFeature};
use lowroad_config::{Config, ModuleCode, ModuleConfig, RouteTo};
use lowroad_module::builtin::LinkedModule;
use lowroad_module_host::module::{
    CallLimits, ModuleCatalog, ModuleHandle, open_native, open_separate, out_of_process,
};

use lowroad_privileges::hide_process;

#[cfg(feature = "wasm")]
pub use wasm::check;

use crate::handler_kinds::{HandlerKind, LabelledHandler, OpenContext, OpenedKind, RouteContext};

/// State that the modules of all configurations share.
#[derive(Default)]
pub struct ModuleRuntimes {
    #[cfg(feature = "wasm")]
    wasm: wasm::SharedWasmRuntime,
}

impl HandlerKind for ModuleRuntimes {
    fn open(
        self: Arc<Self>,
        config: &Config,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn OpenedKind>, String> {
        let linked = lowroad_builtin_modules::modules();
        let mut catalog = ModuleCatalog::default();
        for module in &config.modules {
            // A module that cannot be opened fails the start or reload.
            let handle = self.open_module(module, &linked, context)?;
            catalog.insert(&module.name, handle);
        }
        Ok(Box::new(catalog))
    }

    /// The counters of all WebAssembly modules; empty if there has never been one.
    #[cfg(feature = "wasm")]
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.wasm.counts()
    }
}

impl OpenedKind for ModuleCatalog {
    fn handler(&self, route: &RouteContext<'_>) -> Option<Result<LabelledHandler, String>> {
        let RouteTo::Module(name) = &route.rules.to else {
            return None;
        };
        let handler = self.handler(
            name,
            CallLimits::from_route(route.rules),
            route.spools.clone(),
        );
        Some(match handler {
            Some(handler) => Ok((format!("module {name}"), handler)),
            None => Err(format!("there is no module {name}")),
        })
    }

    fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        self.counts()
    }
}

impl ModuleRuntimes {
    fn open_module(
        &self,
        module: &ModuleConfig,
        linked: &[LinkedModule],
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn ModuleHandle>, String> {
        let (workers, runtime) = (context.workers, context.runtime);
        let logger = Some(context.logger.clone());
        match &module.code {
            #[cfg(feature = "wasm")]
            ModuleCode::Wasm(_) => self.wasm.open(module, workers, context.logger),
            #[cfg(not(feature = "wasm"))]
            ModuleCode::Wasm(_) => Err(format!(
                "module {}: {}",
                module.name,
                MissingFeature(BuildFeature::Wasm)
            )),
            ModuleCode::Library(_) if module.separate => {
                let host = || helper_command("module-host");
                open_separate(module, workers, logger, runtime, host)
            }
            _ => open_native(module, linked, workers, logger)?.ok_or_else(|| {
                format!(
                    "module {}: this lowroad was built without its kind",
                    module.name
                )
            }),
        }
    }
}

/// The main function of a module process: serves the module over the socket that is standard input.
///
/// # Errors
/// A text for the log.
pub fn host() -> Result<(), String> {
    // CGI programs of the same user must not be able to inspect the module's memory.
    hide_process()?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    socket
        .map(UnixStream::from)
        .and_then(out_of_process::serve)
        .map_err(|error| error.to_string())
}
