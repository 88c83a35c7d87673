//! A module that greets, as WebAssembly. The same source makes a shared library.

use lowroad_module::{Call, Event, Module, Next, Settings};

struct Hello;

impl Module for Hello {
    type Memory = ();

    fn start(_: &mut Settings<'_>) -> Result<Hello, String> {
        Ok(Hello)
    }

    fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: Event) -> Next {
        let name = call.parameter("name");
        call.field("Content-Type", "text/plain; charset=utf-8");
        call.send("Hello, ");
        call.send(name.as_deref().unwrap_or("World"));
        call.send(", from Rust\n");
        Next::Done
    }
}

lowroad_module::export!(Hello);
