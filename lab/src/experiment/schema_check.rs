//! Checks of an experiment file that its types can't express: references and ranges. The message for each problem names
//! the key and a remedy.

use super::schema::{AxisParameter, AxisValue, ExperimentConfig, FigureConfig, PaceKind};

/// A problem, with a piece of text (`needle`) from the line that causes it.
pub struct SchemaProblem {
    key: &'static str,
    needle: String,
    text: String,
}

impl SchemaProblem {
    fn new(key: &'static str, needle: &str, text: String) -> Option<Self> {
        Some(Self {
            key,
            needle: needle.to_owned(),
            text,
        })
    }

    /// The message, with the number of the first line in `source` that contains the needle.
    pub fn at_line_of(&self, source: &str) -> String {
        let has_needle = |line: &&str| line.contains(&self.needle);
        let starts = |line: &&str| line.trim_start().starts_with(self.key);
        let lines = || source.lines();
        let line_index = lines()
            .position(|line| has_needle(&line) && starts(&line))
            .or_else(|| lines().position(|line| has_needle(&line)))
            .or_else(|| lines().position(|line| starts(&line)));
        let line = line_index.map_or(String::new(), |index| format!("line {}: ", index + 1));
        format!("{line}{}: {}", self.key, self.text)
    }
}

/// Returns the first problem, if any.
pub fn problem(experiment: &ExperimentConfig) -> Option<SchemaProblem> {
    numbers(experiment)
        .or_else(|| servers(experiment))
        .or_else(|| sweep(experiment))
        .or_else(|| pace(experiment))
        .or_else(|| figures(experiment))
}

/// Maximum number of requests of a figure, and of its warm-up. A guest runs for at most 100 s of its time, which allows
/// 10^6 instructions for each.
const COUNTED_MAX: u64 = 100_000;
/// Range of an MTU in bytes: IPv4 needs 68 (RFC 791), and a tap device supports up to 65,521.
const MTU: std::ops::RangeInclusive<f64> = 68.0..=65521.0;

fn numbers(experiment: &ExperimentConfig) -> Option<SchemaProblem> {
    let load = &experiment.load;
    let problem = |key, text: &str| SchemaProblem::new(key, key, text.to_owned());
    if experiment.repeats == 0 {
        return problem("repeats", "must be 1 or more");
    }
    if !(load.duration_s > 0.0 && load.duration_s <= 3600.0) {
        return problem("duration_s", "must be more than 0 and at most 3600");
    }
    if !(load.warmup_s >= 0.0 && load.warmup_s <= 3600.0) {
        return problem("warmup_s", "must be 0 to 3600");
    }
    if load.connections == 0 || load.threads == 0 || load.pipeline == 0 {
        return problem(
            "[load]",
            "connections, threads and pipeline must be 1 or more",
        );
    }
    if load.timeout_ms == 0 {
        return problem("timeout_ms", "must be 1 or more");
    }
    let counting = &experiment.instructions;
    if !(1..=COUNTED_MAX).contains(&counting.requests) {
        let text = format!("must be 1 to {COUNTED_MAX}");
        return SchemaProblem::new("requests", "requests =", text);
    }
    if counting.warmup.is_some_and(|warmup| warmup > COUNTED_MAX) {
        let text = format!("must be at most {COUNTED_MAX}");
        return SchemaProblem::new("warmup", "warmup =", text);
    }
    let search = experiment.search.as_ref()?;
    (!(search.start > 0.0 && search.max >= search.start && search.max.is_finite()))
        .then(|| SchemaProblem::new("[search]", "[search]", "0 < start <= max must hold".into()))?
}

fn servers(experiment: &ExperimentConfig) -> Option<SchemaProblem> {
    if experiment.servers.is_empty() {
        return SchemaProblem::new(
            "server",
            "[[server]]",
            "an experiment needs a [[server]]".into(),
        );
    }
    for (index, server) in experiment.servers.iter().enumerate() {
        let twice = experiment.servers[..index]
            .iter()
            .any(|other| other.name == server.name);
        if twice {
            let text = format!(
                "two servers are named {:?}; give one another name",
                server.name
            );
            return SchemaProblem::new("name", &server.name, text);
        }
        if server.workers == 0 {
            return SchemaProblem::new("workers", "workers = 0", "must be 1 or more".into());
        }
    }
    None
}

