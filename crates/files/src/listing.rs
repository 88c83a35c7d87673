//! Folder listings (nginx `autoindex`): the page is sorted, has folders first, and is usable on a phone. A script adds
//! sorting by other columns, a filter and local times; the page is complete without the script.

use std::collections::BinaryHeap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lowroad_http::error_page::escape;
use lowroad_http::status::StatusCode;
use lowroad_http::target::{decode, encode_path};
use lowroad_site_rules::is_hidden;
use rustix::fs::FileType;

use crate::folder::SiteFolder;

/// The maximum number of listed names; the page of a larger folder states that the list is incomplete.
const NAMES_MAX: usize = 10_000;

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
td,th{padding:.45rem .5rem;text-align:left;border-bottom:1px solid #8884}\
td:first-child{overflow-wrap:anywhere}td+td,th+th{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
th[data-by]{cursor:pointer}input{font:inherit;padding:.3rem .5rem;width:100%;box-sizing:border-box;margin-bottom:.5rem}\
a{text-decoration:none}a:hover{text-decoration:underline}@media(max-width:34rem){.t{display:none}}";

/// The table has two bodies: the first has the link to the parent folder, the second the rows that the script sorts.
/// Folders are always before files.
const SCRIPT: &str = "const table=document.querySelector('table'),rows=table.tBodies[1],filter=document.querySelector('input');\
for(const at of rows.querySelectorAll('time'))at.textContent=new Date(at.dateTime).toLocaleString([],{dateStyle:'medium',timeStyle:'short'});\
table.tHead.rows[0].cells[1].textContent='Changed';\
filter.hidden=false;\
filter.oninput=()=>{const text=filter.value.toLowerCase();\
for(const row of rows.rows)row.hidden=!row.cells[0].textContent.toLowerCase().includes(text)};\
let by='name',up=true;\
const value=row=>by==='name'?row.cells[0].textContent:+row.dataset[by];\
table.tHead.onclick=event=>{const wanted=event.target.dataset.by;if(!wanted)return;\
up=wanted===by?!up:true;by=wanted;\
rows.append(...[...rows.rows].sort((a,b)=>{const x=value(a),y=value(b);\
return b.dataset.folder-a.dataset.folder||(up?1:-1)*(by==='name'?x.localeCompare(y,undefined,{numeric:true}):x-y)}))}";

struct ListingLine {
    name: Vec<u8>,
    folder: bool,
    len: u64,
    modified_s: u64,
    linked: bool,
}

/// The page for the folder of the decoded request path `path`, which ends with a slash; and whether some listed files
/// are reached through links.
///
/// # Errors
/// As of `SiteFolder::list`.
pub fn page(
    folder: &SiteFolder,
    relative: &Path,
    path: &[u8],
    hidden: bool,
) -> Result<(Vec<u8>, bool), StatusCode> {
    let (mut lines, is_truncated) = read(folder, relative, hidden)?;
    lines.sort_by(|a, b| b.folder.cmp(&a.folder).then_with(|| a.name.cmp(&b.name)));
    let linked = lines.iter().any(|line| line.linked);
    Ok((render(path, &lines, is_truncated), linked))
}

fn read(
    folder: &SiteFolder,
    relative: &Path,
    hidden: bool,
) -> Result<(Vec<ListingLine>, bool), StatusCode> {
    let mut names = FirstNames::new(NAMES_MAX);
    for entry in folder.list(relative)? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name().to_bytes();
        // A name that is not possible in a request path would be a dead link.
        if name == b"." || name == b".." || (!hidden && is_hidden(name)) || !is_requestable(name) {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            FileType::RegularFile => false,
            // Only links are resolved, so that the other names of a large folder need no system call.
            _ => match folder.find(&relative.join(std::ffi::OsStr::from_bytes(name))) {
                Ok(resolved) => matches!(resolved.target, crate::folder::PathTarget::Folder),
                Err(_) => continue,
            },
        };
        names.add(is_folder, name);
    }
    let is_truncated = names.is_truncated;
    Ok((lines(folder, relative, names), is_truncated))
}

/// The lines for these names. Files that could not be requested are omitted.
fn lines(folder: &SiteFolder, relative: &Path, names: FirstNames) -> Vec<ListingLine> {
    let mut lines = Vec::new();
    for (_, name) in names.heap {
        let name = &name[..];
        let path = relative.join(std::ffi::OsStr::from_bytes(name));
        let Ok(resolved) = folder.find(&path) else {
            continue;
        };
        lines.push(match resolved.target {
            crate::folder::PathTarget::Folder => ListingLine {
                name: name.into(),
                folder: true,
                len: 0,
                modified_s: 0,
                linked: resolved.linked,
            },
            crate::folder::PathTarget::File(file) => ListingLine {
                name: name.into(),
                folder: false,
                len: file.stamp.len,
                modified_s: u64::try_from(file.stamp.modified_ns / 1_000_000_000).unwrap_or(0),
                linked: resolved.linked,
            },
        });
    }
    lines
}

/// The names of a folder that are first in the order of the page, up to a maximum number.
struct FirstNames {
    /// A max-heap with the last name on top. The key is whether it is a file (so that folders are first), and the name.
    heap: BinaryHeap<(bool, Vec<u8>)>,
    count_max: usize,
    is_truncated: bool,
}

impl FirstNames {
    fn new(count_max: usize) -> FirstNames {
        FirstNames {
            heap: BinaryHeap::new(),
            count_max,
            is_truncated: false,
        }
    }

    fn add(&mut self, is_folder: bool, name: &[u8]) {
        if self.heap.len() < self.count_max {
            self.heap.push((!is_folder, name.to_vec()));
            return;
        }
        self.is_truncated = true;
        // If there are too many names, the new name replaces the last one, unless the new name comes after it.
        if let Some(mut last) = self.heap.peek_mut()
            && (!is_folder, name) < (last.0, &last.1[..])
        {
            *last = (!is_folder, name.to_vec());
        }
    }
}

/// Whether a request can name the file: some characters are rejected in any path.
fn is_requestable(name: &[u8]) -> bool {
    let mut path = vec![b'/'];
    encode_path(name, &mut path);
    let mut scratch = vec![0; path.len()];
    decode(&path, &mut scratch).is_ok()
}

fn render(path: &[u8], lines: &[ListingLine], is_truncated: bool) -> Vec<u8> {
    let title = escape(&String::from_utf8_lossy(path));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n\
         <input type=\"search\" placeholder=\"Filter\" aria-label=\"Filter\" hidden>\n\
         <table>\n<thead><tr><th data-by=\"name\">Name<th class=\"t\" data-by=\"time\">Changed (UTC)\
         <th data-by=\"size\">Size</tr></thead>\n<tbody>\n"
    )
    .into_bytes();
    // The root of the site has no parent folder.
    if path != b"/" {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td class=\"t\"><td></tr>\n");
    }
    out.extend_from_slice(b"</tbody>\n<tbody>\n");
    for line in lines {
        render_line(line, &mut out);
    }
    out.extend_from_slice(b"</tbody>\n</table>\n");
    if is_truncated {
        let text = format!("<p>Only the first {NAMES_MAX} names are listed.</p>\n");
        out.extend_from_slice(text.as_bytes());
    }
    // The script is at the end, since the table must exist when the script runs.
    let script = format!("<script>{SCRIPT}</script>\n</html>\n");
    out.extend_from_slice(script.as_bytes());
    out
}

