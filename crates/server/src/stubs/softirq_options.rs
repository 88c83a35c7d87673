//! The command line of the softirq level in a build without the feature.

pub use crate::stubs::UnavailableArgs as AttachArgs;
pub use crate::stubs::UnavailableArgs as DetachArgs;
pub use crate::stubs::UnavailableArgs as DoctorArgs;
