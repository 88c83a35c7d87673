//! The same module as `features.c`, in Rust.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use lowroad_module::{Call, Event, Level, Module, Next, Sent, Settings, What};

static GONE: AtomicU32 = AtomicU32::new(0);

pub struct Features;

impl Module for Features {
    /// Parts that were sent.
    type Memory = u32;

    fn start(settings: &mut Settings<'_>) -> Result<Features, String> {
        match settings.get("start").as_deref() {
            Some("no") => Err("I was told not to".to_string()),
            _ => Ok(Features),
        }
    }

    fn handle(&mut self, call: &mut Call<'_>, sent: &mut u32, event: Event) -> Next {
        if event == Event::Gone {
            GONE.fetch_add(1, SeqCst);
            return Next::Done;
        }
        match call.path().as_str() {
            "/echo" => return echo(call, event),
            "/fetch" => return fetch(call, event),
            "/stream" => return stream(call, sent, event),
            "/hold" => return hold(call, event),
            "/fail" => return Next::Failed,
            "/nonsense" => return Next::Failed,
            "/forever" => return Next::Wait,
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
                while call.send([0; 100_000]) == Sent::Room {}
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
        Next::Done
    }
}

fn echo(call: &mut Call<'_>, event: Event) -> Next {
    match event {
        Event::Body(_) => {
            let bytes = call.read();
            call.send(bytes);
            Next::Wait
        }
        Event::BodyEnd => Next::Done,
        _ => Next::Wait,
    }
}

fn fetch(call: &mut Call<'_>, event: Event) -> Next {
    match event {
        Event::Request => {
            let target = call.parameter("of").unwrap_or_default();
            call.fetch(&target).map_or(Next::Failed, |_| Next::Wait)
        }
        Event::Fetched(number) => {
            let (status, bytes) = call.fetched(number).expect("it is over");
            call.send((status / 100).to_string());
            call.send(bytes);
            Next::Done
        }
        _ => Next::Wait,
    }
}

fn stream(call: &mut Call<'_>, sent: &mut u32, event: Event) -> Next {
    if !matches!(event, Event::Request | Event::Room) {
        return Next::Wait;
    }
    if *sent == 0 {
        call.flush();
    }
    while *sent < 100 {
        *sent += 1;
        if call.send(vec![0; 100_000]) != Sent::Room {
            return Next::Wait;
        }
    }
    Next::Done
}

fn hold(call: &mut Call<'_>, event: Event) -> Next {
    let ticket = call.ticket();
    match event {
        Event::Request => {
            call.send(ticket.number().to_ne_bytes());
            call.flush();
            Next::Wait
        }
        Event::Continued => {
            call.send("continued");
            Next::Done
        }
        _ => Next::Wait,
    }
}

fn timer(call: &mut Call<'_>, event: Event) -> Next {
    match event {
        Event::Request => call.timer(1),
        Event::Timer => {
            call.send("late");
            return Next::Done;
        }
        _ => {}
    }
    Next::Wait
}

fn values(call: &mut Call<'_>) {
    call.log(Level::Debug, "all values");
    let all = [
        (What::Method, ""),
        (What::Target, ""),
        (What::Path, ""),
        (What::Query, ""),
        (What::Host, ""),
        (What::Peer, ""),
        (What::Field, "x-field"),
        (What::Cookie, "id"),
        (What::Parameter, "a"),
        (What::Root, ""),
        (What::Setting, "key"),
        (What::Worker, ""),
        (What::Field, "x-none"),
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
        !lowroad_module_host::module::go_on(1),
        call.fetched(1).is_none(),
        true,
    ];
    for refused in refused {
        call.send(u8::from(refused).to_string());
    }
}
