//! Draws the screen: a pure function of the state and the size.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};

use super::report::{LevelRate, ServerReport};
use super::state::{ServerLink, TopState, TopView, VIEWS};
use super::table::{TextTable, fitting, rate, visible};

const HELP: [&str; 10] = [
    "1-5, Tab   choose a view",
    "s          sort by the next column",
    "/          filter rows, Esc: all rows",
    "arrows     scroll",
    "space      pause",
    "Ctrl-L     draw again",
    "q, Ctrl-C  quit",
    "Rates and percentiles are of the last 5 s, rates",
    "of URLs estimates with a half-life of 60 s.",
    "hits n/a: no request could use the cache.",
];

/// The width of a level's name and rate.
const LEVEL_WIDTH: u16 = 22;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let has_server = state.link != ServerLink::Unwanted;
    let level_rows = match &state.report {
        Some(report) if has_server => report.levels.len() as u16,
        _ => 0,
    };
    let figure_rows = u16::from(level_rows > 0);
    let [head, figures, levels, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(figure_rows),
        Constraint::Length(level_rows),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, state);
    if let Some(report) = &state.report
        && level_rows > 0
    {
        draw_figures(frame, figures, report);
        draw_levels(frame, levels, report);
    }
    draw_tabs(frame, tabs, state);
    draw_body(frame, body, state);
    draw_foot(frame, foot, state);
    if state.has_help {
        draw_help(frame);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let (text, color) = match &state.link {
        _ if state.is_paused => ("paused".to_owned(), Color::Yellow),
        ServerLink::Connecting => ("connecting".into(), Color::Yellow),
        ServerLink::Live => ("live".into(), Color::Green),
        ServerLink::Lost(reason) => (
            format!("no server: {}; trying again", visible(reason)),
            Color::Red,
        ),
        ServerLink::Unwanted => ("fast path only".into(), Color::Reset),
    };
    let title = match &state.report {
        Some(report) => report.title.clone(),
        None => "lowroad top".into(),
    };
    let line = Line::from(vec![
        text.fg(color).bold(),
        Span::raw("  "),
        Span::raw(title),
    ]);
    frame.render_widget(line, area);
}

fn draw_figures(frame: &mut Frame<'_>, area: Rect, report: &ServerReport) {
    let mut spans = Vec::new();
    let mut used = 0;
    for (name, value) in &report.figures {
        let width = name.len() + value.len() + 3;
        // Figures that do not fit are omitted, so that none is cut in the middle of a number.
        if used + width > usize::from(area.width) + 2 {
            break;
        }
        used += width;
        spans.push(Span::raw(format!("{name} ")).dim());
        spans.push(Span::raw(format!("{value}  ")).bold());
    }
    frame.render_widget(Line::from(spans), area);
}

fn level_color(name: &str) -> Color {
    match name {
        "origin" => Color::Red,
        "handler" => Color::Yellow,
        "worker" => Color::Cyan,
        _ => Color::Green,
    }
}

fn draw_levels(frame: &mut Frame<'_>, area: Rect, report: &ServerReport) {
    let lines = report
        .levels
        .iter()
        .map(|level| level_line(level, report.total, area.width));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

fn level_line(level: &LevelRate, total: f64, width: u16) -> Line<'static> {
    let name = Span::raw(format!("{:<8}", level.name)).fg(level_color(level.name));
    let Some(own) = level.rate else {
        return Line::from(vec![
            name,
            Span::raw(" not configured in this server").dim(),
        ]);
    };
    let share = if total > 0.0 { own / total } else { 0.0 };
    let room = f64::from(width.saturating_sub(LEVEL_WIDTH + 7));
    let bar = "\u{2588}".repeat((share * room).round() as usize);
    Line::from(vec![
        name,
        Span::raw(format!(" {:>11}/s ", rate(own))),
        Span::raw(format!("{:>5.1}% ", 100.0 * share)).dim(),
        bar.fg(level_color(level.name)),
    ])
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let is_narrow = area.width < 50;
    let tabs = VIEWS.iter().enumerate().map(|(index, (_, name))| {
        let name = if is_narrow {
            name.split(' ').next().unwrap_or(name)
        } else {
            name
        };
        let text = format!("{} {name}", index + 1);
        let style = match index == state.view {
            true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => Style::new(),
        };
        [Span::styled(text, style), Span::raw(" ")]
    });
    frame.render_widget(Line::from(tabs.flatten().collect::<Vec<_>>()), area);
}

