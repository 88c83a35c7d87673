//! Greets: `GET /hello?name=You`. The whole of a module, with its test.

use lowroad_module::{Call, CallEvent, CallStep, Module, ModuleSettings};

/// What a worker keeps.
pub struct Hello {
    greeting: String,
}

impl Module for Hello {
    type Memory = ();

    fn start(settings: &mut ModuleSettings<'_>) -> Result<Hello, String> {
        let greeting = settings.get("greeting").unwrap_or_else(|| "Hi".to_string());
        Ok(Hello { greeting })
    }

    fn handle(&mut self, call: &mut Call<'_>, _: &mut (), _: CallEvent) -> CallStep {
        let name = call
            .parameter("name")
            .unwrap_or_else(|| "world".to_string());
        call.field("Content-Type", "text/plain; charset=utf-8");
        call.send(&self.greeting);
        call.send(", ");
        call.send(name);
        call.send("!\n");
        CallStep::Done
    }
}

#[cfg(feature = "entries")]
lowroad_module::export!(Hello);

#[cfg(test)]
mod tests {
    use super::Hello;
    use lowroad_module::testing::get;

    #[test]
    fn it_greets_by_name() {
        let request = get("/hello?name=J%C3%B6rg").setting("greeting", "Good day");
        let response = request.run::<Hello>().expect("it answers");
        assert_eq!(response.text(), "Good day, Jörg!\n");
    }
}
