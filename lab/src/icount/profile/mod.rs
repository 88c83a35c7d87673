//! Profiles a guest: instructions by symbol of its kernel and programs. The plugin counts by translated block;
//! `symbols` names the blocks, `parts` assigns symbols to parts of the work, and `flame` draws.

mod flame;
mod parts;
mod symbols;

use std::collections::HashMap;
use std::path::Path;

use super::guest::QemuGuest;
use super::kernel::CopiedPath;
use super::table::thousands;
use symbols::SymbolNames;

/// Number of symbols in the table.
const SHOWN: usize = 20;

/// Instructions per request by symbol.
#[derive(Debug)]
pub struct SymbolProfile {
    /// The symbols, the largest share first.
    symbols: Vec<SymbolShare>,
}

/// A symbol's share of the work.
#[derive(Clone, Debug, PartialEq)]
struct SymbolShare {
    /// `kernel`, or the program or library.
    binary: String,
    /// The part of the work; for programs, always user space.
    part: &'static str,
    name: String,
    /// Instructions per request.
    instructions: f64,
}

impl SymbolProfile {
    /// Records a profile while `run` executes at least `requests` requests and returns their number. `copied` maps
    /// files of the host to paths in the guest.
    ///
    /// # Errors
    /// A request failed, or the guest did not send its symbols; the text names which.
    pub fn record(
        guest: &mut QemuGuest,
        copied: &[CopiedPath],
        requests: u64,
        run: &mut dyn FnMut(u64) -> Result<u64, String>,
    ) -> Result<SymbolProfile, String> {
        // The symbols are read before counting, because the guest executes instructions to send them.
        let symbols = SymbolNames::read_from_guest(guest, copied)?;
        // Work that the guest still does for the commands above must not count as work of requests.
        guest.instructions_when_idle();
        let counts_before: HashMap<u64, u64> = guest.blocks().collect();
        let requests = run(requests).map_err(|error| guest.failure(&error))?;
        guest.instructions_when_idle();
        let mut by_symbol: HashMap<(String, String), u64> = HashMap::new();
        for (address, count) in guest.blocks() {
            // A count below the one before must not wrap around.
            let increase = count - counts_before.get(&address).copied().unwrap_or(0).min(count);
            if increase > 0 {
                *by_symbol.entry(symbols.name(address)).or_default() += increase;
            }
        }
        Ok(SymbolProfile::from_counts(by_symbol, requests))
    }

    fn from_counts(by_symbol: HashMap<(String, String), u64>, requests: u64) -> SymbolProfile {
        let to_share = |((binary, name), count): ((String, String), u64)| SymbolShare {
            part: match binary.starts_with(symbols::KERNEL) {
                true => parts::part_of(&binary, &name),
                false => "user space",
            },
            binary,
            name,
            instructions: count as f64 / requests as f64,
        };
        let mut symbols: Vec<SymbolShare> = by_symbol.into_iter().map(to_share).collect();
        symbols.sort_by(|a, b| {
            let by_count = b.instructions.total_cmp(&a.instructions);
            // Equal counts are ordered by name, so that the output is reproducible.
            by_count.then_with(|| a.name.cmp(&b.name))
        });
        SymbolProfile { symbols }
    }

    fn total(&self) -> f64 {
        self.symbols.iter().map(|symbol| symbol.instructions).sum()
    }

    /// Instructions per request by part, the largest first.
    fn parts(&self) -> Vec<(&'static str, f64)> {
        let mut parts: Vec<(&str, f64)> = Vec::new();
        for symbol in &self.symbols {
            match parts.iter_mut().find(|(part, _)| *part == symbol.part) {
                Some((_, sum)) => *sum += symbol.instructions,
                None => parts.push((symbol.part, symbol.instructions)),
            }
        }
        parts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        parts
    }

    /// The parts and the largest symbols as text.
    #[must_use]
    pub fn text(&self) -> String {
        let total = self.total().max(1.0);
        let line = |name: &str, instructions: f64| {
            let share = instructions / total * 100.0;
            let count = thousands(instructions.round() as u64);
            format!("{count:>12} {share:>5.1} %  {name}")
        };
        let parts = self.parts().into_iter();
        let largest = self.symbols.iter().take(SHOWN);
        let mut lines = vec![line("all, a request", total), String::new()];
        lines.extend(parts.map(|(part, instructions)| line(part, instructions)));
        lines.push(String::new());
        lines.extend(largest.map(|symbol| {
            line(
                &format!("{} ({})", symbol.name, symbol.binary),
                symbol.instructions,
            )
        }));
        lines.join("\n")
    }

    /// Folded stacks, the input format of flame graph tools: binary, part and symbol. Callers are unknown.
    #[must_use]
    pub fn folded(&self) -> String {
        let line = |symbol: &SymbolShare| {
            let count = symbol.instructions.round() as u64;
            let frames =
                [&*symbol.binary, symbol.part, &*symbol.name].map(|frame| frame.replace(';', ":"));
            format!("{} {count}\n", frames.join(";"))
        };
        let counted_symbols = self
            .symbols
            .iter()
            .filter(|symbol| symbol.instructions >= 1.0);
        counted_symbols.map(line).collect()
    }

    /// Writes `NAME.folded`, the picture `NAME.svg`, and the largest symbols to `NAME.txt`.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(), String> {
        let write = |ending: &str, text: String| {
            let path = folder.join(format!("{name}.{ending}"));
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        write("folded", self.folded())?;
        write("txt", self.text() + "\n")?;
        write("svg", flame::draw(name, &self.symbols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> SymbolProfile {
        let counts = [
            (("kernel", "tcp_v4_rcv"), 6000),
            (("kernel", "virtqueue_add"), 1000),
            (("nginx", "ngx;parse"), 3000),
        ];
        let counts = counts.map(|((place, name), count)| ((place.into(), name.into()), count));
        SymbolProfile::from_counts(counts.into(), 10)
    }

    #[test]
    fn profile_text_lists_largest_symbols_first() {
        let text = profile().text();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "1,000 100.0 %  all, a request");
        assert!(lines[2].ends_with("60.0 %  TCP and IP"), "{text}");
        assert_eq!(lines[6], "600  60.0 %  tcp_v4_rcv (kernel)");
    }

    #[test]
    fn profile_is_written_as_folded_stacks() {
        let folded = profile().folded();
        assert!(
            folded.contains("kernel;TCP and IP;tcp_v4_rcv 600\n"),
            "{folded}"
        );
        assert!(
            folded.contains("nginx;user space;ngx:parse 300\n"),
            "{folded}"
        );
    }
}
