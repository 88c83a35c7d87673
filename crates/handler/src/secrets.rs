//! Secrets of the configuration in environment variables. The server removes them from its environment after reading
//! them: programs that it starts must not find them, neither in their own environment nor in the server's
//! (`/proc/PID/environ`).

use std::collections::HashMap;
use std::sync::OnceLock;

use lowroad_config::Config;

static TAKEN: OnceLock<HashMap<String, String>> = OnceLock::new();

/// Moves the variables that a configuration names out of the environment. Once, and while the process has a single
/// thread: variables that only a later configuration names stay in the environment.
pub fn take(config: &Config) {
    // `get_or_init` runs once: a reload must not remove variables while other threads read the environment.
    TAKEN.get_or_init(|| {
        let urls = config.databases.iter().map(|database| &*database.url);
        let variable_names = urls.flat_map(names);
        let variables =
            variable_names.filter_map(|name| Some((name.to_string(), std::env::var(name).ok()?)));
        let secrets: HashMap<_, _> = variables.collect();
        for name in secrets.keys() {
            lowroad_engine::forget_variable(name);
        }
        secrets
    });
}

/// The value of a variable, taken or still in the environment.
pub fn variable(name: &str) -> Option<String> {
    let value = TAKEN.get().and_then(|secrets| secrets.get(name)).cloned();
    value.or_else(|| std::env::var(name).ok())
}

/// The variable names in a text with `${NAME}`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("${").skip(1);
    parts.filter_map(|part| part.split_once('}').map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        let found: Vec<_> = names("mysql://${USER}:${P_1}@h/${").collect();
        assert_eq!(found, ["USER", "P_1"]);
    }
}
