//! The x axis of an experiment: its values, and the setting that it changes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value on the x axis: a number, or the name of a category.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AxisValue {
    /// A number.
    Number(f64),
    /// A category.
    Text(String),
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisValue::Number(number) => write!(f, "{number}"),
            AxisValue::Text(text) => f.write_str(text),
        }
    }
}

impl AxisValue {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            AxisValue::Number(number) => Some(*number),
            AxisValue::Text(_) => None,
        }
    }
}

/// The parameter that the x axis changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AxisParameter {
    /// Nothing: one point, drawn as bars.
    None,
    /// Simulated clients.
    Connections,
    /// The offered rate of an open loop; if `static_rate` is set, the dynamic part of the rate.
    Rate,
    /// The static part of the offered rate.
    StaticRate,
    /// Processes or threads of each server.
    Workers,
    /// The MTU of a guest's network, in bytes.
    Mtu,
    /// A setting of the workload.
    Workload(String),
    /// A setting of each server.
    Server(String),
}

impl TryFrom<String> for AxisParameter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(match text.as_str() {
            "none" => AxisParameter::None,
            "connections" => AxisParameter::Connections,
            "rate" => AxisParameter::Rate,
            "static_rate" => AxisParameter::StaticRate,
            "workers" => AxisParameter::Workers,
            "mtu" => AxisParameter::Mtu,
            other => match other.split_once('.') {
                Some(("workload", key)) if !key.is_empty() => AxisParameter::Workload(key.into()),
                Some(("server", key)) if !key.is_empty() => AxisParameter::Server(key.into()),
                _ => {
                    return Err(format!(
                        "unknown parameter {other:?}; the parameters are none, connections, rate, \
                         static_rate, workers, mtu, workload.SETTING and server.SETTING"
                    ));
                }
            },
        })
    }
}

impl From<AxisParameter> for String {
    fn from(parameter: AxisParameter) -> String {
        match parameter {
            AxisParameter::None => "none".into(),
            AxisParameter::Connections => "connections".into(),
            AxisParameter::Rate => "rate".into(),
            AxisParameter::StaticRate => "static_rate".into(),
            AxisParameter::Workers => "workers".into(),
            AxisParameter::Mtu => "mtu".into(),
            AxisParameter::Workload(key) => format!("workload.{key}"),
            AxisParameter::Server(key) => format!("server.{key}"),
        }
    }
}
