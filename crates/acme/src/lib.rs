//! Obtains and renews certificates by ACME (RFC 8555), on a tokio runtime beside the workers. Independent of
//! listeners: it provides certificates and challenges (`CertificateManager::add_to`), and reports when they change.
//!
//! | | |
//! |---|---|
//! | `AcmeSettings` | authorities, names, challenges and limits |
//! | `CertificateManager`, `CertificateView` | runs the orders; provides certificates, challenges and states |
//! | `ChallengeTokens` | the workers' responses for `http-01` |
//! | [`plan`] | the next step and its time, without a clock, a network or a file |
//! | `AcmeFailure` | the reason for a missing certificate, classified by its remedy |

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
