//! The command line of the softirq level in a build without it.

pub use crate::without::Anything as Attach;
pub use crate::without::Anything as Detach;
pub use crate::without::Anything as Doctor;
pub use crate::without::Anything as Top;
