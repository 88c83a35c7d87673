//! The soft-interrupt level where it is not built in: commands that are about the server, too, ask it alone.

use lowroad_config::Feature;
use lowroad_response_cache::purge::{Meant, NOTHING_MEANT};

use crate::cli::Explain;
use crate::cli::servers::{Purge, Status};
use crate::cli::softirq::{Attach, Detach, Doctor, Top};
use crate::{admin, features, say};

/// The level in front of this very server.
pub mod own {
    use std::sync::{Arc, Mutex};

    use lowroad_config::{Config, Feature, Format, Softirq};
    use lowroad_log::{Logger, Sink};

    use self::health::Health;
    use crate::features;
    use crate::running::Running;
    use lowroad_store::changes::Changes;

    /// How the level is.
    pub mod health {
        /// There is none.
        pub enum Health {}

        impl Health {
            /// As `lowroad status` says it.
            pub fn text(&self) -> String {
                match *self {}
            }
        }
    }

    /// What a server has of its level: nothing.
    #[derive(Default)]
    pub struct Own {
        /// Nobody.
        pub keeper: Option<Keeper>,
        /// None.
        pub health: Option<Arc<Health>>,
        /// Nothing.
        pub note: Option<String>,
    }

    /// Whoever would keep it.
    pub enum Keeper {}

    impl Keeper {
        /// Answers its questions.
        pub fn answer(&self, _: Arc<Mutex<Running>>) -> std::io::Result<()> {
            match *self {}
        }

        /// Ends it.
        pub fn end(self) {
            match self {}
        }
    }

    /// Refuses, if it is wanted.
    pub fn start(
        config: &Config,
        _: Option<(Sink, Format)>,
        _: &Logger,
        _: &Arc<Changes>,
    ) -> Result<Own, String> {
        match &config.server.softirq {
            Softirq::Off => Ok(Own::default()),
            _ => features::need(Feature::Softirq, "softirq").map(|()| Own::default()),
        }
    }
}

/// In front of another server.
pub mod worker {
    /// What takes its connections.
    pub mod front {
        use std::sync::mpsc::Sender;

        use crate::process::News;
        use lowroad_site::listeners::{Listeners, Opened};

        /// Nothing.
        pub enum Front {}

        impl Front {
            /// Takes them.
            pub fn intercept(&mut self, _: &mut Listeners, _: &Opened) -> Result<(), String> {
                match *self {}
            }

            /// Says that it serves.
            pub fn serves(&self, _: Sender<News>) -> std::io::Result<()> {
                match *self {}
            }

            /// Takes no more.
            pub fn let_go(&mut self) {
                match *self {}
            }
        }
    }
}

/// `lowroad explain`.
pub fn explain(args: &Explain) -> Result<(), String> {
    match args.netns {
        Some(_) => lacking("--netns"),
        None => admin::ask_to_explain(args, admin::EVERY_SERVER),
    }
}

/// `lowroad status`.
pub fn status(args: &Status) -> Result<(), String> {
    admin::ask_status(args.admin.as_deref())
}

/// `lowroad purge`.
pub fn purge(args: &Purge) -> Result<(), String> {
    let _: Meant = args.what.parse()?;
    let servers = admin::ask_to_purge(args, admin::EVERY_SERVER);
    if servers.is_empty() {
        return Err(format!(
            "{}: no server that may be asked was found",
            args.what
        ));
    }
    match servers.iter().all(|server| server.is_unmatched) {
        true => say::out(NOTHING_MEANT),
        false => say::out("purged at once\n"),
    }
}

/// `lowroad attach`.
pub fn attach(_: &Attach) -> Result<(), String> {
    lacking("lowroad attach")
}

/// `lowroad detach`.
pub fn detach(_: &Detach) -> Result<(), String> {
    lacking("lowroad detach")
}

/// `lowroad doctor`.
pub fn doctor(_: &Doctor) -> Result<(), String> {
    lacking("lowroad doctor")
}

/// `lowroad top`.
pub fn top(_: &Top) -> Result<(), String> {
    lacking("lowroad top")
}

fn lacking(what: &str) -> Result<(), String> {
    features::need(Feature::Softirq, what)
}
