//! Converts a program's output to a response: the head, then the body, limited to the declared length.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamClosed, stream};
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{HandlerFailure, HandlerResponse, ResponseContent, ResponseFields};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;

use super::{CgiHead, HeadLimits, OutputForm, read};

/// The size of the buffer between the program and the client.
const BUFFER_LEN_MAX: usize = 64 << 10;

/// A program's output up to the end of the head, and the body bytes received with it.
pub struct CgiReply {
    /// The script's file, for messages.
    script_file: Arc<Path>,
    form: OutputForm,
    limits: HeadLimits,
    method: Method,
    output: Vec<u8>,
    lines_len: usize,
    head: Option<(CgiHead, usize)>,
}

impl CgiReply {
    /// Creates a reply without output, to a request with `method`.
    pub fn new(
        script_file: Arc<Path>,
        form: OutputForm,
        limits: HeadLimits,
        method: Method,
    ) -> CgiReply {
        CgiReply {
            script_file,
            form,
            limits,
            method,
            output: Vec::new(),
            lines_len: 0,
            head: None,
        }
    }

    /// The buffer to append output to; call [`CgiReply::parse_head`] afterwards.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Parses the output so far; returns whether the head is complete.
    ///
    /// # Errors
    /// 502 if the head is invalid.
    pub fn parse_head(&mut self) -> Result<bool, HandlerFailure> {
        if self.head.is_none() {
            self.head = read(&self.output, &mut self.lines_len, self.form, self.limits)
                .map_err(|bad| self.failure(&bad.0))?;
        }
        Ok(self.head.is_some())
    }

    /// The script's file.
    pub fn script_file(&self) -> &Arc<Path> {
        &self.script_file
    }

    /// The number of body bytes received.
    pub fn body_len(&self) -> usize {
        self.head
            .as_ref()
            .map_or(0, |(_, body_offset)| self.output.len() - body_offset)
    }

    /// Whether the response may be stored for other requests, according to its head, and has a body.
    pub fn may_be_stored(&self) -> bool {
        let head = self.head.as_ref().map(|(head, _)| head);
        head.is_some_and(|head| !is_bodiless(self.method, head.status) && has_lifetime(head))
    }

    /// Returns the complete response; called at the end of the output.
    ///
    /// # Errors
    /// 502 if there is no head, or if the body is shorter than declared.
    pub fn finish(mut self) -> Result<HandlerResponse, HandlerFailure> {
        let Some((head, body_offset)) = self.head.take() else {
            let sent = self.output.len();
            let start = self.output.get(..80).unwrap_or(&self.output).escape_ascii();
            return Err(self.failure(&format!(
                "ended without a head, after {sent} bytes: {start}"
            )));
        };
        if let Some(target) = head.redirect_target {
            return Ok(local_redirect(target));
        }
        let body = Bytes::from(self.output).slice(body_offset..);
        let len = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if is_bodiless(self.method, head.status) {
            // A program may omit the body for HEAD (RFC 9110 §9.3.2), so the length of an empty body is not that for
            // GET.
            let len = head.len.or(Some(len).filter(|len| *len > 0));
            return Ok(empty(head.status, head.fields, len));
        }
        let body = match head.len {
            // Nothing was sent yet, so the client gets a 502 rather than a truncated response.
            Some(declared_len) if declared_len > len => {
                let detail = format!(
                    "{} sent only {len} of {declared_len} bytes",
                    self.script_file.display()
                );
                return Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail));
            }
            // Bytes beyond Content-Length are dropped: a client would read them as the next response.
            Some(declared_len) => body.slice(..usize::try_from(declared_len).unwrap_or(body.len())),
            None => body,
        };
        Ok(HandlerResponse {
            status: head.status,
            fields: head.fields,
            content: ResponseContent::Bytes(body),
            source: None,
        })
    }

    /// Returns the response with the body so far, and the sink for the remaining body.
    ///
    /// # Panics
    /// If the head is incomplete.
    pub fn stream(mut self) -> (HandlerResponse, BodyRemainder) {
        let (head, body_offset) = self.head.take().expect("a head that was seen");
        let is_local = head.redirect_target.is_some();
        // The remaining output is read and discarded, so that the program can finish.
        if is_local || is_bodiless(self.method, head.status) {
            let rest = BodyRemainder {
                script_file: self.script_file,
                sender: None,
                remaining: None,
            };
            let response = match head.redirect_target {
                Some(target) => local_redirect(target),
                None => empty(head.status, head.fields, head.len),
            };
            return (response, rest);
        }
        let (sender, receiver) = stream(BUFFER_LEN_MAX);
        let mut rest = BodyRemainder {
            script_file: self.script_file,
            sender: Some(sender),
            remaining: head.len,
        };
        let body = Bytes::from(self.output).slice(body_offset..);
        rest.push(body).expect("the receiver is here");
        let response = streamed(head.status, head.fields, head.len, receiver);
        (response, rest)
    }

    fn failure(&self, problem: &str) -> HandlerFailure {
        HandlerFailure::new(
            StatusCode::BAD_GATEWAY,
            format!("{} {problem}", self.script_file.display()),
        )
    }
}

