//! Reads `[[module]]`: code that answers requests, and its limits.
//!
//! The meaning and the defaults of the keys are in [`crate::schema`]. Whether the code can be loaded is found out by
//! the server.

use crate::named::{self, DAY_MS};
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::{AllowedDestination, ModuleCode, ModuleConfig};

/// The keys that name a module's code; a module has exactly one of them.
const CODE: [&str; 3] = ["linked", "library", "wasm"];

/// The minimum memory of a WebAssembly instance: one page.
const MEMORY_LEN_MIN: u64 = 64 << 10;
/// The maximum memory of a WebAssembly instance: the 32-bit address space.
const MEMORY_LEN_MAX: u64 = 4 << 30;

/// The positions of a module's values in the text, for later checks.
pub(crate) struct ModuleMarks {
    pub(crate) name: KeyPosition,
    /// The position of the key that names the module's file; None for linked modules.
    pub(crate) file: Option<KeyPosition>,
}

pub(crate) fn module(section: ConfigSection<'_>) -> Option<(ModuleConfig, ModuleMarks)> {
    let name_item = section.required("name");
    let name = name_item.as_ref().and_then(named::name);
    let code = code(&section);
    // Without valid code the kind of module is unknown, so no key is reported as useless.
    let is_kind = |kind: fn(&ModuleCode) -> bool| code.as_ref().is_none_or(|(code, _)| kind(code));
    let is_library = is_kind(|code| matches!(code, ModuleCode::Library(_)));
    let is_wasm = is_kind(|code| matches!(code, ModuleCode::Wasm(_)));
    for (key, is_allowed, kind) in [
        ("separate", is_library, "library"),
        ("memory", is_wasm, "wasm"),
        ("compute", is_wasm, "wasm"),
        ("keep", is_wasm, "wasm"),
    ] {
        if !is_allowed {
            section.only_with(key, kind);
        }
    }
    // A module without code is dropped below; with a placeholder, its other keys are checked too.
    let (code, file) = code.map_or(
        (ModuleCode::Linked(String::new()), None),
        |(code, position)| {
            // The position is used when the file is checked.
            let has_file = !matches!(code, ModuleCode::Linked(_));
            (code, has_file.then_some(position))
        },
    );
    let default = ModuleConfig::new(name.unwrap_or_default(), code);
    let memory = MEMORY_LEN_MIN..=MEMORY_LEN_MAX;
    let module = ModuleConfig {
        settings: section
            .section("settings")
            .map_or_else(Vec::new, named::settings),
        fetch: destinations(&section),
        separate: section.flag("separate", default.separate),
        memory_len_max: section.size("memory", default.memory_len_max, memory),
        compute_ms_max: section.duration_ms("compute", default.compute_ms_max, 1..=DAY_MS),
        keep: section.flag("keep", default.keep),
        ..default
    };
    // A missing or invalid name was reported; the module is dropped.
    section.finish();
    let name = name_item?.position;
    Some((module, ModuleMarks { name, file }))
}

fn destinations(section: &ConfigSection<'_>) -> Vec<AllowedDestination> {
    let items = section.item("fetch").map(ConfigValue::one_or_many);
    let items = items.unwrap_or_default().into_iter();
    items
        .filter_map(|item| item.read(AllowedDestination::parse))
        .collect()
}

fn code(section: &ConfigSection<'_>) -> Option<(ModuleCode, KeyPosition)> {
    let [linked, library, wasm] = CODE.map(|key| section.item(key));
    let read =
        |item: &ConfigValue<'_>, code: Option<ModuleCode>| Some((code?, item.position.clone()));
    match (linked, library, wasm) {
        (Some(item), None, None) => read(&item, named::name(&item).map(ModuleCode::Linked)),
        (None, Some(item), None) => read(&item, item.path().map(ModuleCode::Library)),
        (None, None, Some(item)) => read(&item, item.path().map(ModuleCode::Wasm)),
        (None, None, None) => {
            section.report("the module has no code", "one of linked, library and wasm");
            None
        }
        _ => {
            section.report(
                "the module has more than one kind of code",
                "one of linked, library and wasm",
            );
            None
        }
    }
}
