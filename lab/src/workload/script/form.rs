//! The file format of a script, and the errors in it.

use std::collections::BTreeMap;

use regex::bytes::RegexBuilder;
use serde::Deserialize;

use super::super::wire;
use super::template::TextTemplate;
use super::{ScriptStep, StepBody, ValueCapture};
use crate::load;

/// Maximum number of steps: class numbers are bytes, and a longer table would be unreadable.
const STEPS_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormFile {
    #[serde(default)]
    step: Vec<FormEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormEntry {
    method: Option<String>,
    path: String,
    #[serde(default)]
    fields: BTreeMap<String, String>,
    body: Option<String>,
    form: Option<BTreeMap<String, String>>,
    status: Option<u16>,
    #[serde(default)]
    take: BTreeMap<String, String>,
    think: Option<String>,
}

/// Parses the steps of a script; returns them with the number of captured values.
///
/// # Errors
/// The text names the step and the fault.
pub fn steps(text: &str) -> Result<(Vec<ScriptStep>, usize), String> {
    let file: FormFile = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.step.is_empty() || file.step.len() > STEPS_MAX {
        let step_count = file.step.len();
        return Err(format!(
            "a script has 1 to {STEPS_MAX} [[step]], not {step_count}"
        ));
    }
    let (mut steps, mut values) = (Vec::new(), Vec::new());
    for (index, entry) in file.step.into_iter().enumerate() {
        let step = step(entry, &mut values)
            .map_err(|step_error| format!("step {}: {step_error}", index + 1))?;
        steps.push(step);
    }
    Ok((steps, values.len()))
}

fn step(entry: FormEntry, values: &mut Vec<String>) -> Result<ScriptStep, String> {
    let has_body = entry.body.is_some() || entry.form.is_some();
    let method = entry
        .method
        .unwrap_or_else(|| if has_body { "POST" } else { "GET" }.into());
    if !wire::is_method(&method) {
        return Err(format!("{method:?} is not a method"));
    }
    let path = TextTemplate::parse(&entry.path, values)?;
    if !entry.path.starts_with(['/', '{']) {
        return Err(format!("{:?}: a path begins with /", entry.path));
    }
    for (name, value) in &entry.fields {
        check_field(name, value)?;
    }
    let fields = pairs(entry.fields, values)?;
    let body = match (entry.body, entry.form) {
        (None, None) => StepBody::None,
        (Some(text), None) => StepBody::Text(TextTemplate::parse(&text, values)?),
        (None, Some(form)) => StepBody::Form(pairs(form, values)?),
        (Some(_), Some(_)) => return Err("give a body or a form, not both".into()),
    };
    let think_ns = entry.think.as_deref().map_or(Ok((0, 0)), think)?;
    let capture_entries = entry.take.into_iter();
    let captures = capture_entries.map(|(name, pattern)| parse_capture(name, &pattern, values));
    Ok(ScriptStep {
        method,
        path,
        fields,
        body,
        status: entry.status,
        captures: captures.collect::<Result<_, _>>()?,
        think_ns,
    })
}

fn check_field(name: &str, value: &str) -> Result<(), String> {
    if !wire::is_token(name) || !wire::is_value(value) {
        return Err(format!("{name:?} = {value:?} can't be a field"));
    }
    if let Some(reason) = wire::reserved_reason(name) {
        return Err(format!("the field {name} can't be given; {reason}"));
    }
    // The lab itself sets Cookie for each user, and Host for the only server.
    let is_set = |reserved: &&str| name.eq_ignore_ascii_case(reserved);
    match ["host", "cookie"].iter().any(is_set) {
        true => Err(format!("{name} is set by the lab")),
        false => Ok(()),
    }
}

fn pairs(
    table: BTreeMap<String, String>,
    values: &[String],
) -> Result<Vec<(String, TextTemplate)>, String> {
    let pair = |(name, value): (String, String)| {
        let value = TextTemplate::parse(&value, values)?;
        Ok((name, value))
    };
    table.into_iter().map(pair).collect()
}

fn parse_capture(
    name: String,
    pattern: &str,
    values: &mut Vec<String>,
) -> Result<ValueCapture, String> {
    // Responses may have any encoding, so patterns match bytes.
    let pattern = RegexBuilder::new(pattern).unicode(false).build();
    let pattern = pattern.map_err(|error| format!("take.{name}: {error}"))?;
    let known_index = values.iter().position(|known| *known == name);
    let value = known_index.unwrap_or_else(|| {
        values.push(name);
        values.len() - 1
    });
    Ok(ValueCapture { value, pattern })
}

/// Parses `2s`, or `1s-3s` for a random time in this range.
fn think(text: &str) -> Result<(u64, u64), String> {
    let (min_text, max_text) = text.split_once('-').unwrap_or((text, text));
    let ns = |text: &str| {
        let time = load::duration(text.trim()).map_err(|error| format!("think: {error}"))?;
        u64::try_from(time.as_nanos()).map_err(|_| "think: out of range".to_string())
    };
    let (min_ns, max_ns) = (ns(min_text)?, ns(max_text)?);
    if min_ns > max_ns {
        return Err(format!("think: {text:?} ends before it begins"));
    }
    Ok((min_ns, max_ns))
}
