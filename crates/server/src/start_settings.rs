//! The settings that a running server uses since its start. Reloads compare them with the new configuration.

use lowroad_config::{
    AdminConfig, Config, EffectiveConfig, LogConfig, ProcessConfig, StartTables, TracesConfig,
};

/// The sections of a configuration that only a start applies.
pub struct StartSettings {
    server: ProcessConfig,
    log: LogConfig,
    traces: Option<TracesConfig>,
    admin: AdminConfig,
    tables: StartTables,
    effective: EffectiveConfig,
}

impl StartSettings {
    /// The settings of a configuration that is being started.
    pub fn new(config: &Config) -> StartSettings {
        StartSettings {
            server: config.server.clone(),
            log: config.log.clone(),
            traces: config.traces.clone(),
            admin: config.admin.clone(),
            tables: config.start_tables.clone(),
            effective: config.document.effective.clone(),
        }
    }

    /// The values in force at the start.
    pub fn effective(&self) -> &EffectiveConfig {
        &self.effective
    }

    /// The message that settings of a configuration are not in force, with their keys; `None` if all are.
    pub fn restart_note(&self, new: &Config) -> Option<String> {
        // These settings of `[server]` take effect without a restart.
        let same_size = ProcessConfig {
            disk_cache_len_max: new.server.disk_cache_len_max,
            http3: new.server.http3,
            ..self.server.clone()
        };
        // Also compared by value, since a value may be written in several ways.
        let is_same = new.server == same_size
            && new.log == self.log
            && new.traces == self.traces
            && new.admin == self.admin;
        let keys = self.tables.changed_keys(&new.start_tables);
        // A secret in another place may change without a key.
        if keys.is_empty() && (new.traces != self.traces || new.admin != self.admin) {
            return Some(
                "changed secrets of [admin] and [traces] need `lowroad upgrade`".to_owned(),
            );
        }
        (!is_same && !keys.is_empty())
            .then(|| format!("these changes need `lowroad upgrade`: {}", keys.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::SecretText;

    fn config(text: &str) -> Config {
        let text = format!("{text}\n[[site]]\nroot = \"/\"\n");
        lowroad_config::parse(&text, std::path::Path::new("lowroad.toml")).expect("a configuration")
    }

    #[test]
    fn each_section_that_only_a_start_applies_is_compared() {
        let started = StartSettings::new(&config(""));
        for (text, key) in [
            ("[server]\nworkers = 3", "server.workers"),
            ("[log]\nlevel = \"warn\"", "log.level"),
            ("[traces]\nsample = 0.5", "traces.sample"),
            (
                "[admin]\nlisten = \"127.0.0.1:9\"\ntoken_file = \"/token\"",
                "admin.listen, admin.token_file",
            ),
        ] {
            let note = started.restart_note(&config(text));
            let note = note.expect("a note");
            assert!(note.ends_with(key), "{note}");
        }
        assert_eq!(started.restart_note(&config("")), None);
        let mut rotated = config("");
        rotated.admin.token = Some(SecretText::new("0123456789abcdef"));
        let note = started.restart_note(&rotated).expect("a note");
        assert!(note.starts_with("changed secrets"), "{note}");
    }
}
