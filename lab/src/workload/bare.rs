//! The requests of paper `003`, in the style of httperf (HTTP/1.1) or http_load (HTTP/1.0): a static page of 3593
//! bytes, PHP pages from a database, or a mix of both.

use std::collections::BTreeMap;
use std::path::Path;

use super::files::{FileFill, FileManifest, FilePlan, FileSpec};
use super::settings::WorkloadSettings;
use super::urls::{UrlSpec, UrlStyle, UrlWorkload};
use super::{PerConnection, WorkloadVersion};

/// The settings, each with a description.
pub const SETTINGS: &[(&str, &str)] = &[
    ("dynamic", "per cent of requests for the PHP page (0)"),
    (
        "set",
        "small (default; 211 bytes), medium (10217) or large (19248): what the PHP page has",
    ),
    (
        "style",
        "httperf (default; HTTP/1.1) or http_load (HTTP/1.0, one request a connection)",
    ),
    (
        "calls",
        "requests a connection of httperf (1): inf, a number, geometric:MEAN or uniform:A-B",
    ),
    ("script", "path of the PHP page (/page.php)"),
    (
        "files",
        "folder that lowroad-lab files made: checks contents too",
    ),
];

/// Name and length of the static page.
const PAGE: (&str, u64) = ("page.html", 3593);

/// The name and length of the PHP page for each dataset.
const SETS: [(&str, (&str, u64)); 3] = [
    ("small", ("small", 211)),
    ("medium", ("medium", 10_217)),
    ("large", ("large", 19_248)),
];

/// The file set.
pub(crate) fn plan(raw_settings: &BTreeMap<String, String>) -> Result<FilePlan, String> {
    // The settings are parsed only to check them: a misspelt setting must not be ignored.
    WorkloadSettings::new("bare", raw_settings, SETTINGS)?;
    let (path, len) = PAGE;
    let files = vec![FileSpec {
        path: path.to_string(),
        len,
        fill: FileFill::Text,
    }];
    Ok(FilePlan {
        files,
        ..FilePlan::default()
    })
}

/// The workload.
pub(crate) fn workload(
    raw_settings: &BTreeMap<String, String>,
    host: &str,
) -> Result<UrlWorkload, String> {
    let settings = WorkloadSettings::new("bare", raw_settings, SETTINGS)?;
    let dynamic = settings.percent("dynamic", 0.0)?;
    let (set, dynamic_len) = settings.choice("set", &SETS)?;
    let script = settings.path("script", "/page.php")?;
    let (path, len) = PAGE;
    let manifest = settings
        .value("files")
        .map(|folder| FileManifest::load(Path::new(folder)))
        .transpose()?;
    let page = UrlSpec {
        weight: 1.0 - dynamic,
        expected_status: Some(200),
        expected_len: Some(len),
        crc32: manifest
            .map(|manifest| manifest.checksum(path, len))
            .transpose()?,
        ..UrlSpec::get(format!("/{path}"))
    };
    let program = UrlSpec {
        weight: dynamic,
        expected_status: Some(200),
        expected_len: Some(dynamic_len),
        ..UrlSpec::get(format!("{script}?set={set}"))
    };
    let style = UrlStyle {
        host: host.to_string(),
        version: settings.choice(
            "style",
            &[
                ("httperf", WorkloadVersion::Http11),
                ("http_load", WorkloadVersion::Http10),
            ],
        )?,
        per_connection: settings.parsed("calls", PerConnection::Fixed(1))?,
        cookies: false,
        conditional: 0.0,
    };
    // If only one URL is requested, the list has only that URL, so that no draw is needed.
    let specs: Vec<(&str, UrlSpec)> = [("static", page), ("dynamic", program)]
        .into_iter()
        .filter(|(_, spec)| spec.weight > 0.0)
        .collect();
    let classes = specs.iter().map(|(name, _)| name.to_string()).collect();
    let specs = specs
        .into_iter()
        .enumerate()
        .map(|(class, (_, spec))| (class as u8, spec));
    UrlWorkload::with_classes(classes, specs.collect(), style)
}

#[cfg(test)]
mod tests {
    use super::super::TrafficWorkload;
    use super::super::draw::tests::assert_fits;
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn a_million_requests_match_the_mix() {
        let mixed = workload(&given(&[("dynamic", "28.5")]), "h").expect("good settings");
        let mut session = mixed.session(0, 8);
        let mut counts = vec![0; 2];
        let mut out = Vec::new();
        for _ in 0..1_000_000 {
            out.clear();
            counts[usize::from(session.request(true, &mut out).class)] += 1;
        }
        assert_fits(&counts, &[71.5, 28.5], "static and dynamic");
    }

    #[test]
    fn settings_select_page_and_style() {
        let settings = given(&[("dynamic", "100"), ("set", "large"), ("style", "http_load")]);
        let all = workload(&settings, "h").expect("good settings");
        assert_eq!(all.classes(), ["dynamic"]);
        let mut session = all.session(0, 1);
        assert_eq!(session.open().requests, 1);
        let mut out = Vec::new();
        assert_eq!(session.request(true, &mut out).len, Some(19_248));
        assert_eq!(out, b"GET /page.php?set=large HTTP/1.0\r\nHost: h\r\n\r\n");
        let error = workload(&given(&[("set", "huge")]), "h")
            .err()
            .expect("refused");
        assert!(error.contains("small, medium, large"), "{error}");
    }
}
