//! Secrets: values that a configuration may keep elsewhere, in a file, an environment variable or a systemd credential.
//!
//! The reader gets their text from [`ConfigFiles::secret`](crate::ConfigFiles); it is in the configuration like any other
//! value, and never in a problem.

use crate::named::is_variable;
use crate::reader::ConfigValue;
use std::fmt;
use std::path::PathBuf;

/// The maximum length of a secret in bytes; a longer one suggests a wrong file.
pub const SECRET_LEN_MAX: usize = 4096;

const ALLOWED: &str = "{ file = \"PATH\" }, { env = \"NAME\" } or { credential = \"NAME\" }";

/// The place of a secret outside of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A regular file.
    File(PathBuf),
    /// An environment variable of the server.
    Env(String),
    /// A file in `$CREDENTIALS_DIRECTORY` (systemd.exec(5)).
    Credential(String),
}

/// The text of a secret. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SecretText(String);

impl SecretText {
    /// A secret with this text.
    pub fn new(text: impl Into<String>) -> SecretText {
        SecretText(text.into())
    }

    /// The text, which must not be printed.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText")
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "{}", path.display()),
            SecretSource::Env(name) => write!(f, "the variable {name}"),
            SecretSource::Credential(name) => write!(f, "the credential {name}"),
        }
    }
}

/// The text of a secret from its bytes: without the line break at its end.
///
/// # Errors
/// The secret is empty, too long, or no text: the reason, without any of its bytes.
pub fn secret_text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > SECRET_LEN_MAX {
        return Err(format!(
            "longer than {SECRET_LEN_MAX} bytes, so it is not a secret"
        ));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    // Editors and `echo` add one line break; further ones may belong to the secret.
    let kept = text
        .strip_suffix('\n')
        .map_or(text.len(), |line| line.trim_end_matches('\r').len());
    text.truncate(kept);
    match text.is_empty() {
        true => Err("empty".to_owned()),
        false if text.contains('\0') => Err("not a text: it contains NUL".to_owned()),
        false => Ok(text),
    }
}

/// A value in a place for secrets.
pub(crate) enum SecretReading {
    /// The value itself is in the configuration; its reader checks it.
    Plain,
    /// The text, from elsewhere.
    Text(String),
    /// A text that this reader has no access to.
    Unread,
}

impl ConfigValue<'_> {
    /// Reads the value of a key that may be a secret. `None`: the problem is reported.
    pub(crate) fn secret(&self) -> Option<SecretReading> {
        let is_reference = self.is_table();
        if !is_reference {
            self.record_secret();
            return Some(SecretReading::Plain);
        }
        match self.read_secret(&self.secret_source()?) {
            Ok(Some(text)) => Some(SecretReading::Text(text)),
            Ok(None) => Some(SecretReading::Unread),
            Err(message) => {
                self.report(message, ALLOWED);
                None
            }
        }
    }

    /// Reads a secret that must not be in the configuration itself.
    pub(crate) fn secret_reference(&self) -> Option<SecretText> {
        match self.secret()? {
            SecretReading::Text(text) => Some(SecretText::new(text)),
            SecretReading::Unread => Some(SecretText::default()),
            SecretReading::Plain => {
                self.report("a secret must not be in the configuration itself", ALLOWED);
                None
            }
        }
    }

    fn secret_source(&self) -> Option<SecretSource> {
        let section = self.section()?;
        let [file, env, credential] = ["file", "env", "credential"].map(|key| section.item(key));
        let name = |item: &ConfigValue<'_>, is_valid: fn(&str) -> bool, allowed: &str| {
            let name = item.text().filter(|name| is_valid(name));
            if name.is_none() {
                item.refuse("a name", allowed);
            }
            name.map(str::to_owned)
        };
        let source = match (file, env, credential) {
            (Some(item), None, None) => item.path().map(SecretSource::File),
            (None, Some(item), None) => name(
                &item,
                is_variable,
                "letters, digits and _, no digit in front",
            )
            .map(SecretSource::Env),
            (None, None, Some(item)) => name(&item, is_credential, "the name of a file, without /")
                .map(SecretSource::Credential),
            _ => {
                section.report("not one place of a secret", ALLOWED);
                None
            }
        };
        section.finish();
        source
    }
}

/// Whether a text is the name of a credential: a file name.
fn is_credential(name: &str) -> bool {
    // A slash or `..` would leave $CREDENTIALS_DIRECTORY; 255 is Linux' NAME_MAX.
    !matches!(name, "." | "..") && !name.contains('/') && name.len() <= 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_break_at_end_is_no_part_of_secret() {
        let longest = "x".repeat(SECRET_LEN_MAX);
        for (bytes, expected) in [
            ("a", Some("a")),
            ("a\n", Some("a")),
            ("a\r\n", Some("a")),
            ("a\n\n", Some("a\n")),
            (" a b ", Some(" a b ")),
            ("", None),
            ("\n", None),
            ("a\0b", None),
            (&longest, Some(&longest)),
            (&format!("{longest}\n"), None),
        ] {
            let text = secret_text(bytes.as_bytes().to_vec());
            assert_eq!(text.ok().as_deref(), expected, "{}", bytes.len());
        }
        assert!(secret_text(vec![0xff]).is_err());
        let secret = SecretText::new("hunter2");
        assert!(!format!("{secret:?}").contains("hunter"));
    }
}
