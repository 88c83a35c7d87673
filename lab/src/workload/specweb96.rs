//! SPECweb96-like traffic: static files over HTTP/1.0, one request per connection, from a file set that grows with the
//! target rate. The set is that of SPECweb99, in which some of the smallest files are a byte shorter than in 1996.
//!
//! From memory, since the rules were not available: within a class, files follow Poisson's law around the middle file,
//! truncated at both ends; folders are uniform.

use std::collections::BTreeMap;
use std::path::Path;

use super::draw;
use super::settings::WorkloadSettings;
use super::specset::{self, CLASS_WEIGHTS, CLASSES, FILES};
use super::urls::{UrlSpec, UrlStyle, UrlWorkload};
use super::{PerConnection, WorkloadVersion};

/// The settings, each with a description.
pub const SETTINGS: &[(&str, &str)] = &[
    (
        "target",
        "operations a second that the set is made for (500)",
    ),
    (
        "dirs",
        "folders of 36 files, 4.88 MiB each (follows from target)",
    ),
    (
        "within",
        "poisson (default) or zipf: how often each file of a class is requested",
    ),
    (
        "file_set",
        "path of the folder that has dir00000 (/file_set)",
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

/// The number of folders.
pub(crate) fn dirs(raw_settings: &BTreeMap<String, String>) -> Result<u32, String> {
    let settings = WorkloadSettings::new("specweb96", raw_settings, SETTINGS)?;
    let target = settings.number("target", 500.0, 1.0..=1e9)?;
    // SPECweb96's rule: the set grows with the square root of the target rate.
    let default = (10.0 * (target / 5.0_f64).sqrt()) as u32;
    settings.number(
        "dirs",
        default.clamp(1, specset::DIRS_MAX),
        1..=specset::DIRS_MAX,
    )
}

fn file_weights(zipf: bool) -> Vec<f64> {
    if zipf {
        specset::file_weights()
    } else {
        draw::poisson((FILES / 2) as f64, FILES)
    }
}

/// The workload.
pub(crate) fn workload(
    raw_settings: &BTreeMap<String, String>,
    host: &str,
) -> Result<UrlWorkload, String> {
    let dirs = dirs(raw_settings)?;
    let settings = WorkloadSettings::new("specweb96", raw_settings, SETTINGS)?;
    let file_weights =
        file_weights(settings.choice("within", &[("poisson", false), ("zipf", true)])?);
    let file_set = settings.path("file_set", "/file_set")?;
    let file_set = file_set.trim_end_matches('/');
    let checksums = match settings.value("files") {
        Some(folder) => Some(specset::checksums(Path::new(folder), dirs)?),
        None => None,
    };
    let sum: f64 = file_weights.iter().sum();
    let spec = |(dir, class, file): (u32, usize, usize)| {
        let spec = UrlSpec {
            weight: CLASS_WEIGHTS[class] * file_weights[file] / sum,
            expected_status: Some(200),
            expected_len: Some(specset::file_len(class, file)),
            crc32: checksums
                .as_ref()
                .map(|file_checksums| file_checksums[specset::index(dir, class, file)]),
            ..UrlSpec::get(format!("{file_set}/{}", specset::name(dir, class, file)))
        };
        (class as u8, spec)
    };
    let style = UrlStyle {
        host: host.to_string(),
        version: WorkloadVersion::Http10,
        per_connection: PerConnection::Fixed(1),
        cookies: false,
        conditional: settings.percent("conditional", 0.0)?,
    };
    let classes = (0..CLASSES).map(|class| format!("class {class}")).collect();
    UrlWorkload::with_classes(classes, specset::all_files(dirs).map(spec).collect(), style)
}

#[cfg(test)]
mod tests {
    use super::super::draw::tests::assert_fits;
    use super::super::{ConnectionOpening, TrafficWorkload};
    use super::*;

    #[test]
    fn dir_counts_match_the_specweb_table() {
        for (target, count) in [
            ("100", 44),
            ("500", 100),
            ("1000", 141),
            ("5000", 316),
            ("10000", 447),
        ] {
            let given = [("target".to_string(), target.to_string())].into();
            assert_eq!(dirs(&given), Ok(count));
        }
    }

    #[test]
    fn a_million_requests_match_the_mix() {
        let given = [("dirs".to_string(), "20".to_string())].into();
        let workload = workload(&given, "h").expect("good settings");
        let mut session = workload.session(0, 6);
        let opening = session.open();
        assert_eq!(
            opening,
            ConnectionOpening {
                version: WorkloadVersion::Http10,
                requests: 1
            }
        );
        let (mut classes, mut files, mut dirs) = (vec![0; 4], vec![0; 9], vec![0; 20]);
        let mut out = Vec::new();
        for _ in 0..1_000_000 {
            out.clear();
            classes[usize::from(session.request(true, &mut out).class)] += 1;
            // GET /file_set/dirNNNNN/classX_Y
            let digit = |at: usize| usize::from(out[at] - b'0');
            dirs[digit(20) * 10 + digit(21)] += 1;
            files[digit(30)] += 1;
        }
        assert_fits(&classes, &CLASS_WEIGHTS, "classes");
        assert_fits(&files, &draw::poisson(4.0, 9), "files");
        assert_fits(&dirs, &[1.0; 20], "folders");
    }
}
