//! Content types and codings by file name extension, and which types are worth compressing.
//!
//! The table is that of the `new_mime_guess` crate, with corrections for common files where mime-db has newer types; a
//! site may add its own types.

use lowroad_http::content_coding::ContentCoding;

/// Types that the table lacks, or that should have precedence.
const ADDITIONAL_TYPES: &[(&str, &str)] = &[
    ("3gpp", "video/3gpp"),
    ("br", "application/x-brotli"),
    ("cjs", "application/node"),
    ("dmg", "application/x-apple-diskimage"),
    ("exr", "image/aces"),
    ("gz", "application/gzip"),
    ("ico", "image/x-icon"),
    ("jpm", "image/jpm"),
    ("jsx", "text/jsx"),
    ("m2t", "video/mp2t"),
    ("m2ts", "video/mp2t"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("mpp", "application/vnd.ms-project"),
    ("mts", "video/mp2t"),
    ("mxml", "application/xv+xml"),
    ("otf", "font/otf"),
    ("parquet", "application/vnd.apache.parquet"),
    ("rpm", "application/x-redhat-package-manager"),
    ("sql", "application/sql"),
    ("tgz", "application/gzip"),
    ("ts", "video/mp2t"),
    ("woff", "font/woff"),
    ("xml", "text/xml"),
    ("yaml", "application/yaml"), // RFC 9512
    ("yml", "application/yaml"),
    ("zst", "application/zstd"), // RFC 8878
];
/// Extensions of files that are compressed although their content type is that of the uncompressed content: browsers
/// can't show them without Content-Encoding.
const CODED_EXTENSIONS: &[(&str, ContentCoding)] = &[("svgz", ContentCoding::Gzip)];

/// The subtypes of `application` that are text.
const TEXT_SUBTYPES: &[&str] = &[
    "javascript",
    "json",
    "ld+json",
    "manifest+json",
    "node",
    "rtf",
    "sql",
    "toml",
    "vnd.apple.mpegurl",
    "wasm",
    "x-javascript",
    "x-ndjson",
    "x-sh",
    "xml",
    "yaml",
];

/// The content type of a file. `site_types` are the site's own: pairs of extension and type.
pub fn content_type(name: &[u8], site_types: &[(String, String)]) -> String {
    let Some(extension) = extension(name) else {
        return "application/octet-stream".into();
    };
    let site_types = site_types
        .iter()
        .find(|(ext, _)| ext.eq_ignore_ascii_case(&extension));
    // A configured type is used unchanged, without a charset.
    if let Some((_, configured)) = site_types {
        return configured.clone();
    }
    let additional = ADDITIONAL_TYPES.iter().find(|(ext, _)| *ext == extension);
    let guess = match additional {
        Some((_, content_type)) => content_type,
        None => from_table(&extension).unwrap_or("application/octet-stream"),
    };
    // Without a charset, browsers guess the encoding of text.
    if wants_charset(guess) {
        format!("{guess}; charset=utf-8")
    } else {
        guess.into()
    }
}

/// The content coding of the file itself, by its name (`.svgz`).
pub fn coding(name: &[u8]) -> ContentCoding {
    let extension = extension(name).unwrap_or_default();
    let coded = CODED_EXTENSIONS.iter().find(|(ext, _)| *ext == extension);
    coded.map_or(ContentCoding::Identity, |(_, coding)| *coding)
}

/// The best of the types in the table for an extension. In this order: registered types, vendor types (`vnd.`), `x-`
/// types, and `application/octet-stream`; among equals first video, audio and font; then by the order in the table.
fn from_table(extension: &str) -> Option<&'static str> {
    let types = new_mime_guess::from_ext(extension).iter_raw();
    types.min_by_key(|content_type| {
        let (kind, subtype) = content_type.split_once('/').unwrap_or_default();
        let tree = match subtype {
            // `application/javascript` is obsolete (RFC 9239 §6).
            "octet-stream" | "javascript" if kind == "application" => 3,
            _ if subtype.starts_with("x-") => 2,
            _ if subtype.starts_with("vnd.") || subtype.starts_with("prs.") => 1,
            _ => 0,
        };
        // Video, audio and font types are preferred, since false sorts before true.
        (tree, !matches!(kind, "video" | "audio" | "font"))
    })
}

