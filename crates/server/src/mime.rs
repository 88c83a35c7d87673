//! Content types by file name, and which of them are worth compressing.
//!
//! The table is that of the `mime_guess` crate, which follows the IANA registry; a site may add
//! types of its own.

/// Subtypes of `application` that are text.
const TEXT_SUBTYPES: &[&str] = &[
    "javascript",
    "json",
    "ld+json",
    "manifest+json",
    "rtf",
    "toml",
    "wasm",
    "x-javascript",
    "x-ndjson",
    "x-sh",
    "xml",
    "yaml",
];

/// The content type of a file. `own` are a site's: pairs of extension and type.
pub fn content_type(name: &[u8], own: &[(String, String)]) -> String {
    let Some(extension) = extension(name) else {
        return "application/octet-stream".into();
    };
    let own = own
        .iter()
        .find(|(of, _)| of.eq_ignore_ascii_case(&extension));
    if let Some((_, given)) = own {
        return given.clone();
    }
    let guess = mime_guess::from_ext(&extension)
        .first_raw()
        .unwrap_or("application/octet-stream");
    // The crate's name for it is the older one (RFC 9239 §6).
    let guess = if guess == "application/javascript" {
        "text/javascript"
    } else {
        guess
    };
    if wants_charset(guess) {
        format!("{guess}; charset=utf-8")
    } else {
        guess.into()
    }
}

/// Whether compressing such content pays.
pub fn compresses(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or("").trim();
    match essence.split_once('/') {
        Some(("text", _)) => true,
        Some(("image", subtype)) => subtype == "svg+xml" || subtype == "bmp" || subtype == "x-icon",
        Some(("font", subtype)) => subtype == "ttf" || subtype == "otf",
        Some(("application", subtype)) => {
            TEXT_SUBTYPES.contains(&subtype)
                || subtype.ends_with("+xml")
                || subtype.ends_with("+json")
        }
        _ => false,
    }
}

fn wants_charset(essence: &str) -> bool {
    essence.starts_with("text/") || essence == "application/json" || essence == "application/xml"
}

fn extension(name: &[u8]) -> Option<String> {
    let file = name.rsplit(|b| *b == b'/').next()?;
    let dot = file.iter().rposition(|b| *b == b'.')?;
    (dot > 0).then(|| String::from_utf8_lossy(&file[dot + 1..]).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_extension() {
        let of = |name: &str| content_type(name.as_bytes(), &[]);
        assert_eq!(of("/index.html"), "text/html; charset=utf-8");
        assert_eq!(of("/a.JS"), "text/javascript; charset=utf-8");
        assert_eq!(of("/a.svg"), "image/svg+xml");
        assert_eq!(of("/a.webp"), "image/webp");
        assert_eq!(of("/a.woff2"), "font/woff2");
        assert_eq!(of("/a.b/c"), "application/octet-stream");
        assert_eq!(of("/.profile"), "application/octet-stream");
        assert_eq!(of("/a.unheardof"), "application/octet-stream");
        let own = [("unheardof".to_string(), "text/x-own".to_string())];
        assert_eq!(content_type(b"/a.Unheardof", &own), "text/x-own");
    }

    #[test]
    fn text_compresses_and_pictures_do_not() {
        for text in [
            "text/html; charset=utf-8",
            "image/svg+xml",
            "application/ld+json",
            "application/wasm",
        ] {
            assert!(compresses(text), "{text}");
        }
        for other in [
            "image/png",
            "video/mp4",
            "application/zip",
            "font/woff2",
            "nonsense",
        ] {
            assert!(!compresses(other), "{other}");
        }
    }
}
