//! Reads `[map.NAME]`.
//!
//! The meaning and the defaults of the keys are in [`crate::reference`].

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use lowroad_variables::{
    FileEntries, MapEntries, MapFile, Template, TemplateScope, ValueMap, Variable, is_map_value,
};

use crate::named;
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};

/// The maximum length of a map file, in bytes.
pub const MAP_FILE_LEN_MAX: usize = 64 << 20;
/// The maximum length of the name of a map.
const NAME_LEN_MAX: usize = 64;

/// The names of maps and their positions.
type MapMarks = Vec<(String, KeyPosition)>;

/// Reads all maps. They precede the other tables, which refer to them.
pub(crate) fn maps(section: &ConfigSection<'_>) -> (Vec<Arc<ValueMap>>, MapMarks) {
    // Names are free keys, so unknown ones can't be mistakes.
    let named = section.entries().filter_map(|(name, position, item)| {
        check_name(section, name, &position)?;
        let map = map(name, item.section()?)?;
        Some((Arc::new(map), (name.to_owned(), position)))
    });
    named.unzip()
}

/// The hash by which a changed content of a map file is noticed.
pub fn map_content_hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Reads the entries of a file.
///
/// # Errors
/// The place of the first mistake, and the problem.
pub fn map_file_entries(bytes: Vec<u8>, ignores_case: bool) -> Result<FileEntries, String> {
    if bytes.len() > MAP_FILE_LEN_MAX {
        return Err(format!("longer than {MAP_FILE_LEN_MAX} bytes"));
    }
    let content_hash = map_content_hash(&bytes);
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })?;
    let entries = MapEntries::parse(&text, ignores_case).map_err(|error| {
        let (line, column) = (error.line, error.column);
        format!("line {line}, column {column}: {}", error.message)
    })?;
    Ok(FileEntries {
        entries,
        content_hash,
    })
}

fn check_name(section: &ConfigSection<'_>, name: &str, position: &KeyPosition) -> Option<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    if !is_name {
        // Other characters would end the name in `$map_NAME`.
        section.report_at(
            position,
            format!("{name:?} is not the name of a map"),
            "1 to 64 letters, digits and _",
        );
    }
    is_name.then_some(())
}

fn map(name: &str, section: ConfigSection<'_>) -> Option<ValueMap> {
    let from = section.required("from");
    let from = from.and_then(|item| {
        let template = named::template(&item, TemplateScope::map_source())?;
        if template.constant().is_some() {
            item.report(
                "a text without variables has one value",
                "a text with variables: $host",
            );
        }
        Some(template)
    });
    // Names of hosts are equal in any case (RFC 9110 §4.2.3).
    let is_host = from.as_ref().is_some_and(has_only_hosts);
    let ignores_case = section.flag("ignore_case", is_host);
    // A missing default is empty, as in nginx.
    let default = section.item("default").map(|item| value(&item));
    // A map with a file needs no `entries`.
    let mut entries = MapEntries::new(ignores_case);
    if let Some(table) = section.section("entries") {
        for (key, position, item) in table.entries() {
            let Some(value) = value(&item) else { continue };
            if let Err(problem) = entries.insert(key, &value) {
                table.report_at(
                    &position,
                    problem,
                    "KEY = \"VALUE\", *.HOST or ~REGEX as KEY",
                );
            }
        }
    }
    let file = section.item("file").map(|item| file(&item, ignores_case));
    if entries.is_empty() && file.is_none() {
        section.report("the map has no entries", "entries, or file");
    }
    section.finish();
    Some(ValueMap {
        name: name.to_owned(),
        from: from?,
        default: default.unwrap_or_else(|| Some(String::new()))?,
        entries,
        file: match file {
            Some(file) => Some(file?),
            None => None,
        },
    })
}

fn has_only_hosts(from: &Template) -> bool {
    let is_host = |it: &Variable| {
        matches!(
            it,
            Variable::Host | Variable::Authority | Variable::Scheme | Variable::TlsServerName
        )
    };
    from.variables().all(is_host)
}

fn value(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.plain_text().filter(|text| is_map_value(text));
    if text.is_none() {
        item.refuse(
            "a value of a map",
            "visible ASCII, with spaces and tabs between",
        );
    }
    text
}

fn file(item: &ConfigValue<'_>, ignores_case: bool) -> Option<MapFile> {
    let path = item.path()?;
    let entries = match item.read_file(&path, MAP_FILE_LEN_MAX) {
        // Without access to files, the rest of the configuration can still be checked.
        None => Ok(FileEntries::default()),
        Some(Ok(bytes)) => map_file_entries(bytes, ignores_case),
        Some(Err(error)) => Err(format!("cannot be read: {error}")),
    };
    match entries {
        Ok(entries) => Some(MapFile::new(path, ignores_case, entries)),
        Err(problem) => {
            item.report(
                format!("{}: {problem}", path.display()),
                "a file with KEY VALUE in each line, and comments after # at the start of a line",
            );
            None
        }
    }
}
