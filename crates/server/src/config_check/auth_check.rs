//! Checks of the authentication of access rules.

use lowroad_config::passwords::{users, weak_scheme};
use lowroad_config::{AuthConfig, Config, RuleAction};

/// Finds password files with hashes of fast schemes.
pub fn weak_passwords(config: &Config) -> Vec<String> {
    let rules = config.sites.iter().flat_map(|site| &site.access);
    let mut files: Vec<_> = rules.filter_map(password_file).collect();
    // Several rules may share a file.
    files.sort_unstable();
    files.dedup();
    let warnings = files.into_iter().filter_map(|file| {
        // An unreadable file is reported by other checks.
        let users = users(&std::fs::read_to_string(file).ok()?).ok()?;
        let mut weak: Vec<_> = users
            .iter()
            .filter_map(|(name, hash)| Some((name, weak_scheme(hash)?)))
            .collect();
        // The order of a map is random; the warning names the first user.
        weak.sort_unstable();
        let (name, scheme) = weak.first()?;
        Some(format!(
            "{}: {} of {} users have hashes that are fast to try ({name}: {scheme}); set their passwords with htpasswd -B",
            file.display(),
            weak.len(),
            users.len(),
        ))
    });
    warnings.collect()
}

fn password_file(rule: &lowroad_config::RuleConfig) -> Option<&std::path::Path> {
    match &rule.action {
        RuleAction::Auth(AuthConfig {
            password: Some(auth),
            ..
        }) => Some(&auth.file),
        _ => None,
    }
}
