//! Man pages and shell completions, generated from the definition of the command line and the configuration reference.

mod sections;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use lowroad_config::reference;

use crate::cli::CommandLine;
use crate::terminal_output;

const NAME: &str = "lowroad";

/// Writes completions for a shell to standard output.
///
/// # Errors
/// When standard output can't be written.
pub fn completions(shell: Shell) -> Result<(), String> {
    let mut text = Vec::new();
    // The completions are generated in memory, because clap panics on a write error such as a closed pipe.
    clap_complete::generate(shell, &mut CommandLine::command(), NAME, &mut text);
    terminal_output::out(String::from_utf8_lossy(&text))
}

/// Writes the man pages of the program, its commands and its configuration into the folders `man1` and `man5` of a
/// folder.
///
/// # Errors
/// When the folder can't be written.
pub fn pages(folder: &Path) -> Result<(), String> {
    write_pages(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    let (commands, files) = (folder.join("man1"), folder.join("man5"));
    fs::create_dir_all(&commands)?;
    fs::create_dir_all(&files)?;
    clap_mangen::generate_to(CommandLine::command(), &commands)?;
    // clap generates only options and subcommands; the other sections are appended here.
    for entry in fs::read_dir(&commands)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut page = OpenOptions::new().append(true).open(&path)?;
        page.write_all(sections::for_page(&name).as_bytes())?;
    }
    let page = reference::man_page(env!("CARGO_PKG_VERSION"));
    fs::write(files.join("lowroad.toml.5"), page)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn pages_have_the_sections_of_their_commands() {
        let folder = lowroad_testkit::TempFolder::new();
        pages(folder.path()).expect("pages");
        let page = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a page");
        for name in ["lowroad", "lowroad-run", "lowroad-serve"] {
            let text = page(&format!("man1/{name}.1"));
            for section in ["FILES", "SIGNALS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
                let heading = format!("\n.SH {section}\n");
                assert!(text.contains(&heading), "{name}: {section}");
            }
        }
        assert!(page("man1/lowroad-check.1").contains(".B 3\n"));
        assert!(!page("man1/lowroad-purge.1").contains(".SH SIGNALS\n"));
        assert!(page("man5/lowroad.toml.5").starts_with(".TH lowroad.toml 5"));
    }

    #[test]
    fn examples_are_valid_commands_of_their_page() {
        for (page, command) in sections::examples() {
            let name = page.replace('-', " ");
            assert!(command.starts_with(&name), "{page}: {command}");
            let words = command.split(' ').filter(|word| !word.contains('\''));
            let words = words.filter(|word| *word != "-H");
            let parsed = CommandLine::try_parse_from(words);
            assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
        }
    }
}
