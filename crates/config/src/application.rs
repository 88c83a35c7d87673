//! Reads `[[application]]`: a program that the server starts and supervises, usually the origin of its sites.

use crate::ApplicationConfig;
use crate::named::{self, HOUR_MS};
use crate::origin_url;
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};

/// Reads an application; also returns the position of its name.
pub(crate) fn application(section: ConfigSection<'_>) -> Option<(ApplicationConfig, KeyPosition)> {
    let name_item = section.required("name");
    let name = name_item.as_ref().and_then(named::name);
    let command = section.required("command").and_then(|item| command(&item));
    let default = ApplicationConfig::new(name.unwrap_or_default(), command.unwrap_or_default());
    let application = ApplicationConfig {
        folder: section.item("folder").and_then(|item| item.path()),
        env: section
            .section("env")
            .map_or_else(Vec::new, named::environment),
        ready: section
            .item("ready")
            .and_then(|item| item.read(origin_url::url)),
        start_timeout_ms: section.duration_ms(
            "start_timeout",
            default.start_timeout_ms,
            1..=HOUR_MS,
        ),
        stop_timeout_ms: section.duration_ms("stop_timeout", default.stop_timeout_ms, 1..=HOUR_MS),
        ..default
    };
    section.finish();
    // A missing name was reported by `required`.
    let position = name_item?.position;
    (!application.command.is_empty()).then_some((application, position))
}

/// A program and its arguments.
fn command(item: &ConfigValue<'_>) -> Option<Vec<String>> {
    let texts = item.items()?;
    let command: Option<Vec<String>> = texts.iter().map(|text| text.plain_text()).collect();
    let command = command?;
    match command.first() {
        Some(program) if !program.is_empty() => Some(command),
        _ => {
            item.report("the command is empty", "[\"PROGRAM\", \"ARGUMENT\", …]");
            None
        }
    }
}
