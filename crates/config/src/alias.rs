//! Reads `[[site.alias]]`. The meaning of the keys is in [`crate::schema`].

use crate::AliasConfig;
use crate::reader::{ConfigSection, KeyPosition};

/// An alias, and the position of its folder.
type MarkedAlias = (AliasConfig, KeyPosition);

fn alias(section: ConfigSection<'_>) -> Option<MarkedAlias> {
    let path = section.required("path").and_then(|item| {
        let text = item.text()?;
        let path = text.strip_suffix('/').unwrap_or(text);
        // Aliases are compared with normalized request paths, so a path in any other form would never match.
        let clean = |segment: &str| !matches!(segment, "" | "." | "..");
        let is_path = path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(clean));
        if !is_path {
            item.refuse(
                "the path of a folder",
                "/PATH below the root, without empty segments, . and ..",
            );
        }
        is_path.then(|| path.to_string())
    });
    let folder_item = section.required("folder");
    let folder = folder_item.as_ref().and_then(|item| item.path());
    let internal = section.flag("internal", false);
    section.finish();
    let alias = AliasConfig {
        path: path?,
        folder: folder?,
        internal,
    };
    Some((alias, folder_item?.position))
}

/// Reads all aliases of a site; duplicate paths are a problem.
pub(crate) fn aliases(whole: &ConfigSection<'_>) -> (Vec<AliasConfig>, Vec<KeyPosition>) {
    let mut seen: Vec<MarkedAlias> = Vec::new();
    for section in whole.sections("alias") {
        let position = section.position.clone();
        let Some(marked) = alias(section) else {
            continue;
        };
        let path = &marked.0.path;
        if seen.iter().any(|(other, _)| other.path == *path) {
            whole.report_at(
                &position,
                format!("{path} is listed twice"),
                "each path once",
            );
        }
        seen.push(marked);
    }
    seen.into_iter().unzip()
}
