//! A page's response besides its text: status, fields, cookies and cache lifetime. Checks all values, so that none can
//! inject further fields.

use std::fmt::Write;

use lowroad_handler::fields::is_token;
use lowroad_handler::{HandlerResponse, ResponseContent, ResponseFields};
use lowroad_http::status::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Characters that a cookie's value must not contain (RFC 6265 §4.1.1), and `%`.
const COOKIE: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b',')
    .add(b';')
    .add(b'\\');

/// Characters that a URL must not contain.
const ADDRESS: &AsciiSet = &CONTROLS
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

/// A response without its text.
#[derive(Debug, Default)]
pub struct PageResponseHead {
    status: Option<StatusCode>,
    fields: Vec<(String, String)>,
    cookies: Vec<String>,
    caching: Option<ReplyCaching>,
    /// It contains a form token, which belongs to one visitor.
    pub has_token: bool,
}

#[derive(Debug)]
struct ReplyCaching {
    seconds: u64,
    tags: Vec<String>,
}

/// The attributes of a cookie.
pub struct SetCookie<'a> {
    /// A token.
    pub name: &'a str,
    /// Any text.
    pub value: &'a str,
    /// Seconds; `None`: until the browser is closed.
    pub max_age: Option<i64>,
    /// Begins with `/`.
    pub path: &'a str,
    /// `Lax`, `Strict` or `None`.
    pub same_site: &'a str,
    /// Hidden from scripts.
    pub http_only: bool,
    /// Sent only over TLS.
    pub secure: bool,
}

impl PageResponseHead {
    /// Sets the status.
    pub fn status(&mut self, code: u16) -> Result<(), String> {
        // 1xx are interim and not for pages.
        let status = StatusCode::new(code).filter(|status| (200..600).contains(&status.code()));
        self.status = Some(status.ok_or(format!("{code} is not a valid response status"))?);
        Ok(())
    }

    /// Sets a field, replacing one of the same name.
    pub fn field(&mut self, name: &str, value: &str) -> Result<(), String> {
        // Fields that belong to the server's framing, or to `cookie()`.
        const OTHERS: &[&str] = &[
            "set-cookie",
            "content-length",
            "connection",
            "transfer-encoding",
        ];
        if !is_token(name.as_bytes()) {
            return Err(format!("{name:?} is not a valid field name"));
        }
        if OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return Err(format!("a page can't set {name}; use cookie() for cookies"));
        }
        // A line break would begin another field.
        if value
            .bytes()
            .any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f)
        {
            return Err(format!("the value of {name} contains control characters"));
        }
        // One value per name: repeated calls replace it.
        self.fields
            .retain(|(field_name, _)| !field_name.eq_ignore_ascii_case(name));
        self.fields.push((name.into(), value.trim().into()));
        Ok(())
    }

    /// Redirects the client, within the site unless `outside` is set.
    pub fn redirect(&mut self, target: &str, code: u16, outside: bool) -> Result<(), String> {
        let mut target_bytes = target.bytes();
        // Browsers read `//` and `/\` as the beginning of another host (open redirect).
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
        // Encoded here, since pages often build the target from a visitor's text.
        self.field(
            "Location",
            &utf8_percent_encode(target, ADDRESS).to_string(),
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
        // Encoded, so that any text can be stored; `form::cookies` decodes it.
        let value = utf8_percent_encode(cookie.value, COOKIE);
        let mut line = format!("{}={value}; Path={}", cookie.name, cookie.path);
        if let Some(seconds) = cookie.max_age {
            let _ = write!(line, "; Max-Age={seconds}");
        }
        let _ = write!(line, "; SameSite={}", cookie.same_site);
        if cookie.http_only {
            line.push_str("; HttpOnly");
        }
        // Browsers refuse SameSite=None without Secure.
        if cookie.secure || cookie.same_site == "None" {
            line.push_str("; Secure");
        }
        self.cookies.push(line);
        Ok(())
    }

    /// Lets caches store the page, to be invalidated by its tags.
    pub fn set_caching(&mut self, seconds: u64, tags: Vec<String>) -> Result<(), String> {
        if let Some(tag) = tags.iter().find(|tag| !is_tag(tag)) {
            return Err(format!(
                "{tag:?} is not a valid tag: 1 to 128 visible ASCII characters, no comma"
            ));
        }
        self.caching = Some(ReplyCaching { seconds, tags });
        Ok(())
    }

    /// The response, or the reason why it is invalid. `personal`: the text may be for this visitor only. `safe`: the
    /// request's method is safe, so that its response may be cached.
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
            // Always set: without it caches may choose a lifetime by themselves (RFC 9111 §4.2.2).
        }
        let control = self.cache_control(personal, safe);
        self.field("Cache-Control", &control)?;
        if let Some(caching) = self
            .caching
            .take()
            // Tags of responses that are not stored would have no effect.
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

    /// The Cache-Control. A personal response is never cached for others, even if the page asks for it.
    fn cache_control(&self, personal: bool, safe: bool) -> String {
        let page_value = self.field_value("Cache-Control");
        match &self.caching {
            // First: no wish of the page may publish a token or a cookie.
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

    /// The page's own value of a field.
    fn field_value(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field_name, _)| field_name.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }
}

/// Whether these fields allow a cache to reuse the response for some time.
pub fn may_be_stored(fields: &ResponseFields) -> bool {
    let allows_reuse = |(name, value): (&str, &[u8])| match name.to_ascii_lowercase() {
        // Compared with the defaults of `cache_control`, which let nothing be reused without a question to the server.
        name if name == "cache-control" => !matches!(value, b"no-cache" | b"private, no-cache"),
        name => name.ends_with("cache-control") || name == "expires",
    };
    fields.iter().any(allows_reuse)
}

/// A Cache-Control reduced to the visitor's browser: without the directives for shared caches.
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
    fn values_stay_in_their_fields() {
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
    fn redirects_stay_in_the_site_unless_told() {
        let mut reply = PageResponseHead::default();
        for outside in ["//evil", "/\\evil", "http://evil", "evil", ""] {
            assert!(reply.redirect(outside, 303, false).is_err(), "{outside}");
        }
        assert!(reply.redirect("https://example.com/", 302, true).is_ok());
        assert!(reply.redirect("/", 200, false).is_err());
    }

    #[test]
    fn pages_are_kept_as_they_say_but_never_what_is_personal() {
        let kept = |personal, safe| {
            let mut reply = PageResponseHead::default();
            reply.set_caching(60, vec!["a".into(), "b".into()]).unwrap();
            let response = reply.response(vec![], personal, safe).unwrap();
            (
                field(&response, "Cache-Control").unwrap(),
                field(&response, "Cache-Tag"),
            )
        };
        assert_eq!(
            kept(false, true),
            ("max-age=60".into(), Some("a, b".into()))
        );
        assert_eq!(kept(true, true).0, "private, max-age=60");
        assert_eq!(kept(false, false), ("no-cache".into(), None));
        let said = |value: &str, personal, has_token| {
            let mut reply = PageResponseHead::default();
            reply.field("cache-control", value).unwrap();
            reply.has_token = has_token;
            let response = reply.response(vec![], personal, true).unwrap();
            assert_eq!(response.fields.values("cache-control").count(), 1);
            field(&response, "Cache-Control").unwrap()
        };
        let public = "Public, max-age=60,s-maxage=9";
        assert_eq!(said(public, false, false), public);
        assert_eq!(said(public, true, false), "private, max-age=60");
        assert_eq!(said("no-store", true, false), "private, no-store");
        assert_eq!(said(public, false, true), "private, no-store");
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