fn sweep(experiment: &ExperimentConfig) -> Option<SchemaProblem> {
    let sweep = &experiment.sweep;
    let sweep_problem = |key, text: &str| SchemaProblem::new(key, key, text.to_owned());
    match (
        sweep.values.is_empty(),
        sweep.relative_to_capacity.is_empty(),
    ) {
        (true, true) => return sweep_problem("values", "give values, or relative_to_capacity"),
        (false, false) => {
            return sweep_problem("relative_to_capacity", "give this or values, not both");
        }
        (true, false) => {
            let Some(reference) = &sweep.reference else {
                return sweep_problem(
                    "reference",
                    "relative_to_capacity needs the server that is 1",
                );
            };
            if let Some(problem) = unknown(experiment, "reference", reference) {
                return Some(problem);
            }
            // Relative values multiply a capacity, which is a rate.
            if sweep.parameter != AxisParameter::Rate {
                return sweep_problem("relative_to_capacity", "is for parameter = \"rate\"");
            }
        }
        (false, true) => {}
    }
    let numeric = matches!(
        sweep.parameter,
        AxisParameter::Connections
            | AxisParameter::Rate
            | AxisParameter::StaticRate
            | AxisParameter::Workers
            | AxisParameter::Mtu
    );
    if numeric {
        let is_positive = |number: f64| number >= 0.0 && number.is_finite();
        let needed = "must be numbers, 0 or more, for this parameter";
        if let Some(problem) = unfit(experiment, is_positive, needed) {
            return Some(problem);
        }
    }
    if sweep.parameter == AxisParameter::Mtu {
        let is_mtu = |number: f64| MTU.contains(&number) && number.fract() == 0.0;
        let needed = format!(
            "must be whole numbers of {} to {} bytes",
            MTU.start(),
            MTU.end()
        );
        if let Some(problem) = unfit(experiment, is_mtu, &needed) {
            return Some(problem);
        }
    }
    if sweep.parameter == AxisParameter::None && sweep.values.len() != 1 {
        return sweep_problem("values", "must be one name for parameter = \"none\"");
    }
    sweep
        .relative_to_capacity
        .iter()
        .any(|share| !(*share > 0.0 && *share <= 10.0))
        .then(|| {
            SchemaProblem::new(
                "relative_to_capacity",
                "relative_to_capacity",
                "shares must be more than 0 and at most 10".into(),
            )
        })?
}

/// The first point that the parameter does not allow, and where it is.
fn unfit(
    experiment: &ExperimentConfig,
    fits: impl Fn(f64) -> bool,
    needed: &str,
) -> Option<SchemaProblem> {
    let all_fit = |values: &[AxisValue]| values.iter().all(|x| x.number().is_some_and(&fits));
    if !all_fit(&experiment.sweep.values) {
        return SchemaProblem::new("values", "values", needed.to_owned());
    }
    if !all_fit(&experiment.instructions.values) {
        return SchemaProblem::new("[instructions]", "instructions", format!("values {needed}"));
    }
    let mut servers = experiment.servers.iter();
    (!servers.all(|server| all_fit(&server.also)))
        .then(|| SchemaProblem::new("also", "also", needed.to_owned()))?
}

fn pace(experiment: &ExperimentConfig) -> Option<SchemaProblem> {
    let load = &experiment.load;
    let open = load.pace != PaceKind::Closed;
    let rate_known = load.rate.is_some()
        || experiment.search.is_some()
        || experiment.sweep.parameter == AxisParameter::Rate;
    let problem = |text: &str| SchemaProblem::new("pace", "pace", text.to_owned());
    match (open, rate_known) {
        (true, false) => {
            problem("an open loop needs a rate: load.rate, a sweep of it, or [search]")
        }
        (false, true) => {
            problem("a closed loop has no rate: write \"requests\" or \"connections\"")
        }
        _ if load.static_rate.is_some() && load.share_setting.is_none() => {
            problem("static_rate needs share_setting: the workload's setting for the dynamic share")
        }
        _ => None,
    }
}

fn figures(experiment: &ExperimentConfig) -> Option<SchemaProblem> {
    if experiment.figures.is_empty() {
        return SchemaProblem::new("draw", "[[draw]]", "an experiment needs a [[draw]]".into());
    }
    experiment
        .figures
        .iter()
        .find_map(|figure| figure_problem(experiment, figure))
}

fn figure_problem(experiment: &ExperimentConfig, figure: &FigureConfig) -> Option<SchemaProblem> {
    if figure.measure.is_capacity() && experiment.search.is_none() {
        let text = "capacity is only found with a [search]".to_owned();
        return SchemaProblem::new("measure", "\"capacity\"", text);
    }
    let only = figure.only.iter().map(|name| ("only", name));
    let subject = figure.subject.iter().map(|name| ("subject", name));
    let against = figure.against.iter().map(|name| ("against", name));
    let points = figure.paper_series.iter().filter_map(|s| s.ours.as_ref());
    let ratios = figure
        .paper_ratio
        .iter()
        .filter_map(|ratio| ratio.ours.as_ref());
    only.chain(subject)
        .chain(against)
        .chain(points.map(|name| ("ours", name)))
        .chain(ratios.flat_map(|our_ratio| [("ours", &our_ratio.of), ("ours", &our_ratio.over)]))
        .find_map(|(key, name)| unknown(experiment, key, name))
}

fn unknown(experiment: &ExperimentConfig, key: &'static str, name: &str) -> Option<SchemaProblem> {
    if experiment.server(name).is_some() {
        return None;
    }
    let names: Vec<_> = experiment
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    let text = format!(
        "no server is named {name:?} here; the servers are: {}",
        names.join(", ")
    );
    SchemaProblem::new(key, &format!("{name:?}"), text)
}
