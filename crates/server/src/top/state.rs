//! The state of the screen, and how keys change it. Pure.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::report::{ReportTable, ServerReport};
use super::table::{TextTable, visible};

/// A view below the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopView {
    /// A table of the server.
    Table(ReportTable),
    /// The pages of the levels in the kernel.
    FastPath,
}

/// The views in their order, with names and sorting.
pub const VIEWS: [(TopView, &str); 5] = [
    (TopView::Table(ReportTable::Urls), "URLs"),
    (TopView::Table(ReportTable::Sites), "Sites"),
    (TopView::Table(ReportTable::Origins), "Origins"),
    (TopView::Table(ReportTable::Errors), "Errors"),
    (TopView::FastPath, "Fast path"),
];
/// The column by which each view is sorted at the start: rates, servers, age.
const SORT_COLUMNS: [usize; VIEWS.len()] = [1, 1, 0, 2, 0];
/// Maximum length of a filter.
const FILTER_LEN_MAX: usize = 64;

/// The state of the connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLink {
    /// No answer yet.
    Connecting,
    /// Events arrive.
    Live,
    /// The connection was lost; the reason. The report is the last one.
    Lost(String),
    /// The user wants only levels.
    Unwanted,
}

/// The consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// The program continues.
    Continue,
    /// The whole screen must be drawn again, for instance because another program has written to the terminal.
    Redraw,
    /// The user quits.
    Quit,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct TopState {
    /// The connection to the server.
    pub link: ServerLink,
    /// The report that is shown.
    pub report: Option<ServerReport>,
    /// The page of the levels in the kernel, or why there is none.
    pub levels: Result<String, String>,
    /// The index of the view in [`VIEWS`].
    pub view: usize,
    /// The column by which each view is sorted.
    pub sort: [usize; VIEWS.len()],
    /// The text that rows must contain.
    pub filter: String,
    /// Whether keys change the filter.
    pub is_filtering: bool,
    /// Whether the numbers stay as they are.
    pub is_paused: bool,
    /// Whether the keys are explained.
    pub has_help: bool,
    /// The number of rows above the visible ones.
    pub scroll: usize,
}

impl TopState {
    /// The state at the start.
    pub fn new(link: ServerLink) -> TopState {
        TopState {
            // Without a server, only the levels in the kernel have something to show.
            view: if link == ServerLink::Unwanted {
                VIEWS.len() - 1
            } else {
                0
            },
            link,
            report: None,
            levels: Err("not read yet".into()),
            sort: SORT_COLUMNS,
            filter: String::new(),
            is_filtering: false,
            is_paused: false,
            has_help: false,
            scroll: 0,
        }
    }

    /// Shows a report, unless the screen is paused.
    pub fn set_report(&mut self, report: Option<ServerReport>) {
        self.link = ServerLink::Live;
        if !self.is_paused && report.is_some() {
            self.report = report;
        }
    }

    /// Shows the page of the levels in the kernel, unless the screen is paused.
    pub fn set_levels(&mut self, levels: Result<String, String>) {
        if !self.is_paused {
            self.levels = levels;
        }
    }

    /// The table of the current view, filtered and sorted; `None` for other views, and without a report.
    pub fn table(&self) -> Option<TextTable> {
        let TopView::Table(table) = VIEWS[self.view].0 else {
            return None;
        };
        let mut table = self.report.as_ref()?.table(table).clone();
        table.filter(&self.filter);
        table.sort(self.sort[self.view]);
        Some(table)
    }

    /// Applies a key.
    pub fn apply_key(&mut self, key: KeyEvent) -> KeyOutcome {
        if key.kind == KeyEventKind::Release {
            return KeyOutcome::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => KeyOutcome::Quit,
                KeyCode::Char('l') => KeyOutcome::Redraw,
                _ => KeyOutcome::Continue,
            };
        }
        if self.is_filtering {
            self.edit_filter(key.code);
            return KeyOutcome::Continue;
        }
        if self.has_help {
            // Any key closes the help.
            self.has_help = false;
            return KeyOutcome::Continue;
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return KeyOutcome::Quit,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char(digit @ '1'..='5') => self.show_view(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.show_view(self.view + 1),
            KeyCode::BackTab | KeyCode::Left => self.show_view(self.view + VIEWS.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        KeyOutcome::Continue
    }

    fn edit_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.len() < FILTER_LEN_MAX => {
                self.filter.push_str(&visible(c.encode_utf8(&mut [0; 4])));
            }
            _ => {}
        }
        self.scroll = 0;
    }

    fn show_view(&mut self, view: usize) {
        self.view = view % VIEWS.len();
        self.scroll = 0;
    }

    fn sort_by_next(&mut self) {
        if let Some(table) = self.table() {
            let column = &mut self.sort[self.view];
            *column = (*column + 1) % table.columns.len();
        }
        self.scroll = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example_report;
    use super::*;

    fn press(state: &mut TopState, keys: &[KeyCode]) {
        for code in keys {
            let outcome = state.apply_key(KeyEvent::from(*code));
            assert_eq!(outcome, KeyOutcome::Continue, "{code:?}");
        }
    }

    fn first(state: &TopState) -> String {
        state.table().expect("a table").rows[0][0].text.clone()
    }

    #[test]
    fn keys_filter_and_sort() {
        let mut state = TopState::new(ServerLink::Connecting);
        state.set_report(Some(example_report()));
        assert_eq!(state.link, ServerLink::Live);
        assert_eq!(first(&state), "http://a.example/index.html");
        press(&mut state, &['/', 'C', 'A', 'x'].map(KeyCode::Char));
        press(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(state.filter, "CA");
        assert_eq!(first(&state), "http://a.example/app/cart?id=1");
        press(&mut state, &[KeyCode::Esc]);
        // By level, by share, by URL.
        press(&mut state, &['s'; 3].map(KeyCode::Char));
        assert_eq!(first(&state), "http://a.example/app/cart?id=1");
        press(&mut state, &[KeyCode::BackTab]);
        assert!(state.table().is_none());
        press(
            &mut state,
            &[KeyCode::Char('3'), KeyCode::Down, KeyCode::Tab],
        );
        assert_eq!((state.view, state.scroll), (3, 0));
    }

    #[test]
    fn pause_keeps_the_numbers() {
        let mut state = TopState::new(ServerLink::Connecting);
        press(&mut state, &[KeyCode::Char(' ')]);
        state.set_report(Some(example_report()));
        state.set_levels(Ok("page".into()));
        assert!(state.report.is_none() && state.levels.is_err());
        press(&mut state, &[KeyCode::Char(' ')]);
        state.set_report(Some(example_report()));
        // The first snapshot after a restart gives no report; the last one stays.
        state.set_report(None);
        assert!(state.report.is_some());
    }

    #[test]
    fn quit_keys_end_the_program() {
        let mut state = TopState::new(ServerLink::Unwanted);
        assert_eq!(VIEWS[state.view].0, TopView::FastPath);
        press(&mut state, &[KeyCode::Char('?')]);
        assert!(state.has_help);
        // Any key closes the help.
        press(&mut state, &[KeyCode::Char('q')]);
        assert_eq!(state.apply_key(KeyCode::Char('q').into()), KeyOutcome::Quit);
        press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('q')]);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.apply_key(interrupt), KeyOutcome::Quit);
    }
}
