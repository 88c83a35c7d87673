//! Obtains and renews certificates with ACME (RFC 8555), on a tokio runtime separate from the workers. Independent of
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
mod authority_client;
mod challenge;
mod clock;
mod demand_check;
mod error;
mod file_rights;
mod folder;
mod hook;
mod issued_certificate;
mod manager;
pub mod name;
mod order;
pub mod plan;
mod settings;
mod severity;
mod state;
mod tokens;

pub use clock::SystemClock;
pub use manager::{AcmeEvent, CertificateManager, CertificateView, DemandRefusal};
pub use plan::{AcmeFailure, FailureKind};
pub use settings::{
    AcmeProblem, AcmeSettings, AuthoritySettings, ChallengeMethod, DnsHook, ExternalAccount,
    OnDemandSettings,
};
pub use severity::Severity;
pub use state::{CertificateState, RenewalStep};
pub use tokens::{ChallengeTokens, PATH_PREFIX};
