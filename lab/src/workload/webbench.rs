//! A WebBench-like static mix: pictures and pages of seven sizes, some large files and 2 % missing files, from a tree
//! of about 6,000 files and 60 MB.
//! The mix is from memory (the documents of the kit were not available). The number of files of each size is chosen so
//! that the tree has the documented number of files and size.

use std::collections::BTreeMap;
use std::path::Path;

use super::files::{FileFill, FileManifest, FilePlan, FileSpec};
use super::settings::WorkloadSettings;
use super::urls::{UrlSpec, UrlStyle, UrlWorkload};
use super::{PerConnection, WorkloadVersion};

/// The settings, each with a description.
pub const SETTINGS: &[(&str, &str)] = &[
    ("protocol", "1.0 (default), 1.0-keepalive or 1.1"),
    (
        "per-connection",
        "requests: inf, a number, geometric:MEAN or uniform:A-B (inf; 1.0 has 1)",
    ),
    (
        "conditional",
        "per cent of requests with If-Modified-Since (0)",
    ),
    (
        "files",
        "folder that lowroad-lab files made: checks contents too",
    ),
];

/// Files of one kind.
struct WebBenchKind {
    name: &'static str,
    extension: &'static str,
    /// Minimum and maximum length; the files' lengths are evenly spaced between them.
    lens: (u64, u64),
    /// Number of files.
    files: u64,
    /// Per cent of the requests.
    share: f64,
    exists: bool,
}

const fn kind(
    name: &'static str,
    extension: &'static str,
    len: u64,
    files: u64,
    share: f64,
) -> WebBenchKind {
    WebBenchKind {
        name,
        extension,
        lens: (len, len),
        files,
        share,
        exists: true,
    }
}

const KINDS: [WebBenchKind; 9] = [
    kind("223.gif", "gif", 223, 400, 20.0),
    kind("735.gif", "gif", 735, 400, 8.0),
    kind("1522.gif", "gif", 1522, 500, 12.0),
    kind("2895.gif", "gif", 2895, 1000, 20.0),
    kind("6040.htm", "htm", 6040, 1100, 14.0),
    kind("11426.htm", "htm", 11_426, 1250, 16.0),
    kind("22132.htm", "htm", 22_132, 1350, 7.0),
    WebBenchKind {
        lens: (45_000, 530_000),
        ..kind("large", "exe", 0, 10, 1.0)
    },
    WebBenchKind {
        exists: false,
        ..kind("missing", "htm", 0, 100, 2.0)
    },
];

impl WebBenchKind {
    fn path(&self, number: u64) -> String {
        let WebBenchKind {
            name, extension, ..
        } = self;
        format!(
            "webbench/{name}/{:02}/{:02}.{extension}",
            number / 50,
            number % 50
        )
    }

    fn len(&self, number: u64) -> u64 {
        let (len_min, len_max) = self.lens;
        len_min + (len_max - len_min) * number / (self.files - 1)
    }

    fn paths(&self) -> impl Iterator<Item = (String, u64)> {
        (0..self.files).map(|number| (self.path(number), self.len(number)))
    }
}

/// The file set.
pub(crate) fn plan(raw_settings: &BTreeMap<String, String>) -> Result<FilePlan, String> {
    // The settings are parsed only to check them: a misspelt setting must not be ignored.
    WorkloadSettings::new("webbench", raw_settings, SETTINGS)?;
    let files = |kind: &'static WebBenchKind| {
        let fill = if kind.extension == "htm" {
            FileFill::Text
        } else {
            FileFill::Binary
        };
        kind.paths()
            .map(move |(path, len)| FileSpec { path, len, fill })
    };
    let files = KINDS
        .iter()
        .filter(|kind| kind.exists)
        .flat_map(files)
        .collect();
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
    let settings = WorkloadSettings::new("webbench", raw_settings, SETTINGS)?;
    let versions = [
        ("1.0", WorkloadVersion::Http10),
        ("1.0-keepalive", WorkloadVersion::Http10KeepAlive),
        ("1.1", WorkloadVersion::Http11),
    ];
    let style = UrlStyle {
        host: host.to_string(),
        version: settings.choice("protocol", &versions)?,
        per_connection: settings.parsed("per-connection", PerConnection::Unlimited)?,
        cookies: false,
        conditional: settings.percent("conditional", 0.0)?,
    };
    let manifest = settings
        .value("files")
        .map(|folder| FileManifest::load(Path::new(folder)))
        .transpose()?;
    let mut specs = Vec::new();
    for (class, kind) in KINDS.iter().enumerate() {
        for (path, len) in kind.paths() {
            let mut spec = UrlSpec {
                // All files of a kind are equally popular.
                weight: kind.share / kind.files as f64,
                expected_status: Some(404),
                ..UrlSpec::get(format!("/{path}"))
            };
            if kind.exists {
                spec.expected_status = Some(200);
                spec.expected_len = Some(len);
                spec.crc32 = manifest
                    .as_ref()
                    .map(|list| list.checksum(&path, len))
                    .transpose()?;
            }
            specs.push((class as u8, spec));
        }
    }
    UrlWorkload::with_classes(
        KINDS.iter().map(|kind| kind.name.to_string()).collect(),
        specs,
        style,
    )
}

#[cfg(test)]
mod tests {
    use super::super::TrafficWorkload;
    use super::super::draw::tests::assert_fits;
    use super::*;

    #[test]
    fn file_tree_has_the_documented_size() {
        let plan = plan(&BTreeMap::new()).expect("a plan");
        assert_eq!(plan.files(), 6010);
        assert!(
            (55_000_000..65_000_000).contains(&plan.bytes()),
            "{}",
            plan.bytes()
        );
        let shares: f64 = KINDS.iter().map(|kind| kind.share).sum();
        let mean: f64 = KINDS[..7]
            .iter()
            .map(|kind| kind.share / 100.0 * kind.lens.0 as f64)
            .sum();
        assert_eq!((shares, mean.round()), (100.0, 5088.0));
    }

    #[test]
    fn a_million_requests_match_the_mix() {
        let workload = workload(&BTreeMap::new(), "h").expect("good settings");
        let mut session = workload.session(0, 8);
        assert_eq!(session.open().requests, 1);
        let mut counts = vec![0; KINDS.len()];
        let mut out = Vec::new();
        for _ in 0..1_000_000 {
            out.clear();
            let expected = session.request(true, &mut out);
            counts[usize::from(expected.class)] += 1;
            assert_eq!(
                expected.status == Some(404),
                KINDS[usize::from(expected.class)].name == "missing"
            );
        }
        assert_fits(&counts, &KINDS.map(|kind| kind.share), "kinds");
    }

    #[test]
    fn protocol_setting_selects_version_and_persistence() {
        let given = |key: &str, value: &str| [(key.to_string(), value.to_string())].into();
        let opening = |given| {
            workload(&given, "h")
                .expect("good settings")
                .session(0, 1)
                .open()
        };
        assert_eq!(opening(given("protocol", "1.1")).requests, u64::MAX);
        assert_eq!(
            opening(given("protocol", "1.0-keepalive")).version,
            WorkloadVersion::Http10KeepAlive
        );
        assert!(
            workload(&given("protocol", "2"), "h")
                .err()
                .expect("refused")
                .contains("1.0-keepalive")
        );
        assert!(
            workload(&given("per-connection", "0"), "h")
                .err()
                .expect("refused")
                .contains("inf")
        );
    }
}
