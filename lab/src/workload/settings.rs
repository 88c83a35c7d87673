//! Parses the settings of workloads, which are text, and reports the allowed values. Each workload has its own table of
//! keys.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The settings of one workload.
pub(crate) struct WorkloadSettings<'a> {
    workload: &'static str,
    raw_settings: &'a BTreeMap<String, String>,
}

impl<'a> WorkloadSettings<'a> {
    /// Rejects keys that are not in the table.
    pub(crate) fn new(
        workload: &'static str,
        raw_settings: &'a BTreeMap<String, String>,
        allowed: &[(&str, &str)],
    ) -> Result<WorkloadSettings<'a>, String> {
        for key in raw_settings.keys() {
            if !allowed.iter().any(|(name, _)| name == key) {
                let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                return Err(format!(
                    "{workload} has no setting {key:?}; its settings are {names}"
                ));
            }
        }
        Ok(WorkloadSettings {
            workload,
            raw_settings,
        })
    }

    /// The text of a setting, if it is set.
    pub(crate) fn value(&self, key: &str) -> Option<&'a str> {
        self.raw_settings.get(key).map(String::as_str)
    }

    /// Parses a number within bounds.
    pub(crate) fn number<T: FromStr + PartialOrd + Display>(
        &self,
        key: &str,
        default: T,
        bounds: RangeInclusive<T>,
    ) -> Result<T, String> {
        let Some(text) = self.value(key) else {
            return Ok(default);
        };
        match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(number),
            _ => {
                let (min, max) = (bounds.start(), bounds.end());
                Err(self.invalid_value(key, text, &format!("give a number from {min} to {max}")))
            }
        }
    }

    /// Parses a percentage; returns a share of 1.
    pub(crate) fn percent(&self, key: &str, default: f64) -> Result<f64, String> {
        Ok(self.number(key, default, 0.0..=100.0)? / 100.0)
    }

    /// Parses one of several words; the first is the default.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let Some(text) = self.value(key) else {
            return Ok(choices[0].1);
        };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(self.invalid_value(key, text, &format!("give one of {}", names.join(", "))))
    }

    /// Parses the path of a URL.
    pub(crate) fn path(&self, key: &str, default: &str) -> Result<String, String> {
        let text = self.value(key).unwrap_or(default);
        match super::wire::check_target(text) {
            Ok(()) => Ok(text.to_string()),
            Err(error) => Err(self.invalid_value(key, text, &error)),
        }
    }

    /// Parses any type; its parser reports the errors.
    pub(crate) fn parsed<T: FromStr<Err = String>>(
        &self,
        key: &str,
        default: T,
    ) -> Result<T, String> {
        match self.value(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|error| format!("{}: {key}: {error}", self.workload)),
        }
    }

    fn invalid_value(&self, key: &str, text: &str, instead: &str) -> String {
        format!("{}: {key}={text} is not possible; {instead}", self.workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[(&str, &str)] = &[("dirs", ""), ("mix", ""), ("script", "")];

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn setting_errors_list_allowed_values() {
        let map = given(&[("dir", "3")]);
        let error = WorkloadSettings::new("x", &map, ALLOWED)
            .err()
            .expect("unknown key");
        assert_eq!(
            error,
            "x has no setting \"dir\"; its settings are dirs, mix, script"
        );

        let map = given(&[("dirs", "0"), ("mix", "none"), ("script", "a b")]);
        let settings = WorkloadSettings::new("x", &map, ALLOWED).expect("known keys");
        let error = settings
            .number("dirs", 5u32, 1..=9)
            .expect_err("out of bounds");
        assert_eq!(
            error,
            "x: dirs=0 is not possible; give a number from 1 to 9"
        );
        let error = settings
            .choice("mix", &[("a", 1), ("b", 2)])
            .expect_err("no such word");
        assert_eq!(error, "x: mix=none is not possible; give one of a, b");
        assert!(settings.path("script", "/x").is_err());
        assert_eq!(settings.percent("absent", 30.0), Ok(0.3));
    }
}
