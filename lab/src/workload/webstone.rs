//! WebStone: its standard list of five files, or one file of a given size from 64 bytes to 1 MiB as in paper `002`.
//! HTTP/1.0, one request per connection.

use std::collections::BTreeMap;
use std::path::Path;

use super::files::{FileFill, FileManifest, FilePlan, FileSpec};
use super::settings::WorkloadSettings;
use super::urls::{UrlSpec, UrlStyle, UrlWorkload};
use super::{PerConnection, WorkloadVersion};

/// Name and description of each setting.
pub const SETTINGS: &[(&str, &str)] = &[
    (
        "size",
        "one file of so many bytes, a power of two from 64 to 1048576 (the list of five)",
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

/// Name, length, and share of the requests in thousandths.
const LIST: [(&str, u64, f64); 5] = [
    ("file500.html", 500, 350.0),
    ("file5k.html", 5125, 500.0),
    ("file50k.html", 51_250, 140.0),
    ("file500k.html", 512_500, 9.0),
    ("file5m.html", 5_248_000, 1.0),
];

/// Exponents of two: the lengths of single files.
const EXPONENTS: std::ops::RangeInclusive<u32> = 6..=20;

/// The files of all sizes, regardless of the size that is selected.
pub(crate) fn plan(raw_settings: &BTreeMap<String, String>) -> Result<FilePlan, String> {
    // The settings are parsed only to check them: a misspelt setting must not be ignored.
    WorkloadSettings::new("webstone", raw_settings, SETTINGS)?;
    let list = LIST.map(|(name, len, _)| FileSpec {
        path: name.to_string(),
        len,
        fill: FileFill::Text,
    });
    let fixed = EXPONENTS.map(|exponent| FileSpec {
        path: fixed(1 << exponent),
        len: 1 << exponent,
        fill: FileFill::Binary,
    });
    Ok(FilePlan {
        files: list.into_iter().chain(fixed).collect(),
        ..FilePlan::default()
    })
}

fn fixed(len: u64) -> String {
    format!("fixed/{len}.bin")
}

/// The workload.
pub(crate) fn workload(
    raw_settings: &BTreeMap<String, String>,
    host: &str,
) -> Result<UrlWorkload, String> {
    let settings = WorkloadSettings::new("webstone", raw_settings, SETTINGS)?;
    let choices = match settings.value("size") {
        None => LIST
            .map(|(name, len, weight)| (name.to_string(), len, weight))
            .to_vec(),
        Some(_) => {
            let len = settings.number("size", 64, 64..=1 << 20)?;
            if !u64::is_power_of_two(len) {
                return Err(format!(
                    "webstone: size={len} is not a power of two; give 64, 128 ... 1048576"
                ));
            }
            vec![(fixed(len), len, 1.0)]
        }
    };
    let manifest = settings
        .value("files")
        .map(|folder| FileManifest::load(Path::new(folder)))
        .transpose()?;
    let mut specs = Vec::new();
    for (class, (path, len, weight)) in choices.iter().enumerate() {
        let crc32 = manifest
            .as_ref()
            .map(|manifest| manifest.checksum(path, *len))
            .transpose()?;
        let spec = UrlSpec {
            weight: *weight,
            expected_status: Some(200),
            expected_len: Some(*len),
            crc32,
            ..UrlSpec::get(format!("/{path}"))
        };
        specs.push((class as u8, spec));
    }
    let style = UrlStyle {
        host: host.to_string(),
        version: WorkloadVersion::Http10,
        per_connection: PerConnection::Fixed(1),
        cookies: false,
        conditional: settings.percent("conditional", 0.0)?,
    };
    UrlWorkload::with_classes(
        choices.into_iter().map(|(path, ..)| path).collect(),
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
    fn a_million_requests_match_the_mix() {
        let workload = workload(&BTreeMap::new(), "h").expect("good settings");
        let mut session = workload.session(0, 6);
        assert_eq!(session.open().requests, 1);
        let mut counts = vec![0; 5];
        let (mut out, mut bytes) = (Vec::new(), 0);
        for _ in 0..1_000_000 {
            out.clear();
            let expected = session.request(true, &mut out);
            counts[usize::from(expected.class)] += 1;
            bytes += expected.len.expect("known");
        }
        assert_fits(&counts, &LIST.map(|(.., weight)| weight), "files");
        // The expected mean is 19,773. Its deviation is mainly due to a file of 5 MB that is drawn once in 1000
        // requests.
        let mean = bytes as f64 / 1e6;
        assert!((mean - 19_773.0).abs() < 4.5 * 173.0, "{mean}");
    }

    #[test]
    fn size_setting_selects_one_file() {
        let given = |size: &str| [("size".to_string(), size.to_string())].into();
        let workload_64 = workload(&given("64"), "h").expect("good settings");
        let mut out = Vec::new();
        let mut session = workload_64.session(0, 1);
        session.open();
        assert_eq!(session.request(true, &mut out).len, Some(64));
        assert_eq!(out, b"GET /fixed/64.bin HTTP/1.0\r\nHost: h\r\n\r\n");
        assert!(
            workload(&given("100"), "h")
                .err()
                .expect("refused")
                .contains("128")
        );
        assert!(workload(&given("32"), "h").is_err());
        assert_eq!(plan(&BTreeMap::new()).expect("a plan").files(), 5 + 15);
    }
}
