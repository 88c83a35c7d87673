//! The form of an experiment file: what may stand in it, what it means, and what is wrong with it
//! (file, line, key). It knows nothing of how an experiment is run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::amount::AMOUNTS;
use super::counting::{CountSettings, CountUnit, MeasurementModes};
use super::measure::OutcomeMeasure;

pub use super::axis::{AxisParameter, AxisValue};

/// How requests are paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaceKind {
    /// Each connection asks when it has its answer.
    Closed,
    /// So many requests a second.
    Requests,
    /// So many new connections a second.
    Connections,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficConfig {
    /// The workload's name.
    pub name: String,
    /// Its settings, as text.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// What changes from point to point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// What it is.
    pub parameter: AxisParameter,
    /// The x axis's label.
    pub label: String,
    /// Its values, in order.
    #[serde(default)]
    pub values: Vec<AxisValue>,
    /// In place of `values`: rates as shares of what `reference` can do.
    #[serde(default)]
    pub relative_to_capacity: Vec<f64>,
    /// The server, by its name here, whose capacity is 1.
    pub reference: Option<String>,
}

/// How the load generator works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSettings {
    /// Closed or open loop.
    pub pace: PaceKind,
    /// Simulated clients; in an open loop the most connections at a time.
    #[serde(default = "default_connections")]
    pub connections: u32,
    /// Offered a second, where the sweep does not say.
    pub rate: Option<f64>,
    /// Static requests a second that are offered beside `rate`.
    pub static_rate: Option<f64>,
    /// The workload's setting that takes the dynamic part, in per cent, beside static requests.
    pub share_setting: Option<String>,
    /// Threads that make requests.
    #[serde(default = "default_threads")]
    pub threads: u32,
    /// Requests under way on one connection.
    #[serde(default = "default_threads")]
    pub pipeline: u32,
    /// A client's line.
    pub line_bits_per_s: Option<u64>,
    /// Seconds before counting.
    #[serde(default = "default_warmup_s")]
    pub warmup_s: f64,
    /// Seconds of counting.
    #[serde(default = "default_duration_s")]
    pub duration_s: f64,
    /// How long a connection or an answer may take.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// Look, at every point, for the highest rate that a server sustains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchConfig {
    /// The first rate that is tried.
    pub start: f64,
    /// The highest.
    pub max: f64,
    /// 99 of 100 requests are answered within this time, or the rate is not sustained.
    #[serde(default = "default_latency_max_ms")]
    pub latency_max_ms: u64,
}

/// One server of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Its name in legends.
    pub name: String,
    /// The peer that it is.
    pub peer: String,
    /// Its processes or threads.
    #[serde(default = "default_threads")]
    pub workers: u32,
    /// What differs from the peer's tuned default.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What it stands for in the paper.
    pub stands_for: Option<String>,
    /// Points of its own beside the sweep's, where instructions are counted: those that the paper compares it at.
    #[serde(default)]
    pub also: Vec<AxisValue>,
}

/// A server of the paper that can't be had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnavailableServer {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureKind {
    /// Lines over the x axis.
    #[default]
    Lines,
    /// Bars, grouped by x.
    Bars,
}

/// One figure (or table) of the paper, from this experiment's runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureConfig {
    /// Where it stands: `figure 2`.
    pub figure: String,
    /// What it shows.
    pub title: String,
    /// What y is.
    pub measure: OutcomeMeasure,
    /// Lines or bars.
    #[serde(default)]
    pub kind: FigureKind,
    /// Whether x is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Whether y is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// The servers shown; empty for all.
    #[serde(default)]
    pub only: Vec<String>,
    /// Whom the sentence is about.
    pub subject: Option<String>,
    /// Whom it is compared with.
    pub against: Option<String>,
    /// What the paper's text says in numbers.
    #[serde(default)]
    pub paper_series: Vec<PaperSeries>,
    /// What it says in ratios.
    #[serde(default)]
    pub paper_ratio: Vec<PaperRatio>,
    /// Whether the expected throughput of paper `003` (its formula) is put beside.
    #[serde(default)]
    pub expected_003: bool,
}

