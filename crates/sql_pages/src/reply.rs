//! The head of a page's response: status, fields, cookies and caching. All values are validated, so that none can
//! inject further fields.

use std::fmt::Write;

use lowroad_handler::fields::is_token;
use lowroad_handler::{HandlerResponse, ResponseContent, ResponseFields};
use lowroad_http::status::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Characters that are percent-encoded in cookie values: those that RFC 6265 §4.1.1 excludes, and `%`.
const COOKIE_ESCAPES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b',')
    .add(b';')
    .add(b'\\');

/// Characters that are percent-encoded in URLs.
const URL_ESCAPES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The head of a page's response.
#[derive(Debug, Default)]
pub struct PageResponseHead {
    status: Option<StatusCode>,
    fields: Vec<(String, String)>,
    cookies: Vec<String>,
    caching: Option<ReplyCaching>,
    /// Whether the page contains a CSRF token, which is bound to one client.
    pub has_token: bool,
}

#[derive(Debug)]
struct ReplyCaching {
    seconds: u64,
    tags: Vec<String>,
}

/// A cookie to set.
pub struct SetCookie<'a> {
    /// The name, a token (RFC 9110 §5.6.2).
    pub name: &'a str,
    /// The value, any text.
    pub value: &'a str,
    /// The lifetime in seconds; `None`: until the browser is closed.
    pub max_age: Option<i64>,
    /// The path; must begin with `/`.
    pub path: &'a str,
    /// `Lax`, `Strict` or `None`.
    pub same_site: &'a str,
    /// Whether scripts cannot read the cookie.
    pub http_only: bool,
    /// Whether the cookie is sent over TLS only.
    pub secure: bool,
}

impl PageResponseHead {
    /// Sets the status.
    pub fn status(&mut self, code: u16) -> Result<(), String> {
        // 1xx are interim responses, which a page cannot send.
        let status = StatusCode::new(code).filter(|status| (200..600).contains(&status.code()));
        self.status = Some(status.ok_or(format!("{code} is not a valid response status"))?);
        Ok(())
    }

