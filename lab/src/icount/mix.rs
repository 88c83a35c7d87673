//! A workload's traffic and files for a guest with its site at /srv. Independent of servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::drive::DriveRequest;
use super::kernel::{CopiedPath, cache};
use crate::workload::{self, TrafficWorkload, files};

/// A workload with its settings.
#[derive(Clone, Debug)]
pub struct WorkloadMix {
    /// Its name.
    pub name: &'static str,
    settings: BTreeMap<String, String>,
}

impl WorkloadMix {
    /// The workload with that name.
    ///
    /// # Errors
    /// An unknown name, setting or value; the text lists the allowed ones.
    pub fn new(name: &str, settings: &BTreeMap<String, String>) -> Result<WorkloadMix, String> {
        workload::named(name, settings, "host")?;
        let entry = workload::NAMES.iter().find(|(entry, _)| *entry == name);
        let (name, _) = entry.expect("it has just been made");
        let settings = settings.clone();
        Ok(WorkloadMix { name, settings })
    }

    /// The workload's traffic; `host` is the value of the `Host` field.
    ///
    /// # Errors
    /// As for [`WorkloadMix::new`].
    pub fn drive_request(&self, host: &str) -> Result<DriveRequest, String> {
        let traffic: Arc<dyn TrafficWorkload> = workload::named(self.name, &self.settings, host)?;
        Ok(DriveRequest::Workload(self.name, traffic))
    }

    /// The workload's files, created once and cached: the content of the guest's /srv.
    ///
    /// # Errors
    /// The files can't be written; the text gives the reason.
    pub fn site(&self) -> Result<CopiedPath, String> {
        // The settings decide the files, so they are part of the folder's name.
        let sum = crc32fast::hash(format!("{:?}", self.settings).as_bytes());
        let folder = cache()?.join(format!("{}-{sum:08x}", self.name));
        files::make(self.name, &self.settings, &folder, &mut |_| {})?;
        Ok(CopiedPath {
            source: folder.join("site"),
            path: "srv".into(),
        })
    }
}
