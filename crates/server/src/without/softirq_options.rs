//! The command line of the soft-interrupt level where that is not built in.

pub use crate::without::Anything as Attach;
pub use crate::without::Anything as Detach;
pub use crate::without::Anything as Doctor;
pub use crate::without::Anything as Top;
