//! Experiments: files that define servers, workload and sweep, and the runner that measures them. Load generation and
//! servers are behind [`bench::TestBench`].

pub mod agree;
mod amount;
pub mod axis;
pub mod bench;
pub mod capacity;
pub mod cli;
mod clients;
mod counted;
pub mod counting;
mod database;
pub mod fake;
pub(crate) mod fetch;
mod forms;
mod guests;
pub mod kept;
pub mod machine;
pub mod measure;
pub mod phases;
pub mod plan;
pub mod progress;
pub mod real;
pub mod results;
pub mod runner;
pub mod schema;
mod schema_check;
mod several;
mod site;
pub mod units;
mod warm;

pub use bench::{MeasurementResult, PeerServer, TestBench};
pub use measure::OutcomeMeasure;
pub use results::ResultRecord;
pub use schema::{AxisValue, ExperimentConfig};