    /// Sets a field, replacing a previous field with the same name.
    pub fn field(&mut self, name: &str, value: &str) -> Result<(), String> {
        // These fields are set by the server or by `cookie()`.
        const RESERVED_FIELDS: &[&str] = &[
            "set-cookie",
            "content-length",
            "connection",
            "transfer-encoding",
        ];
        if !is_token(name.as_bytes()) {
            return Err(format!("{name:?} is not a valid field name"));
        }
        if RESERVED_FIELDS
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other))
        {
            return Err(format!("a page can't set {name}; use cookie() for cookies"));
        }
        // A line break would start another field.
        if value
            .bytes()
            .any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f)
        {
            return Err(format!("the value of {name} contains control characters"));
        }
        // A name has one value: a repeated call replaces it.
        self.fields
            .retain(|(field_name, _)| !field_name.eq_ignore_ascii_case(name));
        self.fields.push((name.into(), value.trim().into()));
        Ok(())
    }

    /// Redirects the client; to another site only if `outside` is set.
    pub fn redirect(&mut self, target: &str, code: u16, outside: bool) -> Result<(), String> {
        let mut target_bytes = target.bytes();
        // Browsers interpret `//` and `/\` as the start of a host (open redirect).
        let is_inside =
            target_bytes.next() == Some(b'/') && !matches!(target_bytes.next(), Some(b'/' | b'\\'));
        if !is_inside && !outside {
            return Err(
                "redirect() requires a path of this site that begins with /; write redirect(url, \
                 outside=true) for another site"
                    .into(),
            );
        }
        if !(300..400).contains(&code) {
            return Err(format!("{code} is not a redirect status"));
        }
        self.status(code)?;
        // The target is encoded, since pages often build it from client data.
        self.field(
            "Location",
            &utf8_percent_encode(target, URL_ESCAPES).to_string(),
        )
    }

    /// Sets a cookie.
    pub fn cookie(&mut self, cookie: &SetCookie<'_>) -> Result<(), String> {
        if !is_token(cookie.name.as_bytes()) {
            return Err(format!("{:?} is not a valid cookie name", cookie.name));
        }
        if !["Lax", "Strict", "None"].contains(&cookie.same_site) {
            return Err("same_site must be \"Lax\", \"Strict\" or \"None\"".into());
        }
        let is_path = |byte: u8| byte.is_ascii_graphic() && byte != b';';
        if !cookie.path.starts_with('/') || !cookie.path.bytes().all(is_path) {
            return Err("path must begin with / and must not contain ;".into());
        }
        // The value is encoded, so that any text can be stored; `form::cookies` decodes it.
        let value = utf8_percent_encode(cookie.value, COOKIE_ESCAPES);
        let mut line = format!("{}={value}; Path={}", cookie.name, cookie.path);
        if let Some(seconds) = cookie.max_age {
            let _ = write!(line, "; Max-Age={seconds}");
        }
        let _ = write!(line, "; SameSite={}", cookie.same_site);
        if cookie.http_only {
            line.push_str("; HttpOnly");
        }
        // Browsers reject SameSite=None without Secure.
        if cookie.secure || cookie.same_site == "None" {
            line.push_str("; Secure");
        }
        self.cookies.push(line);
        Ok(())
    }

    /// Permits caching for `seconds`; `tags` can be purged.
    pub fn set_caching(&mut self, seconds: u64, tags: Vec<String>) -> Result<(), String> {
        if let Some(tag) = tags.iter().find(|tag| !is_tag(tag)) {
            return Err(format!(
                "{tag:?} is not a valid tag: 1 to 128 visible ASCII characters, no comma"
            ));
        }
        self.caching = Some(ReplyCaching { seconds, tags });
        Ok(())
    }

    /// Builds the response, or returns the reason for which it is invalid. `personal`: the text depends on data of this
    /// client. `safe`: the request's method is safe, so the response may be cached.
    pub fn response(
        mut self,
        text: Vec<u8>,
        personal: bool,
        safe: bool,
    ) -> Result<HandlerResponse, String> {
        if self.caching.is_some() && (self.has_token || !self.cookies.is_empty()) {
            return Err(
                "the page calls cache(), but contains a form token or sets a cookie, which all \
                 clients would receive; remove one of them"
                    .into(),
            );
        }
        if !self.has("Content-Type") {
            self.field("Content-Type", "text/html; charset=utf-8")?;
        }
        // Cache-Control is always set: without it, caches may use a heuristic lifetime (RFC 9111 §4.2.2).
        let control = self.cache_control(personal, safe);
        self.field("Cache-Control", &control)?;
        if let Some(caching) = self
            .caching
            .take()
            // The tags of a response that is not cached would have no effect.
            .filter(|caching| safe && !caching.tags.is_empty())
        {
            self.field("Cache-Tag", &caching.tags.join(", "))?;
        }
        let page_fields = self.fields.iter().map(|(name, value)| (&**name, value));
        let cookies = self.cookies.iter().map(|line| ("Set-Cookie", line));
        let fields = page_fields.chain(cookies);
        Ok(HandlerResponse {
            status: self.status.unwrap_or(StatusCode::OK),
            fields: fields
                .map(|(name, value)| (name, value.as_bytes()))
                .collect(),
            content: ResponseContent::Bytes(text.into()),
            source: None,
        })
    }

    /// The value of Cache-Control. Shared caches must not store a personal response, even if the page permits it.
    fn cache_control(&self, personal: bool, safe: bool) -> String {
        let page_value = self.field_value("Cache-Control");
        match &self.caching {
            // This arm is first: a page cannot make a response with a token or cookie cacheable.
            _ if self.has_token || !self.cookies.is_empty() => "private, no-store".into(),
            _ if page_value.is_some() && personal => private(page_value.unwrap_or_default()),
            _ if page_value.is_some() => page_value.unwrap_or_default().into(),
            Some(caching) if safe && personal => format!("private, max-age={}", caching.seconds),
            Some(caching) if safe => format!("max-age={}", caching.seconds),
            _ if personal => "private, no-cache".into(),
            _ => "no-cache".into(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.field_value(name).is_some()
    }

    /// The value that the page has set for a field.
    fn field_value(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field_name, _)| field_name.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }
}

/// Whether these fields permit caches to reuse the response without validation.
pub fn may_be_stored(fields: &ResponseFields) -> bool {
    let allows_reuse = |(name, value): (&str, &[u8])| match name.to_ascii_lowercase() {
        // The two values are the defaults of `cache_control`, which require validation.
        name if name == "cache-control" => !matches!(value, b"no-cache" | b"private, no-cache"),
        name => name.ends_with("cache-control") || name == "expires",
    };
    fields.iter().any(allows_reuse)
}

