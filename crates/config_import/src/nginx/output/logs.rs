//! Access logs: `[log]` and `[[log.access]]`.

use crate::document::{ConfigDocument, ConfigTable};
use crate::nginx::level::Translation;
use crate::nginx::servers::Server;
use crate::nginx::settings::AccessLogSetting;
use crate::toml_values::{list, quoted};

/// A log with the servers that write to it.
struct UsedLog<'s> {
    setting: &'s AccessLogSetting,
    sites: Vec<String>,
    /// Paths that are not logged.
    excluded: Vec<String>,
    users: usize,
}

/// Writes `[log]`, and further logs.
pub fn write_logs(servers: &[Server], translation: &Translation, document: &mut ConfigDocument) {
    let mut logs: Vec<UsedLog<'_>> = Vec::new();
    for server in servers {
        for setting in server.settings.access_logs.iter().flatten() {
            let index = logs
                .iter()
                .position(|log| log.setting == setting)
                .unwrap_or_else(|| {
                    logs.push(UsedLog {
                        setting,
                        sites: Vec::new(),
                        excluded: Vec::new(),
                        users: 0,
                    });
                    logs.len() - 1
                });
            let log = &mut logs[index];
            log.users += 1;
            log.sites.extend(server.names.first().cloned());
            log.excluded.extend(unlogged_globs(server));
        }
    }
    for log in &mut logs {
        log.excluded.sort();
        log.excluded.dedup();
        log.sites.dedup();
    }
    let mut table = ConfigTable::essential("[log]");
    // [log] has no conditions, so its log must be that of all servers.
    let is_single = logs.len() == 1 && logs[0].users == servers.len();
    if let [log] = &logs[..]
        && is_single
        && log.excluded.is_empty()
        && log.setting.statuses.is_empty()
    {
        table = log_keys(table.key("access", quoted(&log.setting.to)), log.setting);
        logs.clear();
    }
    for ((section, key), process_key) in &translation.definitions.process_keys {
        if *section == "log" {
            table.push(key, &process_key.value, Some(process_key.entry));
        }
    }
    document.push_filled(table);
    for log in &logs {
        let mut table = log_keys(
            ConfigTable::new("[[log.access]]").key("to", quoted(&log.setting.to)),
            log.setting,
        );
        // A site without a name can't be selected.
        if !is_single && log.sites.len() == log.users && log.users < servers.len() {
            table = table.key("site", list(&log.sites));
        }
        if !log.setting.statuses.is_empty() {
            table = table.key("status", list(&log.setting.statuses));
        }
        if !log.excluded.is_empty() {
            table = table.key("path", list(&log.excluded));
        }
        document.push(table);
    }
}

fn log_keys(table: ConfigTable, setting: &AccessLogSetting) -> ConfigTable {
    // The format of combined log lines is the default.
    let table = match &*setting.format {
        "combined" => table,
        format => table.key("format", quoted(format)),
    };
    if setting.is_json {
        table.key("escape", quoted("json"))
    } else {
        table
    }
}

/// The paths of locations with `access_log off`, as exclusions.
fn unlogged_globs(server: &Server) -> Vec<String> {
    let is_off = |logs: &Option<Vec<AccessLogSetting>>| logs.as_ref().is_some_and(Vec::is_empty);
    let locations = server
        .locations
        .iter()
        .filter(|it| is_off(&it.settings.access_logs));
    let globs = locations.flat_map(|it| it.globs.globs.iter());
    globs.map(|glob| format!("!{glob}")).collect()
}