/// Whether content of this type is worth compressing.
pub fn is_compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or("").trim();
    match essence.split_once('/') {
        Some(("text", _)) => true,
        Some(("image", subtype)) => {
            ["svg+xml", "bmp", "x-icon", "vnd.microsoft.icon"].contains(&subtype)
        }
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
    let is_text = ["application/json", "application/xml", "application/node"].contains(&essence);
    is_text || essence.starts_with("text/")
}

fn extension(name: &[u8]) -> Option<String> {
    let file = name.rsplit(|b| *b == b'/').next()?;
    let dot = file.iter().rposition(|b| *b == b'.')?;
    // A leading dot begins a hidden name, not an extension.
    (dot > 0).then(|| String::from_utf8_lossy(&file[dot + 1..]).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_by_extension() {
        let of = |name: &str| content_type(name.as_bytes(), &[]);
        assert_eq!(of("/index.html"), "text/html; charset=utf-8");
        assert_eq!(of("/a.JS"), "text/javascript; charset=utf-8");
        assert_eq!(of("/a.svg"), "image/svg+xml");
        assert_eq!(of("/a.webp"), "image/webp");
        assert_eq!(of("/a.woff2"), "font/woff2");
        for (name, content_type) in [
            ("rpm", "application/x-redhat-package-manager"),
            ("ts", "video/mp2t"),
            ("jsx", "text/jsx; charset=utf-8"),
            ("m2t", "video/mp2t"),
            ("m2ts", "video/mp2t"),
            ("m3u8", "application/vnd.apple.mpegurl"),
            ("mts", "video/mp2t"),
            ("mxml", "application/xv+xml"),
            ("otf", "font/otf"),
            ("rpm", "application/x-redhat-package-manager"),
            ("sql", "application/sql"),
            ("tgz", "application/gzip"),
            ("ts", "video/mp2t"),
            ("woff", "font/woff"),
            ("dmg", "application/x-apple-diskimage"),
            ("exr", "image/aces"),
            ("gz", "application/gzip"),
            ("svgz", "image/svg+xml"),
            ("cjs", "application/node; charset=utf-8"),
            ("mjs", "text/javascript; charset=utf-8"),
            ("map", "application/json; charset=utf-8"),
            ("webmanifest", "application/manifest+json"),
            ("md", "text/markdown; charset=utf-8"),
            ("mp4", "video/mp4"),
            ("m4a", "audio/mp4"),
            ("xml", "text/xml; charset=utf-8"),
            ("json", "application/json; charset=utf-8"),
            ("avif", "image/avif"),
            ("ico", "image/x-icon"),
            ("deb", "application/vnd.debian.binary-package"),
            ("wasm", "application/wasm"),
            ("zst", "application/zstd"),
            ("pdf", "application/pdf"),
            ("zip", "application/zip"),
            ("7z", "application/x-7z-compressed"),
            ("bin", "application/octet-stream"),
            ("mp3", "audio/mpeg"),
            ("ogg", "audio/ogg"),
            ("webm", "video/webm"),
            ("jpg", "image/jpeg"),
            ("ttf", "font/ttf"),
            ("csv", "text/csv; charset=utf-8"),
            ("rss", "application/rss+xml"),
        ] {
            assert_eq!(of(&format!("/a.{name}")), content_type, "{name}");
        }
        assert_eq!(of("/a.b/c"), "application/octet-stream");
        assert_eq!(of("/.profile"), "application/octet-stream");
        assert_eq!(of("/a.unheardof"), "application/octet-stream");
        let site_types = [("unheardof".to_string(), "text/x-own".to_string())];
        assert_eq!(content_type(b"/a.Unheardof", &site_types), "text/x-own");
    }

    #[test]
    fn text_is_compressed_and_images_are_not() {
        for text in [
            "text/html; charset=utf-8",
            "image/svg+xml",
            "application/ld+json",
            "application/wasm",
        ] {
            assert!(is_compressible(text), "{text}");
        }
        for other in [
            "image/png",
            "video/mp4",
            "application/zip",
            "font/woff2",
            "nonsense",
        ] {
            assert!(!is_compressible(other), "{other}");
        }
    }
}
