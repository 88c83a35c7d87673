//! Parses the database URL when an image is built, because the image's kernel does not resolve names or parse URLs.

use std::net::{Ipv4Addr, SocketAddrV4};

const ALLOWED: &str = "mysql://USER:PASSWORD@ADDRESS:PORT/NAME, with an IPv4 address, because the \
                       image resolves no names; the default port is 3306; characters other than \
                       letters and digits may be written as %40";
const PORT: u16 = 3306;

/// The database of SQL pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDatabase {
    /// The server's address.
    pub address: SocketAddrV4,
    /// The user name.
    pub user: String,
    /// The password; may be empty.
    pub password: String,
    /// The database's name.
    pub name: String,
}

impl ImageDatabase {
    /// Parses a URL. The error does not contain the URL, which may include a password.
    ///
    /// # Errors
    /// A message with the allowed forms.
    pub fn parse(url: &str) -> Result<ImageDatabase, String> {
        parts(url).ok_or_else(|| ALLOWED.to_string())
    }
}

fn parts(url: &str) -> Option<ImageDatabase> {
    let rest = ["mysql://", "mariadb://"];
    let rest = rest.iter().find_map(|scheme| url.strip_prefix(scheme))?;
    // Searched from the right, because a password may contain an unescaped `@`.
    let (credentials, rest) = rest.rsplit_once('@')?;
    let (address, name) = rest.split_once('/')?;
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let (host, port) = match address.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (address, PORT),
    };
    let host: Ipv4Addr = host.parse().ok()?;
    if name.contains(['/', '?', '#']) {
        return None;
    }
    let database = ImageDatabase {
        address: SocketAddrV4::new(host, port),
        user: percent_decode(user)?,
        password: percent_decode(password)?,
        name: percent_decode(name)?,
    };
    (!database.user.is_empty() && !database.name.is_empty()).then_some(database)
}

/// Decodes a percent-encoded part of a URL; `None` if it contains control characters.
fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || Some(char::from(bytes.next()?).to_digit(16)? as u8);
        out.push(match byte {
            b'%' => digit()? << 4 | digit()?,
            byte => byte,
        });
    }
    let text = String::from_utf8(out).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> Option<String> {
        let ImageDatabase {
            address,
            user,
            password,
            name,
        } = ImageDatabase::parse(url).ok()?;
        Some(format!("{address} {user} {password} {name}"))
    }

    #[test]
    fn urls_are_parsed() {
        for (url, want) in [
            ("mysql://u:p@10.0.0.5:3307/n", Some("10.0.0.5:3307 u p n")),
            ("mariadb://u@10.0.0.5/n", Some("10.0.0.5:3306 u  n")),
            (
                "mysql://u:p%40%3a:x@y@10.0.0.5/n",
                Some("10.0.0.5:3306 u p@::x@y n"),
            ),
            ("mysql://u:p@db.example/n", None),
            ("mysql://u:p@10.0.0.5/", None),
            ("mysql://:p@10.0.0.5/n", None),
            ("mysql://u:p@10.0.0.5/n?x=y", None),
            ("mysql://u:p@10.0.0.5:0/n", None),
            ("mysql://u:p%0a@10.0.0.5/n", None),
            ("mysql://u:p%4@10.0.0.5/n", None),
            ("postgres://u:p@10.0.0.5/n", None),
        ] {
            assert_eq!(shown(url).as_deref(), want, "{url}");
        }
    }

    #[test]
    fn error_does_not_contain_the_password() {
        let refused = ImageDatabase::parse("mysql://u:secret@db/n").expect_err("a name");
        assert!(!refused.contains("secret"));
    }
}
