//! Renders the reference as the man page lowroad.toml(5), in the man macros of roff.

use super::markdown::default_text;
use super::{TABLES, TableReference, overview};

const NAME: &str = "\
.SH NAME
lowroad.toml \\- configuration of the web server lowroad
.SH DESCRIPTION
";

const FILES: &str = "\
.SH FILES
.TP
.I /etc/lowroad/lowroad.toml
The configuration without the option \\fB\\-c\\fR.
.TP
.I /usr/share/doc/lowroad/docs/configuration
This reference in Markdown, with links.
.SH SEE ALSO
.BR lowroad (1),
.BR lowroad\\-run (1),
.BR lowroad\\-check (1),
.BR lowroad\\-reload (1)
";

/// The man page lowroad.toml(5).
pub fn man_page(version: &str) -> String {
    let mut page = format!(".TH lowroad.toml 5 \"\" \"lowroad {}\"\n", escape(version));
    page += NAME;
    page += &roff(overview::INTRO);
    for part in [
        overview::FILE,
        overview::VALUES,
        overview::PATTERNS,
        overview::VARIABLES,
    ] {
        page += &roff(&part.replace("\n## ", "\n# "));
    }
    page += ".SH TABLES\n";
    for table in TABLES {
        page += &table_text(table);
    }
    page += ".SH EXAMPLES\n";
    // The first heading is replaced by that of the man page section.
    page += &roff(
        &overview::TASKS
            .replace("\n## Common tasks\n", "\n")
            .replace("\n### ", "\n## "),
    );
    page += FILES;
    page
}

fn table_text(table: &TableReference) -> String {
    let mut text = format!(
        ".SS {}\n",
        escape(&format!("{}: {}", table.header, table.title))
    );
    text += &roff(table.intro);
    for key in table.keys {
        let mut facts = vec![key.values.to_string()];
        if !key.with.is_empty() {
            facts.push(format!("with {}", key.with.join(", ")));
        }
        match default_text(key.default).as_str() {
            "–" => {}
            "required" => facts.push("required".to_string()),
            text => facts.push(format!("default {text}")),
        }
        text += &format!(
            ".TP\n\\fB{}\\fR ({})\n{}\n",
            escape(key.name),
            inline(&facts.join("; ")),
            line(&inline(key.meaning))
        );
    }
    // In a man page, headings of the notes are at the level below the table's heading.
    text + &roff(&table.notes.replace("\n## ", "\n### "))
}

/// Converts blocks of Markdown: headings, paragraphs, lists, tables and code.
fn roff(markdown: &str) -> String {
    let mut text = String::new();
    let mut paragraph = String::new();
    let mut columns: Vec<&str> = Vec::new();
    let mut is_code = false;
    for markdown_line in markdown.lines() {
        if markdown_line.starts_with("```") {
            end_paragraph(&mut text, &mut paragraph);
            text += if is_code {
                ".RE\n.fi\n"
            } else {
                ".PP\n.nf\n.RS 4\n"
            };
            is_code = !is_code;
        } else if is_code {
            text += &format!("{}\n", line(&escape(markdown_line)));
        } else if let Some(row) = markdown_line.strip_prefix("| ") {
            end_paragraph(&mut text, &mut paragraph);
            let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            // The first row contains the column names.
            match columns.is_empty() {
                true => columns = cells,
                false => text += &row_text(&columns, &cells),
            }
        } else if markdown_line.starts_with("|--") {
            // The separator line below the column names.
        } else if let Some(item) = markdown_line.strip_prefix("- ") {
            end_paragraph(&mut text, &mut paragraph);
            text += ".IP \\(bu 2\n";
            paragraph = item.to_string();
        } else if let Some((marks, heading)) = heading(markdown_line) {
            end_paragraph(&mut text, &mut paragraph);
            text += &match marks {
                1 => format!(".SH {}\n", inline(&heading.to_uppercase())),
                2 => format!(".SS {}\n", inline(heading)),
                _ => format!(".PP\n\\fB{}\\fR\n", escape(heading)),
            };
        } else if markdown_line.is_empty() {
            end_paragraph(&mut text, &mut paragraph);
            columns.clear();
        } else {
            // Continues the list item.
            if paragraph.is_empty() {
                text += ".PP\n";
            } else {
                paragraph.push(' ');
            }
            paragraph += markdown_line.trim();
        }
    }
    end_paragraph(&mut text, &mut paragraph);
    text
}

fn heading(markdown_line: &str) -> Option<(usize, &str)> {
    let (marks, heading) = markdown_line.split_once(' ')?;
    let is_heading = !marks.is_empty() && marks.bytes().all(|byte| byte == b'#');
    is_heading.then_some((marks.len(), heading))
}

fn end_paragraph(text: &mut String, paragraph: &mut String) {
    if !paragraph.is_empty() {
        *text += &format!("{}\n", line(&inline(paragraph)));
        paragraph.clear();
    }
}

/// Converts a table row to a tagged paragraph: the first cell is the tag; the other cells follow, with column names if
/// there are several.
fn row_text(columns: &[&str], cells: &[&str]) -> String {
    let (first, rest) = cells.split_first().unwrap_or((&"", &[]));
    let rest: Vec<String> = match rest {
        [only] => vec![only.to_string()],
        _ => {
            let names = columns.iter().skip(1);
            names
                .zip(rest)
                .map(|(name, cell)| format!("{name}: {cell}"))
                .collect()
        }
    };
    format!(
        ".TP\n{}\n{}\n",
        line(&inline(first)),
        line(&inline(&rest.join("; ")))
    )
}

/// Converts code, bold text and links within a paragraph. The targets of links are dropped.
fn inline(markdown: &str) -> String {
    let mut text = String::new();
    let mut is_bold = false;
    for (index, part) in markdown.split('`').enumerate() {
        // Odd parts are code and contain no markup.
        if index % 2 == 1 {
            text += &format!("\\fB{}\\fR", escape(part));
            continue;
        }
        for (index, part) in part.split("**").enumerate() {
            if index > 0 {
                is_bold = !is_bold;
                text += if is_bold { "\\fB" } else { "\\fR" };
            }
            text += &escape(&without_links(part));
        }
    }
    text
}

/// Removes the brackets and targets of links. A link's text may contain code and so be split, so each bracket is
/// removed separately.
fn without_links(part: &str) -> String {
    let mut text = String::new();
    let mut rest = part;
    while let Some((before, target)) = rest.split_once("](") {
        text += before;
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    text.replace('[', "")
}

/// Escapes backslashes and hyphens, which roff would change.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
}

/// Protects a line that roff would interpret as a request.
fn line(text: &str) -> String {
    match text.starts_with('.') {
        true => format!("\\&{text}"),
        false => text.to_string(),
    }
}
