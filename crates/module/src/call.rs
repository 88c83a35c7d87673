//! The call as modules use it: typed convenience methods over `CallHost`.

use crate::host::{CallHost, HostValue, MessageLevel, ResumeTicket, SendStatus};

/// A request being answered.
pub struct Call<'a> {
    host: &'a mut dyn CallHost,
}

impl<'a> Call<'a> {
    /// A call over the server's functions.
    pub fn new(host: &'a mut dyn CallHost) -> Call<'a> {
        Call { host }
    }

    // ---- The request ----

    /// The method: `GET`.
    pub fn method(&self) -> String {
        self.text(HostValue::Method, "").unwrap_or_default()
    }

    /// Path and query as the client sent them.
    pub fn target(&self) -> String {
        self.text(HostValue::Target, "").unwrap_or_default()
    }

    /// The decoded path; begins with `/`, has no dot segments and no NUL.
    pub fn path(&self) -> String {
        self.text(HostValue::Path, "").unwrap_or_default()
    }

    /// The part of the target after `?`, as the client sent it.
    pub fn query(&self) -> Option<String> {
        self.text(HostValue::Query, "")
    }

    /// The first parameter of the query with this name, decoded.
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

    /// The first request field with this name, in any case.
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

    /// Takes the available part of the request's body. The next part arrives, with an event, after all of this one
    /// was taken.
    pub fn read(&mut self) -> Vec<u8> {
        self.take(0)
    }

    // ---- The response ----

    /// Sets the status, 200 to 599. It is 200 unless this is called.
    pub fn status(&mut self, status: u16) -> bool {
        self.host.status(u32::from(status))
    }

    /// Adds a field. The server sets Connection, Content-Length, Date and Transfer-Encoding itself.
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) -> bool {
        self.host.field(name.as_bytes(), value.as_ref())
    }

    /// Appends to the body.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> SendStatus {
        self.host.send(bytes.as_ref())
    }

    /// Appends the site's content for a decoded path, without copying it through the module. At most once in a
    /// response, and not after [`Call::flush`].
    pub fn send_stored(&mut self, path: &str) -> bool {
        self.host.send_stored(path.as_bytes())
    }

    /// Sends the response made so far and streams the rest. Not after [`Call::send_stored`].
    pub fn flush(&mut self) -> bool {
        self.host.flush()
    }

    /// Makes the response a redirect to `location`: status 301, 302, 303, 307 or 308.
    pub fn redirect(&mut self, status: u16, location: &str) -> bool {
        self.status(status) && self.field("Location", location)
    }

    /// Allows any cache to store the response and to reuse it for this many seconds.
    pub fn cache(&mut self, seconds: u32) -> bool {
        self.field("Cache-Control", format!("public, max-age={}", seconds))
    }

    // ---- Time, other sources, other threads ----

    /// Sets the call's timer: `CallEvent::Timer` arrives after this many milliseconds; with 0, after the worker's other
    /// calls had their turn. A call has one timer, which this resets.
    pub fn timer(&mut self, after_ms: u32) {
        self.host.timer(after_ms);
    }

    /// Starts to fetch a path of the site (`/…`) or an `http://` URL. Returns the number that `CallEvent::Fetched`
    /// will carry; `None` if too many fetches are in progress.
    pub fn fetch(&mut self, target: &str) -> Option<u32> {
        self.host.fetch(target.as_bytes())
    }

    /// Takes the status (0 without an answer) and the bytes of a completed fetch.
    pub fn fetched(&mut self, number: u32) -> Option<(u16, Vec<u8>)> {
        let status = self.host.fetched(number)?;
        Some((status, self.take(number)))
    }

    /// A ticket, with which any thread and any other call can resume this call.
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
        // The available length comes first, so that one read takes all of it.
        let len = self.host.read(from, &mut buffer);
        buffer.truncate(len);
        buffer
    }
}

/// The data available to a module when it starts.
pub struct ModuleSettings<'a> {
    host: &'a mut dyn CallHost,
}

impl<'a> ModuleSettings<'a> {
    /// Settings over the server's functions.
    pub fn new(host: &'a mut dyn CallHost) -> ModuleSettings<'a> {
        ModuleSettings { host }
    }

    /// The setting of this name in `[module.settings]`.
    pub fn get(&self, name: &str) -> Option<String> {
        text_of(self.host, HostValue::Setting, name)
    }

    /// The number of the worker that starts the module.
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
