//! Files: roots, index files, media types, compression, error pages.

use super::process::not_a_value;
use super::{Handling, Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::{MissingFallback, Sourced};
use crate::nginx::tree::Directive;
use crate::nginx::values::bytes;
use crate::report::DirectiveOutcome;
use crate::toml_values::size;

const BUILT_IN: &str = "media types are built in";

/// Directives of files.
pub const TABLE: &[TableLine] = &[
    ("root", Translate(root)),
    ("alias", Translate(alias)),
    ("index", Translate(index)),
    ("try_files", Translate(try_files)),
    ("autoindex", Translate(listing)),
    ("disable_symlinks", Translate(symlinks)),
    ("error_page", Translate(error_page)),
    ("internal", Translate(internal)),
    ("gzip", Translate(gzip)),
    ("gzip_min_length", Translate(gzip_min_length)),
    ("default_type", Translate(default_type)),
    ("charset", NotNeeded("text has charset=utf-8")),
    ("charset_types", NotNeeded("text has charset=utf-8")),
    (
        "source_charset",
        Handling::ByHand("convert the files to UTF-8"),
    ),
    ("autoindex_exact_size", NotNeeded("lists have one form")),
    ("autoindex_localtime", NotNeeded("lists have one form")),
    ("autoindex_format", NotNeeded("lists have one form")),
    ("etag", NotNeeded("entity tags are always sent")),
    (
        "if_modified_since",
        NotNeeded("conditions are those of RFC 9110"),
    ),
    (
        "log_not_found",
        NotNeeded("missing files are not logged as errors"),
    ),
    ("log_subrequest", NotNeeded("requests are logged once")),
    (
        "recursive_error_pages",
        NotNeeded("error pages have no error pages"),
    ),
    (
        "msie_padding",
        NotNeeded("browsers with that mistake are gone"),
    ),
    (
        "gzip_types",
        NotNeeded("text is compressed, by its media type"),
    ),
    ("gzip_vary", NotNeeded("Vary is always sent")),
    (
        "gzip_comp_level",
        NotNeeded("files are compressed once, responses at a fast level"),
    ),
    (
        "gzip_http_version",
        NotNeeded("clients name the codings that they accept"),
    ),
    ("gzip_static", NotNeeded("precompressed files are used")),
    (
        "gunzip",
        NotNeeded("clients name the codings that they accept"),
    ),
    ("random_index", Handling::ByHand("use a program")),
    (
        "ssi",
        Handling::ByHand("use a template (docs/pages.md) or a program"),
    ),
    ("mp4", NotNeeded("players request ranges")),
    ("flv", NotNeeded("players request ranges")),
    (
        "add_before_body",
        Handling::ByHand("put the text into the files"),
    ),
    (
        "add_after_body",
        Handling::ByHand("put the text into the files"),
    ),
    ("stub_status", Translate(stub_status)),
    ("empty_gif", Handling::ByHand("put the picture into a file")),
    (
        "secure_link",
        Handling::ByHand(
            "check the link in the application, and name the file by X-Accel-Redirect",
        ),
    ),
    (
        "secure_link_md5",
        Handling::ByHand(
            "check the link in the application, and name the file by X-Accel-Redirect",
        ),
    ),
    ("slice", NotNeeded("ranges are stored and combined")),
];

fn root(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let text = level.substitute(directive.arg(0));
    let root = text
        .replace("$host", "{host}")
        .replace("$server_name", "{host}");
    if root.contains('$') {
        // The files of the outer root are others.
        level.content.has_unknown_handler = true;
        return DirectiveOutcome::ByHand(
            "the paths are refused until then: root may contain {host} only; write a [[site]] for each folder".to_string(),
        );
    }
    level.settings.root = Some(level.root_path(&root));
    level.content.has_root = true;
    DirectiveOutcome::translated()
}

fn alias(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let path = level.substitute(directive.arg(0));
    // The location decides about an alias with captures.
    let value = level.root_path(&path);
    level.content.alias = Some(Sourced {
        value,
        entry: directive.id,
    });
    DirectiveOutcome::translated()
}

fn index(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    // The last name may be a path, for an internal redirect.
    let names = directive
        .args
        .iter()
        .filter(|name| !name.contains(['/', '$']));
    let names: Vec<String> = names.cloned().collect();
    let is_complete = names.len() == directive.args.len();
    // Several directives of a block add to each other, and replace those of the block around it.
    if level.begins_array("index") {
        level.settings.index.clear();
    }
    level.settings.index.extend(names);
    if !is_complete {
        return DirectiveOutcome::Translated(
            "names only; a path at the end needs a rule with fallback".to_string(),
        );
    }
    DirectiveOutcome::translated()
}

fn try_files(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let value = directive
        .args
        .iter()
        .map(|arg| level.substitute(arg))
        .map(|arg| {
            arg.replace("${uri}", "$uri")
                .replace("$document_uri", "$uri")
        })
        .collect();
    level.content.try_files = Some(Sourced {
        value,
        entry: directive.id,
    });
    DirectiveOutcome::translated()
}

fn listing(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if directive.arg(0) == "on" {
        level.settings.listing = Some(directive.id);
        return DirectiveOutcome::translated();
    }
    level.settings.listing = None;
    DirectiveOutcome::NotNeeded("off is the default".to_string())
}

fn symlinks(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let policy = match directive.arg(0) {
        "off" => "\"follow\"",
        _ => "\"none\"",
    };
    level
        .settings
        .site_keys
        .insert("symlinks", policy.to_string());
    DirectiveOutcome::translated()
}

fn error_page(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if level.begins_array("error_page") {
        level.settings.error_pages.clear();
        level.settings.error_statuses.clear();
        level.settings.missing_fallback = None;
    }
    let Some((target, statuses)) = directive.args.split_last() else {
        return not_a_value();
    };
    let has_override = statuses.iter().any(|it| it.starts_with('='));
    let codes: Vec<u16> = statuses.iter().filter_map(|it| it.parse().ok()).collect();
    // `error_page 404 = /index.php` answers a missing file by another path, as try_files does.
    let is_handler = has_override || target.starts_with('@') || target.contains(".php");
    if codes == [404] && is_handler && !target.contains("://") {
        level.settings.missing_fallback = Some(MissingFallback {
            target: target.clone(),
            entry: directive.id,
        });
        return DirectiveOutcome::Translated(match has_override {
            true => String::new(),
            false => "the status is that of the handler".to_string(),
        });
    }
    let status = statuses.iter().find_map(|it| it.strip_prefix('='));
    let status = status.map(|status| status.parse::<u16>().ok());
    let is_script = has_override && target.contains(".php");
    let is_page = target.starts_with('/') && !target.contains('$') && !is_script;
    // `=` alone leaves the status to a handler.
    let is_status = |status: u16| status == 200 || (400..600).contains(&status);
    if !is_page || status.is_some_and(|it| !it.is_some_and(is_status)) {
        return DirectiveOutcome::ByHand(
            "an error page is a file below the root: [site.error_pages]".to_string(),
        );
    }
    let pages = codes
        .into_iter()
        .filter(|code| (400..600).contains(code))
        .map(|code| Sourced {
            value: (code, target.clone()),
            entry: directive.id,
        });
    let pages: Vec<Sourced<(u16, String)>> = pages.collect();
    let Some(status) = status.flatten() else {
        level.settings.error_pages.extend(pages);
        return DirectiveOutcome::translated();
    };
    let changed = pages.iter().map(|page| Sourced {
        value: (page.value.0, status),
        entry: directive.id,
    });
    level.settings.error_statuses.extend(changed);
    level.settings.error_pages.extend(pages);
    // Routes that replace errors change the outcome.
    DirectiveOutcome::ByHand(
        "the page keeps the status of the error; with intercept_errors = { STATUS = NEW } of a route, errors of its origin get the page, too".to_string(),
    )
}

fn internal(level: &mut Level<'_>, _: &Directive) -> DirectiveOutcome {
    level.content.is_internal = true;
    DirectiveOutcome::translated()
}

/// The media type of a fixed response. Files have types by their extension.
fn default_type(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.default_type = Some(directive.arg(0).to_string());
    DirectiveOutcome::NotNeeded(BUILT_IN.to_string())
}

fn stub_status(level: &mut Level<'_>, _: &Directive) -> DirectiveOutcome {
    level.content.has_unknown_handler = true;
    DirectiveOutcome::NotNeeded(
        "its path is refused: `lowroad status`, and metrics for Prometheus by [admin]".to_string(),
    )
}

fn gzip(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if directive.arg(0) == "on" {
        level
            .settings
            .compress
            .insert("programs", "true".to_string());
        return DirectiveOutcome::Translated(
            "files are compressed by default; br and zstd, too".to_string(),
        );
    }
    level.settings.compress.remove("programs");
    DirectiveOutcome::NotNeeded(
        "responses of programs and origins are sent unchanged by default".to_string(),
    )
}

fn gzip_min_length(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let Some(len) = bytes(directive.arg(0)) else {
        return not_a_value();
    };
    level.settings.compress.insert("len_min", size(len));
    DirectiveOutcome::translated()
}
