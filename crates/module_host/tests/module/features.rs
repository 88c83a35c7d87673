//! The same module as `features.c`, in Rust.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use lowroad_module::{
    Call, CallEvent, CallStep, HostValue, MessageLevel, Module, ModuleSettings, SendStatus,
};

static GONE: AtomicU32 = AtomicU32::new(0);

pub struct Features;

impl Module for Features {
    /// The number of parts sent.
    type Memory = u32;

    fn start(settings: &mut ModuleSettings<'_>) -> Result<Features, String> {
        match settings.get("start").as_deref() {
            Some("no") => Err("I was told not to".to_string()),
            _ => Ok(Features),
        }
    }

    fn handle(&mut self, call: &mut Call<'_>, sent: &mut u32, event: CallEvent) -> CallStep {
        if event == CallEvent::Gone {
            GONE.fetch_add(1, SeqCst);
            return CallStep::Done;
        }
        match call.path().as_str() {
            "/echo" => return echo(call, event),
            "/fetch" => return fetch(call, event),
            "/stream" => return stream(call, sent, event),
            "/hold" => return hold(call, event),
            "/fail" => return CallStep::Failed,
            "/nonsense" => return CallStep::Failed,
            "/forever" => return CallStep::Wait,
            "/timer" => return timer(call, event),
            "/stored" => {
                call.send("before ");
                call.send_stored("/page.html");
                call.send(" after");
            }
            "/redirect" => drop(call.redirect(303, "/elsewhere")),
            "/cache" => drop(call.cache(3600)),
            "/values" => values(call),
            "/refused" => refused(call),
            "/long" => {
                while call.send([0; 100_000]) == SendStatus::Room {}
                call.send("1");
            }
            "/gone" => drop(call.send(GONE.load(SeqCst).to_string())),
            "/version" => drop(call.send("1")),
            _ => {
                call.status(404);
                call.field("Content-Type", "text/plain");
                call.send("nothing here\n");
            }
        }
        CallStep::Done
    }
}

fn echo(call: &mut Call<'_>, event: CallEvent) -> CallStep {
    match event {
        CallEvent::Body(_) => {
            let bytes = call.read();
            call.send(bytes);
            CallStep::Wait
        }
        CallEvent::BodyEnd => CallStep::Done,
        _ => CallStep::Wait,
    }
}

fn fetch(call: &mut Call<'_>, event: CallEvent) -> CallStep {
    match event {
        CallEvent::Request => {
            let target = call.parameter("of").unwrap_or_default();
            call.fetch(&target)
                .map_or(CallStep::Failed, |_| CallStep::Wait)
        }
        CallEvent::Fetched(number) => {
            let (status, bytes) = call.fetched(number).expect("it is over");
            call.send((status / 100).to_string());
            call.send(bytes);
            CallStep::Done
        }
        _ => CallStep::Wait,
    }
}

fn stream(call: &mut Call<'_>, sent: &mut u32, event: CallEvent) -> CallStep {
    if !matches!(event, CallEvent::Request | CallEvent::Room) {
        return CallStep::Wait;
    }
    if *sent == 0 {
        call.flush();
    }
    while *sent < 100 {
        *sent += 1;
        if call.send(vec![0; 100_000]) != SendStatus::Room {
            return CallStep::Wait;
        }
    }
    CallStep::Done
}

fn hold(call: &mut Call<'_>, event: CallEvent) -> CallStep {
    let ticket = call.ticket();
    match event {
        CallEvent::Request => {
            call.send(ticket.number().to_ne_bytes());
            call.flush();
            CallStep::Wait
        }
        CallEvent::Continued => {
            call.send("continued");
            CallStep::Done
        }
        _ => CallStep::Wait,
    }
}

fn timer(call: &mut Call<'_>, event: CallEvent) -> CallStep {
    match event {
        CallEvent::Request => call.timer(1),
        CallEvent::Timer => {
            call.send("late");
            return CallStep::Done;
        }
        _ => {}
    }
    CallStep::Wait
}

fn values(call: &mut Call<'_>) {
    call.log(MessageLevel::Debug, "all values");
    let all = [
        (HostValue::Method, ""),
        (HostValue::Target, ""),
        (HostValue::Path, ""),
        (HostValue::Query, ""),
        (HostValue::Host, ""),
        (HostValue::Peer, ""),
        (HostValue::Field, "x-field"),
        (HostValue::Cookie, "id"),
        (HostValue::Parameter, "a"),
        (HostValue::Root, ""),
        (HostValue::Setting, "key"),
        (HostValue::Worker, ""),
        (HostValue::Field, "x-none"),
    ];
    for (what, name) in all {
        let value = call.text(what, name).unwrap_or_else(|| "none".to_string());
        call.send(value + "\n");
    }
}

fn refused(call: &mut Call<'_>) {
    let refused = [
        !call.status(99),
        !call.field("X", "a\r\nY: b"),
        call.fetch("/../etc/passwd").is_none(),
        !call.send_stored("page.html"),
        !lowroad_module_host::module::resume_call(1),
        call.fetched(1).is_none(),
        true,
    ];
    for refused in refused {
        call.send(u8::from(refused).to_string());
    }
}
