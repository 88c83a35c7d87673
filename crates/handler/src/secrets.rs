//! Secrets that the configuration reads from environment variables. The server removes them from its environment after
//! reading: applications that it starts must not find them, neither in their own environment nor in the server's
//! (`/proc/PID/environ`).

use std::collections::HashMap;
use std::sync::OnceLock;

use lowroad_config::{Config, SecretSource};

static TAKEN: OnceLock<HashMap<String, String>> = OnceLock::new();

/// Removes the variables that a configuration names from the environment and keeps their values. Must be called once,
/// while the process has a single thread. Variables that only a later configuration names are not removed.
pub fn take(config: &Config) {
    // `get_or_init` runs this only once: a reload must not remove variables while other threads read the environment.
    TAKEN.get_or_init(|| {
        let urls = config.databases.iter().map(|database| &*database.url);
        let sources = config.document.secret_sources.iter();
        let named = sources.filter_map(|source| match source {
            SecretSource::Env(name) => Some(&**name),
            SecretSource::File(_) | SecretSource::Credential(_) => None,
        });
        let variable_names = urls.flat_map(names).chain(named);
        let variables =
            variable_names.filter_map(|name| Some((name.to_string(), std::env::var(name).ok()?)));
        let secrets: HashMap<_, _> = variables.collect();
        for name in secrets.keys() {
            lowroad_engine::remove_env_variable(name);
        }
        secrets
    });
}

/// The value of a variable, whether it was removed from the environment or not.
pub fn variable(name: &str) -> Option<String> {
    let value = TAKEN.get().and_then(|secrets| secrets.get(name)).cloned();
    value.or_else(|| std::env::var(name).ok())
}

/// The names of the variables in a text with `${NAME}`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("${").skip(1);
    parts.filter_map(|part| part.split_once('}').map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_names_are_found_in_a_text() {
        let found: Vec<_> = names("mysql://${USER}:${P_1}@h/${").collect();
        assert_eq!(found, ["USER", "P_1"]);
    }
}
