//! The call, as modules see it: typed methods over `CallHost`.

use crate::host::{CallHost, HostValue, MessageLevel, ResumeTicket, SendStatus};

/// A request while a module processes it.
pub struct Call<'a> {
    host: &'a mut dyn CallHost,
}

impl<'a> Call<'a> {
    /// Wraps the server's functions for a call.
    pub fn new(host: &'a mut dyn CallHost) -> Call<'a> {
        Call { host }
    }

    // ---- The request ----

    /// The method, for example `GET`.
    pub fn method(&self) -> String {
        self.text(HostValue::Method, "").unwrap_or_default()
    }

    /// The request target, path and query, as the client sent it.
    pub fn target(&self) -> String {
        self.text(HostValue::Target, "").unwrap_or_default()
    }

    /// The decoded path; begins with `/`, without dot segments and NUL.
    pub fn path(&self) -> String {
        self.text(HostValue::Path, "").unwrap_or_default()
    }

    /// The part of the target after `?`, as the client sent it.
    pub fn query(&self) -> Option<String> {
        self.text(HostValue::Query, "")
    }

    /// The first query parameter with this name, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.text(HostValue::Parameter, name)
    }

    /// The requested host.
    pub fn host(&self) -> String {
        self.text(HostValue::Host, "").unwrap_or_default()
    }

    /// The client's address.
    pub fn peer(&self) -> String {
        self.text(HostValue::Peer, "").unwrap_or_default()
    }

    /// The first request field with this name (case-insensitive).
    pub fn request_field(&self, name: &str) -> Option<String> {
        self.text(HostValue::Field, name)
    }

    /// The cookie with this name.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.text(HostValue::Cookie, name)
    }

    /// The module's setting with this name.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.text(HostValue::Setting, name)
    }

    /// Any value, as its bytes.
    pub fn bytes(&self, kind: HostValue, name: &str) -> Option<Vec<u8>> {
        let value = self.host.get(kind, name.as_bytes())?;
        Some(value.into_owned())
    }

    /// Any value as text, with replacement characters for invalid UTF-8.
    pub fn text(&self, kind: HostValue, name: &str) -> Option<String> {
        text_of(self.host, kind, name)
    }

    /// Takes the part of the request body that is available. After all of it has been taken, the next part arrives with
    /// an event.
    pub fn read(&mut self) -> Vec<u8> {
        self.take(0)
    }

    // ---- The response ----

    /// Sets the status, 200 to 599. The default is 200.
    pub fn status(&mut self, status: u16) -> bool {
        self.host.status(u32::from(status))
    }

    /// Adds a field. The server sets Connection, Content-Length, Date and Transfer-Encoding itself.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        self.host.field(name.as_bytes(), value.as_ref())
    }

    /// Appends bytes to the body.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> SendStatus {
        self.host.send(bytes.as_ref())
    }

    /// Appends the site's content for a decoded path, without copying it through the module. Can be called once per
    /// response, and not after [`Call::flush`].
    pub fn send_stored(&mut self, path: &str) -> bool {
        self.host.send_stored(path.as_bytes())
    }

    /// Sends the response created so far, and streams the rest. Not possible after [`Call::send_stored`].
    pub fn flush(&mut self) -> bool {
        self.host.flush()
    }

    /// Makes the response a redirect to `location`, with status 301, 302, 303, 307 or 308.
    pub fn redirect(&mut self, status: u16, location: &str) -> bool {
        self.status(status) && self.field("Location", location)
    }

    /// Permits any cache to store the response, and to reuse it for this number of seconds.
    pub fn cache(&mut self, seconds: u32) -> bool {
        self.field("Cache-Control", format!("public, max-age={}", seconds))
    }

    // ---- Timers, fetches, tickets, log ----

    /// Sets the call's timer: `CallEvent::Timer` arrives after this number of milliseconds; with 0, after the worker's
    /// other calls have had their turn. A call has only one timer, which this function resets.
    pub fn timer(&mut self, after_ms: u32) {
        self.host.timer(after_ms);
    }

    /// Starts to fetch a path of the site (`/…`) or an `http://` URL. Returns the number that `CallEvent::Fetched` will
    /// have; `None` if the target is not permitted or the call has too many fetches.
    pub fn fetch(&mut self, target: &str) -> Option<u32> {
        self.host.fetch(target.as_bytes())
    }

    /// Takes the status (0 without a response) and the content of a completed fetch.
    pub fn fetched(&mut self, number: u32) -> Option<(u16, Vec<u8>)> {
        let status = self.host.fetched(number)?;
        Some((status, self.take(number)))
    }

    /// A ticket, with which any thread or other call can resume this call.
    pub fn ticket(&mut self) -> ResumeTicket {
        self.host.ticket()
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub fn now_ms(&self) -> u64 {
        self.host.now_ms()
    }

    /// Writes a line to the server's error log.
    pub fn log(&self, level: MessageLevel, text: &str) {
        self.host.log(level, text);
    }

    fn take(&mut self, from: u32) -> Vec<u8> {
        let mut buffer = vec![0; self.host.left(from)];
        // The buffer has the available length, so a single read takes all of it.
        let len = self.host.read(from, &mut buffer);
        buffer.truncate(len);
        buffer
    }
}

/// The module's settings and the worker's number, available when the module starts.
pub struct ModuleSettings<'a> {
    host: &'a mut dyn CallHost,
}

impl<'a> ModuleSettings<'a> {
    /// Wraps the server's functions for a module that starts.
    pub fn new(host: &'a mut dyn CallHost) -> ModuleSettings<'a> {
        ModuleSettings { host }
    }

    /// The setting with this name in `[module.settings]`.
    pub fn get(&self, name: &str) -> Option<String> {
        text_of(self.host, HostValue::Setting, name)
    }

    /// The index of the worker for which the module starts.
    pub fn worker(&self) -> usize {
        let number = text_of(self.host, HostValue::Worker, "");
        number.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Writes a line to the server's error log.
    pub fn log(&self, level: MessageLevel, text: &str) {
        self.host.log(level, text);
    }
}

fn text_of(host: &dyn CallHost, kind: HostValue, name: &str) -> Option<String> {
    let value = host.get(kind, name.as_bytes())?;
    Some(match String::from_utf8_lossy(&value) {
        std::borrow::Cow::Borrowed(text) => text.to_string(),
        std::borrow::Cow::Owned(text) => text,
    })
}
