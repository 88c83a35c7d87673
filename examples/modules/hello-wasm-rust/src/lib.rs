//! A module that greets, as WebAssembly. The same source makes a shared library.

use lowroad_module::{Call, CallEvent, CallStep, Module, ModuleSettings};

struct Hello;

impl Module for Hello {
    type Memory = ();

    fn start(_: &mut ModuleSettings<'_>) -> Result<Hello, String> {
        Ok(Hello)
    }

    fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: CallEvent) -> CallStep {
        let name = call.parameter("name");
        call.field("Content-Type", "text/plain; charset=utf-8");
        call.send("Hello, ");
        call.send(name.as_deref().unwrap_or("World"));
        call.send(", from Rust\n");
        CallStep::Done
    }
}

lowroad_module::export!(Hello);
