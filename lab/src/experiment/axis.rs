//! The x axis of an experiment: its places, and which setting it changes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place on the x axis: a number, or the name of a category.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A place on a scale.
    Number(f64),
    /// A category.
    Text(String),
}

impl fmt::Display for X {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            X::Number(number) => write!(to, "{number}"),
            X::Text(text) => to.write_str(text),
        }
    }
}

impl X {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            X::Number(number) => Some(*number),
            X::Text(_) => None,
        }
    }
}

/// What changes along the x axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Parameter {
    /// Nothing: one point, drawn as bars.
    None,
    /// Simulated clients.
    Connections,
    /// What is offered a second in an open loop; with `static_rate` the dynamic part of it.
    Rate,
    /// The static part of what is offered a second.
    StaticRate,
    /// Processes or threads that answer, of each server.
    Workers,
    /// The longest packet of a guest's network, in bytes.
    Mtu,
    /// A setting of the workload.
    Workload(String),
    /// A setting of each server.
    Server(String),
}

impl TryFrom<String> for Parameter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(match text.as_str() {
            "none" => Parameter::None,
            "connections" => Parameter::Connections,
            "rate" => Parameter::Rate,
            "static_rate" => Parameter::StaticRate,
            "workers" => Parameter::Workers,
            "mtu" => Parameter::Mtu,
            other => match other.split_once('.') {
                Some(("workload", key)) if !key.is_empty() => Parameter::Workload(key.into()),
                Some(("server", key)) if !key.is_empty() => Parameter::Server(key.into()),
                _ => {
                    return Err(format!(
                        "no parameter {other:?}: there are none, connections, rate, static_rate, \
                         workers, mtu, workload.SETTING and server.SETTING"
                    ));
                }
            },
        })
    }
}

impl From<Parameter> for String {
    fn from(parameter: Parameter) -> String {
        match parameter {
            Parameter::None => "none".into(),
            Parameter::Connections => "connections".into(),
            Parameter::Rate => "rate".into(),
            Parameter::StaticRate => "static_rate".into(),
            Parameter::Workers => "workers".into(),
            Parameter::Mtu => "mtu".into(),
            Parameter::Workload(key) => format!("workload.{key}"),
            Parameter::Server(key) => format!("server.{key}"),
        }
    }
}
