//! The schema of an experiment file. Errors name file, line and key. Independent of how experiments are run.

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
    /// Closed loop: each connection sends its next request after the response.
    Closed,
    /// This many requests a second.
    Requests,
    /// This many new connections a second.
    Connections,
}

/// The traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficConfig {
    /// The workload's name.
    pub name: String,
    /// The workload's settings, as text.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// The swept parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// The parameter.
    pub parameter: AxisParameter,
    /// The x axis's label.
    pub label: String,
    /// The parameter's values, in order.
    #[serde(default)]
    pub values: Vec<AxisValue>,
    /// Instead of `values`: rates as shares of the capacity of `reference`.
    #[serde(default)]
    pub relative_to_capacity: Vec<f64>,
    /// The server with a capacity of 1, by its name in this file.
    pub reference: Option<String>,
}

/// The settings of the load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSettings {
    /// Closed or open loop.
    pub pace: PaceKind,
    /// Simulated clients; in an open loop the maximum number of simultaneous connections.
    #[serde(default = "default_connections")]
    pub connections: u32,
    /// Offered rate per second, if it is not swept.
    pub rate: Option<f64>,
    /// Static requests a second that are offered in addition to `rate`.
    pub static_rate: Option<f64>,
    /// The workload's setting for the dynamic part, in per cent, when static requests are offered too.
    pub share_setting: Option<String>,
    /// Threads of the load generator.
    #[serde(default = "default_threads")]
    pub threads: u32,
    /// Outstanding requests on one connection.
    #[serde(default = "default_threads")]
    pub pipeline: u32,
    /// Line speed of a client.
    pub line_bits_per_s: Option<u64>,
    /// Seconds before counting.
    #[serde(default = "default_warmup_s")]
    pub warmup_s: f64,
    /// Seconds of counting.
    #[serde(default = "default_duration_s")]
    pub duration_s: f64,
    /// Maximum time for a connection to be established, and for the next bytes of a response.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// Search for the highest rate that a server sustains, at every point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchConfig {
    /// The first rate of the search.
    pub start: f64,
    /// The highest rate.
    pub max: f64,
    /// A rate is sustained only if 99 % of the requests are answered within this time.
    #[serde(default = "default_latency_max_ms")]
    pub latency_max_ms: u64,
}

/// One server of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Its name in legends.
    pub name: String,
    /// Its peer.
    pub peer: String,
    /// Its processes or threads.
    #[serde(default = "default_threads")]
    pub workers: u32,
    /// Deviations from the peer's tuned default.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The server in the paper that this one represents.
    pub stands_for: Option<String>,
    /// Additional points of this server when instructions are counted: those at which the paper compares the server.
    #[serde(default)]
    pub also: Vec<AxisValue>,
}

/// A server of the paper that is unavailable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnavailableServer {
    /// Its name.
    pub name: String,
    /// The reason.
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
    /// The location in the paper: `figure 2`.
    pub figure: String,
    /// The title.
    pub title: String,
    /// The measure on the y axis.
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
    /// The server that the sentence on the figure is about.
    pub subject: Option<String>,
    /// The server that `subject` is compared with.
    pub against: Option<String>,
    /// Numbers in the paper's text.
    #[serde(default)]
    pub paper_series: Vec<PaperSeries>,
    /// Ratios in the paper's text.
    #[serde(default)]
    pub paper_ratio: Vec<PaperRatio>,
    /// Whether the expected throughput of paper `003` (its formula) is shown as well.
    #[serde(default)]
    pub expected_003: bool,
}

/// Points from the paper's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperSeries {
    /// The server in the paper.
    pub name: String,
    /// Pairs of x and y, y in `unit`.
    pub points: Vec<(AxisValue, f64)>,
    /// The unit of y in the paper.
    pub unit: String,
    /// The location in the paper.
    pub place: String,
    /// The server of this experiment to compare with.
    pub ours: Option<String>,
}

/// A ratio that the paper's text gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperRatio {
    /// Numerator and denominator, as the paper names them.
    pub what: String,
    /// The ratio.
    pub value: f64,
    /// The location in the paper, and a paraphrase.
    pub place: String,
    /// The corresponding ratio of this experiment.
    pub ours: Option<OurRatio>,
}

/// A ratio of this experiment's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OurRatio {
    /// The server in the numerator.
    pub of: String,
    /// The server in the denominator.
    pub over: String,
    /// The point; without it, the best point of each server.
    pub at: Option<AxisValue>,
}

/// An experiment file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentConfig {
    /// The file's stem; not in the file.
    #[serde(skip)]
    pub name: String,
    /// How the experiment is measured; not in the file.
    #[serde(skip)]
    pub by: CountUnit,
    /// The title.
    pub title: String,
    /// The paper: `000`.
    pub paper: String,
    /// The figures and tables: `figures 2 and 3`.
    pub figure: String,
    /// The question that the experiment answers.
    pub question: String,
    /// Deviations from the paper's set-up.
    pub differs: Option<String>,
    /// Repeats when measured by the clock.
    #[serde(default = "default_repeats")]
    pub repeats: u32,
    /// The default modes of measurement.
    #[serde(default)]
    pub measure: MeasurementModes,
    /// Deviations when instructions are counted.
    #[serde(default)]
    pub instructions: CountSettings,
    /// The traffic.
    pub workload: TrafficConfig,
    /// The swept parameter.
    pub sweep: SweepConfig,
    /// The settings of the load generator.
    pub load: LoadSettings,
    /// Search for the capacity at each point.
    pub search: Option<SearchConfig>,
    /// The servers.
    #[serde(rename = "server")]
    pub servers: Vec<ServerConfig>,
    /// Servers that are unavailable.
    #[serde(default)]
    pub not_here: Vec<UnavailableServer>,
    /// The figures.
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
    /// The text names file, line, key and a remedy.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Parses a file's text.
    ///
    /// # Errors
    /// The text names line, key and a remedy.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut experiment: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        experiment.name = name.to_owned();
        match super::schema_check::problem(&experiment) {
            None => Ok(experiment),
            Some(problem) => Err(problem.at_line_of(text)),
        }
    }

    /// Finds the server with that name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&ServerConfig> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Identifies the conditions of a server's measurements: results are comparable only if their fingerprints are
    /// equal. Titles, numbers of the paper, additional points and other servers are not part of it.
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
        // Only counted figures depend on these amounts.
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
