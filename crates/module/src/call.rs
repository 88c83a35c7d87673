//! The call as modules see it: [`Host`] in comfortable words.

use crate::host::{Host, Level, Sent, Ticket, What};

/// A request being answered.
pub struct Call<'a> {
    host: &'a mut dyn Host,
}

impl<'a> Call<'a> {
    /// A call over what the server offers.
    pub fn new(host: &'a mut dyn Host) -> Call<'a> {
        Call { host }
    }

    // ---- The request ----

    /// The method: `GET`.
    pub fn method(&self) -> String {
        self.text(What::Method, "").unwrap_or_default()
    }

    /// Path and query as they were sent.
    pub fn target(&self) -> String {
        self.text(What::Target, "").unwrap_or_default()
    }

    /// The decoded path; begins with `/`, has no dot segments and no NUL.
    pub fn path(&self) -> String {
        self.text(What::Path, "").unwrap_or_default()
    }

    /// What follows the target's `?`, as it was sent.
    pub fn query(&self) -> Option<String> {
        self.text(What::Query, "")
    }

    /// The first parameter of the query with this name, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.text(What::Parameter, name)
    }

    /// The host that the client asked for.
    pub fn host(&self) -> String {
        self.text(What::Host, "").unwrap_or_default()
    }

    /// The client's address.
    pub fn peer(&self) -> String {
        self.text(What::Peer, "").unwrap_or_default()
    }

    /// The first request field with this name, in any case.
    pub fn request_field(&self, name: &str) -> Option<String> {
        self.text(What::Field, name)
    }

    /// The cookie with this name.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.text(What::Cookie, name)
    }

    /// The module's setting with this name.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.text(What::Setting, name)
    }

    /// Any value, as its bytes.
    pub fn bytes(&self, what: What, name: &str) -> Option<Vec<u8>> {
        let value = self.host.get(what, name.as_bytes())?;
        Some(value.into_owned())
    }

    /// Any value as text; what is not UTF-8 in it is replaced.
    pub fn text(&self, what: What, name: &str) -> Option<String> {
        text_of(self.host, what, name)
    }

    /// Takes what of the request's body is at hand. More comes, with a new event, only when all of
    /// it was taken.
    pub fn read(&mut self) -> Vec<u8> {
        self.take(0)
    }

    // ---- The response ----

    /// Sets the status, 200 to 599. It is 200 unless this is called.
    pub fn status(&mut self, status: u16) -> bool {
        self.host.status(u32::from(status))
    }

    /// Adds a field. Connection, Content-Length, Date and Transfer-Encoding are the server's.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        self.host.field(name.as_bytes(), value.as_ref())
    }

    /// Appends to the body.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Sent {
        self.host.send(bytes.as_ref())
    }

    /// Appends what the site has for a decoded path; it does not pass through the module. Once in a
    /// response, and not after [`Call::flush`].
    pub fn send_stored(&mut self, path: &str) -> bool {
        self.host.send_stored(path.as_bytes())
    }

    /// Sends what is there so far; from now on the response is a stream. Not after
    /// [`Call::send_stored`].
    pub fn flush(&mut self) -> bool {
        self.host.flush()
    }

    /// Makes the response a redirect: 301, 302, 303, 307 or 308, and where to.
    pub fn redirect(&mut self, status: u16, location: &str) -> bool {
        self.status(status) && self.field("Location", location)
    }

    /// Anybody may store the response and use it for this request for so many seconds.
    pub fn cache(&mut self, seconds: u32) -> bool {
        self.field("Cache-Control", format!("public, max-age={}", seconds))
    }

    // ---- Time, other sources, other threads ----

    /// [`crate::Event::Timer`] comes after so many milliseconds; 0: as soon as others had their
    /// turn. A call has one timer: this sets it anew.
    pub fn timer(&mut self, after_ms: u32) {
        self.host.timer(after_ms);
    }

    /// Begins to get what the site has for a path (`/…`), or an `http://` URL. Gives the number that
    /// [`crate::Event::Fetched`] will bring; `None` if too much is being fetched.
    pub fn fetch(&mut self, target: &str) -> Option<u32> {
        self.host.fetch(target.as_bytes())
    }

    /// A fetch that is over: its status (0: there was no answer) and its bytes, which are taken.
    pub fn fetched(&mut self, number: u32) -> Option<(u16, Vec<u8>)> {
        let status = self.host.fetched(number)?;
        Some((status, self.take(number)))
    }

    /// With it, any thread and any other call can have this call continued.
    pub fn ticket(&mut self) -> Ticket {
        self.host.ticket()
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.host.now_ms()
    }

    /// Writes a line to the server's error log.
    pub fn log(&self, level: Level, text: &str) {
        self.host.log(level, text);
    }

    fn take(&mut self, from: u32) -> Vec<u8> {
        let mut taken = vec![0; self.host.left(from)];
        let len = self.host.read(from, &mut taken);
        taken.truncate(len);
        taken
    }
}

/// What a module is told at its start.
pub struct Settings<'a> {
    host: &'a mut dyn Host,
}

impl<'a> Settings<'a> {
    /// Settings that the server offers.
    pub fn new(host: &'a mut dyn Host) -> Settings<'a> {
        Settings { host }
    }

    /// The setting with this name: `[module.settings]`.
    pub fn get(&self, name: &str) -> Option<String> {
        text_of(self.host, What::Setting, name)
    }

    /// The number of the worker that it starts for.
    pub fn worker(&self) -> usize {
        let number = text_of(self.host, What::Worker, "");
        number.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Writes a line to the server's error log.
    pub fn log(&self, level: Level, text: &str) {
        self.host.log(level, text);
    }
}

fn text_of(host: &dyn Host, what: What, name: &str) -> Option<String> {
    let value = host.get(what, name.as_bytes())?;
    Some(match String::from_utf8_lossy(&value) {
        std::borrow::Cow::Borrowed(text) => text.to_string(),
        std::borrow::Cow::Owned(text) => text,
    })
}
