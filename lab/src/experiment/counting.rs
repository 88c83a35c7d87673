//! Counting instructions instead of measuring time: derives the variant of an experiment that runs in guests with an
//! instruction counter. 10^9 instructions of the whole machine stand for a second, so throughput has the same meaning
//! as in measurements of time. No I/O.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::axis::{AxisParameter, AxisValue};
use super::measure::OutcomeMeasure;
use super::schema::{ExperimentConfig, PaceKind};
use super::units::FigureUnit;

/// Instructions that stand for a second.
pub const PER_SECOND: f64 = 1e9;
/// Number of measurements of a point, by the same guest.
const REPEATS: u32 = 2;

/// The unit that stands for a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountUnit {
    /// A second.
    #[default]
    Clock,
    /// 10^9 instructions of a guest.
    Instructions,
}

impl CountUnit {
    /// The unit of a measure in this mode.
    #[must_use]
    pub fn unit(self, measure: &OutcomeMeasure) -> FigureUnit {
        match self {
            CountUnit::Clock => measure.unit(),
            CountUnit::Instructions => measure.unit().for_instructions(),
        }
    }
}

/// How an experiment is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum MeasurementModes {
    /// By the clock, on this machine.
    #[default]
    Clock,
    /// By instructions, in guests.
    Instructions,
    /// Both, one after the other.
    Both,
}

impl std::fmt::Display for CountUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CountUnit::Clock => "by the clock",
            CountUnit::Instructions => "by instructions",
        })
    }
}

impl MeasurementModes {
    /// The units of the mode, in order.
    #[must_use]
    pub fn units(self) -> &'static [CountUnit] {
        match self {
            MeasurementModes::Clock => &[CountUnit::Clock],
            MeasurementModes::Instructions => &[CountUnit::Instructions],
            MeasurementModes::Both => &[CountUnit::Clock, CountUnit::Instructions],
        }
    }
}

/// The changes to an experiment when instructions are counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CountSettings {
    /// Why the experiment can't be counted.
    pub not: Option<String>,
    /// Minimum number of requests behind a figure.
    pub requests: u64,
    /// Minimum number of warm-up requests, in which caches fill and an adaptive level finishes learning. Default: twice
    /// the requests of a mix, or at most 300 of a single file.
    pub warmup: Option<u64>,
    /// Warm-up in seconds of the guest's time, where rates are offered.
    pub warmup_s: f64,
    /// Measured seconds of the guest's time.
    pub duration_s: f64,
    /// If set, the site is on a disk, and this is the guest's memory in addition to its programs. Servers then have the
    /// number of processes that the experiment file sets, because other processes run while one waits for the disk.
    pub memory_mib: Option<u32>,
    /// Number of simulated clients, if it is not the swept parameter.
    pub connections: Option<u32>,
    /// The points of the sweep, usually fewer than by the clock.
    pub values: Vec<AxisValue>,
    /// Additional settings of the workload.
    pub settings: BTreeMap<String, String>,
}

impl Default for CountSettings {
    fn default() -> Self {
        Self {
            not: None,
            requests: 180,
            warmup: None,
            warmup_s: 0.1,
            duration_s: 0.5,
            memory_mib: None,
            connections: None,
            values: Vec::new(),
            settings: BTreeMap::new(),
        }
    }
}

impl ExperimentConfig {
    /// The variant of the experiment for this unit.
    ///
    /// # Errors
    /// The reason why the experiment can't be measured in this unit.
    pub fn for_unit(&self, unit: CountUnit) -> Result<ExperimentConfig, String> {
        match unit {
            CountUnit::Clock if self.sweep.parameter == AxisParameter::Mtu => {
                Err("only a guest's network can have other packets".to_owned())
            }
            CountUnit::Clock => Ok(self.clone()),
            CountUnit::Instructions => self.for_instructions(),
        }
    }

    /// The name in sentences, equal for all units.
    #[must_use]
    pub fn plain_name(&self) -> &str {
        self.name.strip_suffix(SUFFIX).unwrap_or(&self.name)
    }