/// The sink for the remaining body. Dropping it without [`BodyRemainder::end`] truncates the response.
pub struct BodyRemainder {
    script_file: Arc<Path>,
    /// `None` if the response has no body: the output is then discarded.
    sender: Option<BodySender>,
    remaining: Option<u64>,
}

impl BodyRemainder {
    /// Sends bytes; those beyond the declared length are dropped. Returns whether the buffer has room for more.
    ///
    /// # Errors
    /// [`StreamClosed`] if the client has disconnected.
    pub fn push(&mut self, mut bytes: Bytes) -> Result<bool, StreamClosed> {
        let Some(sender) = &self.sender else {
            return Ok(true);
        };
        if let Some(remaining) = &mut self.remaining {
            // Bytes beyond the declared length are dropped, as in `finish`.
            bytes.truncate(usize::try_from(*remaining).unwrap_or(usize::MAX));
            *remaining -= u64::try_from(bytes.len()).unwrap_or(*remaining);
        }
        sender.push(bytes)
    }

    /// From now on, buffers the remaining body in a spool.
    pub fn spool(&mut self, spools: &Arc<SpoolLimits>, executor: &ResponseExecutor) {
        let wrap = |client| spools.spool_for(client, executor);
        self.sender = self.sender.take().map(wrap);
    }

    /// Waits until the buffer has room.
    ///
    /// # Errors
    /// [`StreamClosed`] if the client has disconnected.
    pub async fn room(&self) -> Result<(), StreamClosed> {
        match &self.sender {
            Some(sender) => std::future::poll_fn(|context| sender.poll_room(context)).await,
            None => Ok(()),
        }
    }

    /// The script's file.
    pub fn script_file(&self) -> &Arc<Path> {
        &self.script_file
    }