/// Restricts a Cache-Control value to private caches: removes the directives for shared caches and adds `private`.
fn private(cache_control: &str) -> String {
    let is_for_shared_caches = |directive: &&str| {
        let name = directive.split(['=', ' ']).next().unwrap_or_default();
        ["public", "s-maxage", "private"]
            .iter()
            .any(|listed| name.eq_ignore_ascii_case(listed))
    };
    let directives = cache_control.split(',').map(str::trim);
    let retained = directives.filter(|it| !it.is_empty() && !is_for_shared_caches(it));
    let all: Vec<_> = std::iter::once("private").chain(retained).collect();
    all.join(", ")
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(response: &HandlerResponse, name: &str) -> Option<String> {
        let found = response.fields.values(name).next()?;
        Some(String::from_utf8_lossy(found).into_owned())
    }

    fn cookie(value: &str) -> SetCookie<'_> {
        SetCookie {
            name: "a",
            value,
            max_age: Some(60),
            path: "/",
            same_site: "Lax",
            http_only: true,
            secure: false,
        }
    }

    #[test]
    fn values_cannot_inject_fields() {
        let mut reply = PageResponseHead::default();
        assert!(reply.field("X-A", "b\r\nSet-Cookie: c=d").is_err());
        assert!(reply.field("X A", "b").is_err());
        assert!(reply.field("set-cookie", "a=b").is_err());
        reply.redirect("/a\r\nb c?é", 303, false).unwrap();
        reply.cookie(&cookie("x; Domain=evil\r\ny")).unwrap();
        let response = reply.response(vec![], false, false).unwrap();
        assert_eq!(
            field(&response, "Location").unwrap(),
            "/a%0D%0Ab%20c?%C3%A9"
        );
        let line = "a=x%3B%20Domain=evil%0D%0Ay; Path=/; Max-Age=60; SameSite=Lax; HttpOnly";
        assert_eq!(field(&response, "Set-Cookie").unwrap(), line);
        assert_eq!(
            field(&response, "Cache-Control").unwrap(),
            "private, no-store"
        );
    }

    #[test]
    fn redirect_to_other_site_requires_outside() {
        let mut reply = PageResponseHead::default();
        for outside in ["//evil", "/\\evil", "http://evil", "evil", ""] {
            assert!(reply.redirect(outside, 303, false).is_err(), "{outside}");
        }
        assert!(reply.redirect("https://example.com/", 302, true).is_ok());
        assert!(reply.redirect("/", 200, false).is_err());
    }

    #[test]
    fn personal_responses_are_never_cached_by_shared_caches() {
        let with_caching = |personal, safe| {
            let mut reply = PageResponseHead::default();
            reply.set_caching(60, vec!["a".into(), "b".into()]).unwrap();
            let response = reply.response(vec![], personal, safe).unwrap();
            (
                field(&response, "Cache-Control").unwrap(),
                field(&response, "Cache-Tag"),
            )
        };
        assert_eq!(
            with_caching(false, true),
            ("max-age=60".into(), Some("a, b".into()))
        );
        assert_eq!(with_caching(true, true).0, "private, max-age=60");
        assert_eq!(with_caching(false, false), ("no-cache".into(), None));
        let with_cache_control = |value: &str, personal, has_token| {
            let mut reply = PageResponseHead::default();
            reply.field("cache-control", value).unwrap();
            reply.has_token = has_token;
            let response = reply.response(vec![], personal, true).unwrap();
            assert_eq!(response.fields.values("cache-control").count(), 1);
            field(&response, "Cache-Control").unwrap()
        };
        let public = "Public, max-age=60,s-maxage=9";
        assert_eq!(with_cache_control(public, false, false), public);
        assert_eq!(
            with_cache_control(public, true, false),
            "private, max-age=60"
        );
        assert_eq!(
            with_cache_control("no-store", true, false),
            "private, no-store"
        );
        assert_eq!(with_cache_control(public, false, true), "private, no-store");
        let mut reply = PageResponseHead::default();
        reply.set_caching(60, vec![]).unwrap();
        reply.cookie(&cookie("x")).unwrap();
        assert!(reply.response(vec![], false, true).is_err());
        assert!(
            PageResponseHead::default()
                .set_caching(1, vec!["a,b".into()])
                .is_err()
        );
    }
}