    fn for_instructions(&self) -> Result<ExperimentConfig, String> {
        let counting = &self.instructions;
        if let Some(reason) = self.uncountable() {
            return Err(reason);
        }
        let mut experiment = self.clone();
        experiment.by = CountUnit::Instructions;
        // The results differ in kind, so they go to another file.
        experiment.name.push_str(SUFFIX);
        experiment.repeats = REPEATS;
        experiment.load.connections = counting.connections.unwrap_or(self.load.connections);
        match self.is_open_loop() {
            true => {
                experiment.load.warmup_s = counting.warmup_s;
                experiment.load.duration_s = counting.duration_s;
            }
            // The cost of a request determines the capacity, so a search is unnecessary.
            false => {
                experiment.load.pace = PaceKind::Closed;
                // A slow line only makes clients wait, which costs no instructions.
                experiment.load.line_bits_per_s = None;
                experiment.search = None;
            }
        }
        experiment
            .workload
            .settings
            .extend(counting.settings.clone());
        if !counting.values.is_empty() {
            experiment.sweep.values.clone_from(&counting.values);
            // `values` replaces rates relative to a capacity, which would have to be measured first.
            experiment.sweep.relative_to_capacity.clear();
        }
        // A guest has one processor. Servers with one process per connection get as many processes as clients.
        if counting.memory_mib.is_none() {
            for server in &mut experiment.servers {
                server.workers = 1;
            }
        }
        Ok(experiment)
    }

    /// Why the experiment can't be counted.
    #[must_use]
    pub fn uncountable(&self) -> Option<String> {
        self.instructions.not.clone()
    }

    /// Whether each point has an offered rate, which is measured in the guest's own time.
    #[must_use]
    pub fn is_open_loop(&self) -> bool {
        let is_swept = matches!(
            self.sweep.parameter,
            AxisParameter::Rate | AxisParameter::StaticRate
        );
        is_swept || self.load.rate.is_some()
    }
}

/// Suffix of the experiment's name in the names of its results.
const SUFFIX: &str = "-by-instructions";

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
title = "t"
paper = "000"
figure = "figure 2"
question = "Which?"
measure = "both"
workload = { name = "webstone", settings = { size = "64" } }
sweep = { parameter = "connections", label = "clients", values = [8, 64, 512] }
load = { pace = "closed" }
instructions = { values = [8, 64], settings = { set = "small" } }
server = [{ name = "nginx", peer = "nginx", workers = 4 }]
draw = [{ figure = "figure 2", title = "t", measure = "requests_per_s" }]
"#;

    #[test]
    fn instruction_variant_is_closed_loop_with_one_worker() {
        let experiment = ExperimentConfig::parse("one", FILE).expect("a good file");
        assert_eq!(
            experiment.measure.units(),
            [CountUnit::Clock, CountUnit::Instructions]
        );
        let counted = experiment
            .for_unit(CountUnit::Instructions)
            .expect("countable");
        assert_eq!(counted.name, "one-by-instructions");
        assert_eq!(counted.plain_name(), "one");
        assert_eq!(
            counted.sweep.values,
            [AxisValue::Number(8.0), AxisValue::Number(64.0)]
        );
        assert_eq!(counted.servers[0].workers, 1);
        assert_eq!(counted.workload.settings["set"], "small");
        assert_eq!(counted.workload.settings["size"], "64");
    }

    #[test]
    fn disk_bound_variant_keeps_worker_processes() {
        let small = FILE.replace("values = [8, 64],", "memory_mib = 128,");
        let experiment = ExperimentConfig::parse("one", &small).expect("a good file");
        let counted = experiment
            .for_unit(CountUnit::Instructions)
            .expect("countable");
        assert_eq!(counted.instructions.memory_mib, Some(128));
        assert_eq!(counted.servers[0].workers, 4);
    }

    #[test]
    fn open_loop_variant_keeps_its_pace() {
        let rates = FILE
            .replace("\"connections\"", "\"rate\"")
            .replace("closed", "connections");
        let experiment = ExperimentConfig::parse("one", &rates).expect("a good file");
        let counted = experiment
            .for_unit(CountUnit::Instructions)
            .expect("countable");
        assert_eq!(counted.load.pace, PaceKind::Connections);
        assert!(counted.load.duration_s < experiment.load.duration_s);
    }

    #[test]
    fn uncountable_experiment_has_a_reason() {
        let said = FILE.replace("values = [8, 64],", "not = \"no\",");
        let experiment = ExperimentConfig::parse("one", &said).expect("a good file");
        assert_eq!(experiment.uncountable().as_deref(), Some("no"));
    }
}
