//! The command line of the softirq level in a build without it.

pub use crate::stubs::UnavailableArgs as Attach;
pub use crate::stubs::UnavailableArgs as Detach;
pub use crate::stubs::UnavailableArgs as Doctor;
pub use crate::stubs::UnavailableArgs as Top;
