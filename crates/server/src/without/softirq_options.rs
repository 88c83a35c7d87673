//! The command line of the soft-interrupt level where that is not built in: what `status` and `purge` say to servers.

use std::path::PathBuf;

use clap::Args;

pub use crate::without::Anything as Attach;
pub use crate::without::Anything as Detach;
pub use crate::without::Anything as Doctor;
pub use crate::without::Anything as Top;

/// `lowroad purge`.
#[derive(Args)]
pub struct Purge {
    /// What: a URL, a URL with * at its end for all that begin so, tag:NAME, or `all`
    #[arg(value_name = "URL")]
    pub what: String,
    /// Only what was asked at this port
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The server's admin socket, if it is not at the default place
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
}

/// `lowroad status`.
#[derive(Args)]
pub struct Status {
    /// The server's admin socket, if it is not at the default place
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
}
