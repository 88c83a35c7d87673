//! Gets and keeps certificates for names by ACME (RFC 8555), on a tokio runtime beside the workers. It knows no
//! listener: it says what certificates and challenges there are ([`Manager::add_to`]), and when that has changed.
//!
//! | | |
//! |---|---|
//! | [`Settings`] | which authorities, names, challenges and limits |
//! | [`Manager`], [`View`] | runs it; certificates, challenges and states are asked of it |
//! | [`Tokens`] | what workers answer to `http-01` |
//! | [`plan`] | what is due when, without a clock, a network or a file |
//! | [`Trouble`] | why there is no certificate, sorted by who can help |

#![forbid(unsafe_code)]

mod account;
mod ask;
mod challenge;
mod clock;
mod error;
mod file_rights;
mod folder;
mod hook;
mod http;
mod issued;
mod manager;
pub mod name;
mod order;
pub mod plan;
mod settings;
mod severity;
mod state;
mod tokens;

pub use clock::Clock;
pub use manager::{Denied, Event, Manager, View};
pub use plan::{Kind, Trouble};
pub use settings::{Authority, Challenge, ExternalAccount, Hook, OnDemand, Problem, Settings};
pub use severity::Severity;
pub use state::{Next, State};
pub use tokens::{PATH_PREFIX, Tokens};