    /// Ends the body. If bytes are missing, the response is truncated.
    ///
    /// # Errors
    /// The number of missing bytes.
    pub fn end(self) -> Result<(), u64> {
        match (self.remaining, self.sender) {
            // The sender is dropped, which truncates the response, so that the client notices.
            (Some(missing @ 1..), _) => Err(missing),
            (_, Some(sender)) => {
                sender.end();
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }
}

/// Whether a head contains a freshness lifetime and does not forbid storing. This is an approximation, for deciding
/// whether to wait for the complete response.
fn has_lifetime(head: &CgiHead) -> bool {
    let mut lifetime = false;
    if !head.fields.has_lifetime() {
        return false;
    }
    for (name, value) in head.fields.iter() {
        lifetime |= name.eq_ignore_ascii_case("expires");
        if !name.eq_ignore_ascii_case("cache-control") {
            continue;
        }
        for directive in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            let name = directive.split(|b| *b == b'=').next().unwrap_or_default();
            let is = |directive_name: &&[u8]| name.eq_ignore_ascii_case(directive_name);
            // A shared cache must not reuse the response, regardless of its lifetime: waiting would be useless.
            if [&b"no-store"[..], b"no-cache", b"private"].iter().any(is) {
                return false;
            }
            lifetime |= [&b"max-age"[..], b"s-maxage"].iter().any(is);
        }
    }
    lifetime
}

/// Whether a response has no body (RFC 9110 §6.4.1).
fn is_bodiless(method: Method, status: StatusCode) -> bool {
    method == Method::Head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

/// A local redirect to a path of this site.
fn local_redirect(target: Vec<u8>) -> HandlerResponse {
    HandlerResponse {
        status: StatusCode::FOUND,
        fields: ResponseFields::new(),
        content: ResponseContent::LocalRedirect(target),
        source: None,
    }
}

/// A response without a body; `len` is the length that the body of a GET response would have.
fn empty(status: StatusCode, fields: ResponseFields, len: Option<u64>) -> HandlerResponse {
    let (sender, receiver) = stream(1);
    sender.end();
    streamed(status, fields, len, receiver)
}

fn streamed(
    status: StatusCode,
    fields: ResponseFields,
    len: Option<u64>,
    stream: BodyReceiver,
) -> HandlerResponse {
    HandlerResponse {
        status,
        fields,
        content: ResponseContent::Stream { len, stream },
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        len_max: 64 << 10,
        fields_max: 256,
    };

    fn reply(method: Method, output: &str) -> CgiReply {
        let mut reply = CgiReply::new(Arc::from(Path::new("a")), OutputForm::Cgi, LIMITS, method);
        reply.output().extend_from_slice(output.as_bytes());
        assert!(reply.parse_head().expect("a good head"));
        reply
    }

    #[test]
    fn head_response_length_is_that_of_get_or_unknown() {
        for (output, want) in [
            ("Status: 200\n\n", None),
            ("Status: 200\n\nhello", Some(5)),
            ("Status: 200\nContent-Length: 7\n\n", Some(7)),
            ("Status: 200\nContent-Length: 0\n\n", Some(0)),
        ] {
            let response = reply(Method::Head, output).finish().expect("a response");
            let ResponseContent::Stream { len, .. } = response.content else {
                panic!("{output:?}: bytes");
            };
            assert_eq!(len, want, "{output:?}");
        }
    }

    #[test]
    fn content_length_is_ignored_for_internal_redirects() {
        // Frameworks leave the Content-Length of the original body in the head.
        for field in ["X-Sendfile: /a", "x-accel-redirect: /a"] {
            let output = format!("Status: 200\nContent-Length: 7\n{field}\n\n");
            assert!(reply(Method::Get, &output).finish().is_ok(), "{field}");
            let (_, rest) = reply(Method::Get, &output).stream();
            assert_eq!(rest.end(), Ok(()), "{field}");
        }
        let cut = reply(Method::Get, "Status: 200\nContent-Length: 7\n\n");
        assert!(cut.finish().is_err());
    }

    #[test]
    fn only_cacheable_responses_with_lifetime_are_collected() {
        for (fields, want) in [
            ("X: 1", false),
            ("Cache-Control: max-age=60", true),
            ("cache-control: public, s-maxage=60", true),
            ("Expires: Sun, 06 Nov 2094 08:49:37 GMT", true),
            ("Cache-Control: private, max-age=60", false),
            (
                "Expires: Thu, 19 Nov 1981 08:52:00 GMT\nCache-Control: no-store",
                false,
            ),
            ("Cache-Control: no-cache", false),
        ] {
            let output = format!("Status: 200\n{fields}\n\n");
            assert_eq!(
                reply(Method::Get, &output).may_be_stored(),
                want,
                "{fields}"
            );
            assert!(!reply(Method::Head, &output).may_be_stored(), "{fields}");
        }
    }
}
