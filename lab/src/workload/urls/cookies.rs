//! The cookies of one simulated client. All its requests go to one host, so domain and path are ignored.

/// Names and values, in the order in which the names were first set.
#[derive(Debug, Default)]
pub(in super::super) struct CookieJar(Vec<(String, String)>);

/// Maximum number of cookies (RFC 6265 section 6.1 requires at least 50 per domain). Without a maximum, a server that
/// invents names would make requests grow without bound.
const COOKIES_MAX: usize = 50;

impl CookieJar {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stores the cookie of a `Set-Cookie` field.
    pub(in super::super) fn set(&mut self, field: &str) {
        let mut parts = field.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let (name, value) = (name.trim(), value.trim());
        let over = parts.any(|attribute| {
            let (key, age) = attribute.split_once('=').unwrap_or((attribute, ""));
            // Servers delete a cookie with a Max-Age of 0 or less (RFC 6265 section 5.2.2). Other ages are longer than
            // a run.
            key.eq_ignore_ascii_case("max-age") && age.parse::<i64>().is_ok_and(|age_s| age_s <= 0)
        });
        let existing = self.0.iter().position(|(existing, _)| existing == name);
        match (existing, over) {
            (Some(found_index), true) => drop(self.0.remove(found_index)),
            (Some(found_index), false) => self.0[found_index].1 = value.to_string(),
            (None, false) if self.0.len() < COOKIES_MAX => {
                self.0.push((name.to_string(), value.to_string()))
            }
            (None, _) => {}
        }
    }

    /// Appends the `Cookie` field, unless there are no cookies.
    pub(in super::super) fn append(&self, out: &mut Vec<u8>) {
        for (position, (name, value)) in self.0.iter().enumerate() {
            let prefix = if position == 0 { "Cookie: " } else { "; " };
            for piece in [prefix, name, "=", value] {
                out.extend_from_slice(piece.as_bytes());
            }
        }
        if !self.0.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_stored_replaced_and_deleted() {
        let mut cookies = CookieJar::default();
        let text = |cookies: &CookieJar| {
            let mut out = Vec::new();
            cookies.append(&mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(text(&cookies), "");
        cookies.set("a=1; Path=/; HttpOnly");
        cookies.set("b=x=y");
        cookies.set("nonsense");
        cookies.set("a=2;Max-Age=60");
        assert_eq!(text(&cookies), "Cookie: a=2; b=x=y\r\n");
        cookies.set("a=; max-age=0");
        assert_eq!(text(&cookies), "Cookie: b=x=y\r\n");
        (0..1000).for_each(|number| cookies.set(&format!("c{number}=1")));
        assert_eq!(cookies.0.len(), COOKIES_MAX);
    }
}