fn draw_body(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    match (VIEWS[state.view].0, state.table()) {
        (TopView::FastPath, _) => draw_fast_path(frame, area, state),
        (_, Some(table)) => draw_table(frame, area, &table, state),
        (_, None) => {
            let text = match &state.link {
                ServerLink::Unwanted => "--port and --netns show only the fast path.",
                ServerLink::Lost(_) => "The server's numbers appear when it runs.",
                _ => "Rates appear after two samples.",
            };
            frame.render_widget(Paragraph::new(text).dim(), area);
        }
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, table: &TextTable, state: &TopState) {
    if table.rows.is_empty() {
        let text = match state.filter.is_empty() {
            true => table.empty,
            false => "No row contains the filter.",
        };
        frame.render_widget(Paragraph::new(text).dim(), area);
        return;
    }
    let columns = &table.columns[..table.fitting_columns(area.width)];
    let widths = table.widths(columns.len(), area.width);
    let aligned = |text: String, is_number| {
        let alignment = if is_number {
            Alignment::Right
        } else {
            Alignment::Left
        };
        Line::from(text).alignment(alignment)
    };
    let head = columns.iter().enumerate().map(|(index, column)| {
        let mark = if index == state.sort[state.view] {
            "*"
        } else {
            ""
        };
        aligned(format!("{}{mark}", column.title), column.is_number)
    });
    let visible_rows = usize::from(area.height.saturating_sub(1)).max(1);
    // Scrolled at most until the last row is at the bottom.
    let scroll = state
        .scroll
        .min(table.rows.len().saturating_sub(visible_rows));
    let rows = table
        .rows
        .iter()
        .skip(scroll)
        .take(visible_rows)
        .map(|row| {
            let cells = row.iter().zip(columns).zip(&widths);
            Row::new(cells.map(|((cell, column), width)| {
                aligned(fitting(&cell.text, *width), column.is_number)
            }))
        });
    let constraints = widths.iter().map(|width| Constraint::Length(*width));
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(Table::new(rows, constraints).header(head), area);
}

fn draw_fast_path(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let page = match &state.levels {
        Ok(page) => page.clone(),
        Err(reason) => format!("No fast path is visible: {reason}"),
    };
    let filter = state.filter.to_lowercase();
    let lines: Vec<Line<'_>> = page
        .lines()
        .filter(|line| line.to_lowercase().contains(&filter))
        .map(|line| Line::from(visible(line)))
        .collect();
    let scroll = state
        .scroll
        .min(lines.len().saturating_sub(area.height.into()));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(scroll).collect();
    let page = Paragraph::new(shown);
    // A page consists of columns; the reason is a sentence.
    let page = match state.levels {
        Ok(_) => page,
        Err(_) => page.wrap(ratatui::widgets::Wrap { trim: true }),
    };
    frame.render_widget(page, area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let line = match (state.is_filtering, state.filter.is_empty()) {
        (true, _) => Line::from(format!("filter: {}_", state.filter)).bold(),
        (false, false) => Line::from(format!("filter: {}  (Esc: all rows)", state.filter)),
        (false, true) => Line::from("? help  / filter  s sort  space pause  q quit").dim(),
    };
    frame.render_widget(line, area);
}

fn draw_help(frame: &mut Frame<'_>) {
    let screen = frame.area();
    let (width, height) = (
        50.min(screen.width),
        (HELP.len() as u16 + 2).min(screen.height),
    );
    let area = Rect {
        x: (screen.width - width) / 2,
        y: (screen.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> = HELP.into_iter().map(Line::from).collect();
    let block = Block::bordered().title(" lowroad top ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::report::tests::example_report;
    use super::*;

    fn screen(state: &TopState, width: u16, height: u16) -> String {
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).expect("a terminal");
        terminal.draw(|frame| draw(frame, state)).expect("a frame");
        let buffer = terminal.backend().buffer();
        let rows = buffer.content.chunks(width.into());
        let lines: Vec<String> = rows
            .map(|row| {
                let line: String = row.iter().map(|cell| cell.symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect();
        lines.join("\n") + "\n"
    }

    fn live() -> TopState {
        let mut state = TopState::new(ServerLink::Connecting);
        state.set_report(Some(example_report()));
        state
    }

    fn with_view(view: usize) -> TopState {
        TopState { view, ..live() }
    }

    #[test]
    fn screens_are_as_expected() {
        let help = TopState {
            has_help: true,
            ..live()
        };
        let lost = TopState {
            link: ServerLink::Lost("the server has ended the connection".into()),
            levels: Err("nothing is attached here".into()),
            ..with_view(4)
        };
        let screens = [
            ("urls", screen(&live(), 80, 16)),
            ("sites", screen(&with_view(1), 80, 14)),
            ("origins", screen(&with_view(2), 80, 14)),
            ("errors", screen(&with_view(3), 80, 14)),
            ("narrow", screen(&live(), 40, 12)),
            ("help", screen(&help, 80, 16)),
            ("lost", screen(&lost, 80, 14)),
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/screens");
        let mut changed = Vec::new();
        for (name, screen) in screens {
            let path = format!("{folder}/{name}.txt");
            // After a change, the variable makes the test write the screens, for a review of the difference.
            if std::env::var_os("LOWROAD_WRITE_SCREENS").is_some() {
                std::fs::write(path, screen).expect("a file");
            } else if std::fs::read_to_string(path).ok().as_deref() != Some(&*screen) {
                changed.push(format!("{name} is now:\n{screen}"));
            }
        }
        assert!(changed.is_empty(), "{}", changed.join("\n"));
    }

    #[test]
    fn every_size_can_be_drawn() {
        for view in 0..VIEWS.len() {
            for size in [(1, 1), (2, 30), (200, 2), (40, 12), (300, 100)] {
                let state = TopState {
                    has_help: true,
                    scroll: 1000,
                    ..with_view(view)
                };
                screen(&state, size.0, size.1);
            }
        }
    }

    #[test]
    fn texts_of_others_do_not_control_the_terminal() {
        let evil = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}1m\u{202e}";
        for view in 0..VIEWS.len() {
            let mut state = with_view(view);
            state.levels = Ok(format!("http://h/{evil}\r\n{evil}"));
            state.link = ServerLink::Lost(evil.into());
            let screen = screen(&state, 120, 20);
            let has_control = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!screen.contains(has_control), "{screen:?}");
        }
    }
}
