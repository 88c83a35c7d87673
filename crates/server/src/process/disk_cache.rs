//! The start of the disk cache. If the disk cache can't be used, the server runs without one.

use std::path::Path;

use lowroad_config::Config;
use lowroad_disk::{DiskFolder, FolderError};
use lowroad_engine::helper_pool::HelperPool;
use lowroad_log::ErrorLogger;
use lowroad_store::disk_cache::{self, DiskCache};

use crate::running_server::RunningServer;

/// Locks the disk cache's folder, if one is configured. If the folder can't be used, the server runs without a disk
/// cache.
///
/// # Errors
/// When another server uses the folder.
pub fn take_folder(config: &Config, logger: &ErrorLogger) -> Result<Option<DiskFolder>, String> {
    let Some(path) = &config.server.disk_cache else {
        return Ok(None);
    };
    match DiskFolder::take(path) {
        Ok(folder) => Ok(Some(folder)),
        Err(error @ FolderError::InUse(_)) => Err(format!("disk_cache: {error}")),
        Err(error) => {
            disable(path, &error, logger);
            Ok(None)
        }
    }
}

/// Logs why the disk cache is off. Invalidates the folder's contents, because later purges are not recorded there.
fn disable(path: &Path, reason: &dyn std::fmt::Display, logger: &ErrorLogger) {
    logger.error(format_args!("continues without disk_cache: {reason}"));
    if disk_cache::invalidate_folder(path).is_err() && path.is_dir() {
        logger.error(format_args!(
            "disk_cache: responses that are purged now may reappear when {} is usable again",
            path.display()
        ));
    }
}

/// Opens the disk cache in its folder, and starts its threads. If that fails, the server runs without a disk cache.
///
/// # Errors
/// No thread is available.
pub fn open(
    running: &RunningServer,
    folder: Option<DiskFolder>,
    helpers: &HelperPool,
) -> std::io::Result<()> {
    let config = &running.config.server;
    let (Some(folder), Some(path)) = (folder, &config.disk_cache) else {
        return Ok(());
    };
    match DiskCache::open(folder, path, config.disk_cache_len_max, helpers.clone()) {
        Ok((disk_cache, purge_waiters)) => {
            let (store, logger) = (running.store.clone(), running.logger.clone());
            store.add_disk_cache(disk_cache.clone());
            disk_cache.start_maintenance(purge_waiters, store, logger)
        }
        Err(error) => {
            let reason = format!("the store in {} can't be opened: {error}", path.display());
            disable(path, &reason, &running.logger);
            Ok(())
        }
    }
}