/// Points that the paper's text gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperSeries {
    /// Whose.
    pub name: String,
    /// Pairs of x and y, y in `unit`.
    pub points: Vec<(AxisValue, f64)>,
    /// The unit of y, as the paper has it.
    pub unit: String,
    /// Where it stands.
    pub place: String,
    /// The server of ours to put beside it.
    pub ours: Option<String>,
}

/// A ratio that the paper's text gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperRatio {
    /// What over what, in the paper's names.
    pub what: String,
    /// How many times.
    pub value: f64,
    /// Where it stands and what is said there, in our words.
    pub place: String,
    /// The same of ours.
    pub ours: Option<OurRatio>,
}

/// Which of our figures are divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OurRatio {
    /// The server above the line.
    pub of: String,
    /// The server below it.
    pub over: String,
    /// Where on the x axis; without it, each server's best.
    pub at: Option<AxisValue>,
}

/// A whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentConfig {
    /// The file's name without its ending; not in the file.
    #[serde(skip)]
    pub name: String,
    /// What it is measured by here; not in the file.
    #[serde(skip)]
    pub by: CountUnit,
    /// What it is about.
    pub title: String,
    /// Which paper: `000`.
    pub paper: String,
    /// Which figures and tables: `figures 2 and 3`.
    pub figure: String,
    /// What it asks.
    pub question: String,
    /// What differs from the paper's set-up.
    pub differs: Option<String>,
    /// How often everything is measured by the clock.
    #[serde(default = "default_repeats")]
    pub repeats: u32,
    /// How it is measured, unless the user says otherwise.
    #[serde(default)]
    pub measure: MeasurementModes,
    /// What differs where instructions are counted.
    #[serde(default)]
    pub instructions: CountSettings,
    /// What is asked for.
    pub workload: TrafficConfig,
    /// What changes.
    pub sweep: SweepConfig,
    /// How it is asked.
    pub load: LoadSettings,
    /// Search for the capacity at each point.
    pub search: Option<SearchConfig>,
    /// Who is asked.
    #[serde(rename = "server")]
    pub servers: Vec<ServerConfig>,
    /// Who can't be.
    #[serde(default)]
    pub not_here: Vec<UnavailableServer>,
    /// What is drawn.
    #[serde(rename = "draw")]
    pub figures: Vec<FigureConfig>,
}

fn default_connections() -> u32 {
    64
}

fn default_threads() -> u32 {
    1
}

fn default_warmup_s() -> f64 {
    0.5
}

fn default_duration_s() -> f64 {
    2.0
}

fn default_timeout_ms() -> u64 {
    2000
}

fn default_latency_max_ms() -> u64 {
    500
}

fn default_repeats() -> u32 {
    10
}

impl ExperimentConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// With file, line, key and what to do.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// With line, key and what to do.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut experiment: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        experiment.name = name.to_owned();
        match super::schema_check::problem(&experiment) {
            None => Ok(experiment),
            Some(problem) => Err(problem.at_line_of(text)),
        }
    }

    /// The server of that name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&ServerConfig> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// What identifies a server's measurements: they can be compared only if all this is equal.
    /// Titles, numbers of the paper, further points and servers may change without harm.
    #[must_use]
    pub fn fingerprint(&self, server: &ServerConfig, scale: f64) -> String {
        let sweep = (&self.sweep.parameter, &self.sweep.reference);
        let server = (&server.name, &server.peer, server.workers, &server.settings);
        let basis = (
            &self.workload,
            sweep,
            &self.load,
            &self.search,
            server,
            scale,
        );
        let mut text = serde_json::to_string(&basis).expect("plain data");
        if self.by == CountUnit::Instructions {
            let counting = (self.instructions.requests, self.instructions.warmup);
            text += &serde_json::to_string(&counting).expect("plain data");
            text += &serde_json::to_string(&AMOUNTS).expect("plain data");
            if let Some(memory_mib) = self.instructions.memory_mib {
                text += &format!("{memory_mib} MiB");
            }
        }
        format!("{:08x}", crc32fast::hash(text.as_bytes()))
    }
}