fn render_line(line: &ListingLine, out: &mut Vec<u8>) {
    let slash = if line.folder { "/" } else { "" };
    let row = format!(
        "<tr data-folder=\"{}\" data-time=\"{}\" data-size=\"{}\">",
        u8::from(line.folder),
        line.modified_s,
        line.len
    );
    out.extend_from_slice(row.as_bytes());
    // Without "./", a name with a colon would be parsed as a scheme (RFC 3986 §4.2).
    out.extend_from_slice(b"<td><a href=\"./");
    encode_path(&line.name, out);
    let name = escape(&String::from_utf8_lossy(&line.name));
    let (changed, size) = if line.folder {
        (String::new(), String::new())
    } else {
        (time(line.modified_s), size(line.len))
    };
    let rest = format!("{slash}\">{name}{slash}</a><td class=\"t\">{changed}<td>{size}</tr>\n");
    out.extend_from_slice(rest.as_bytes());
}

/// A time in UTC as text for readers, and in a machine-readable form for the script.
fn time(unix_s: u64) -> String {
    let text = lowroad_log::civil_date::minutes(unix_s);
    format!(
        "<time datetime=\"{}Z\">{text}</time>",
        text.replace(' ', "T")
    )
}

/// A length as text for readers; the number has at most four characters.
fn size(len: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut value = len as f64;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.5 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_names_are_independent_of_the_directory_order() {
        let mut names = FirstNames::new(3);
        for name in ["d", "b", "e", "c", "a"] {
            names.add(false, name.as_bytes());
        }
        assert!(names.is_truncated);
        names.add(true, b"z");
        let listed: Vec<_> = names.heap.into_sorted_vec();
        let want = [(false, "z"), (true, "a"), (true, "b")];
        assert_eq!(listed, want.map(|(is_file, name)| (is_file, name.into())));
        let mut few = FirstNames::new(3);
        few.add(false, b"a");
        assert!(!few.is_truncated);
    }

    #[test]
    fn sizes_are_rounded_with_units() {
        let of = [
            0,
            999,
            1000,
            1500,
            99_400,
            999_500,
            1_000_000,
            33_554_432,
            u64::MAX,
        ];
        let want = [
            "0 B",
            "999 B",
            "1.0 KB",
            "1.5 KB",
            "99.4 KB",
            "1.0 MB",
            "1.0 MB",
            "33.6 MB",
            "18446744 TB",
        ];
        assert_eq!(of.map(size).as_slice(), want);
    }

    #[test]
    fn names_are_percent_encoded_and_html_escaped() {
        let line = ListingLine {
            name: b"a \"<b>\xff:%".to_vec(),
            folder: false,
            len: 1,
            modified_s: 0,
            linked: false,
        };
        let mut out = Vec::new();
        render_line(&line, &mut out);
        let out = String::from_utf8(out).expect("UTF-8");
        assert!(out.contains("href=\"./a%20%22%3Cb%3E%FF%3A%25\""), "{out}");
        assert!(out.contains(">a &quot;&lt;b&gt;\u{fffd}:%</a>"), "{out}");
    }
}
