//! `lowroad top`: shows the numbers of a running server and of the levels in the kernel, on a screen or as text.
//!
//! The server's numbers come from the event stream that the dashboard reads ([`feed`]); [`window`] and [`report`]
//! compute rates from it. [`state`] applies keys, [`draw`] draws the screen, [`text`] writes the report as text. Only
//! this file and [`feed`] use the terminal, sockets and clocks.

mod draw;
mod feed;
mod report;
mod state;
mod table;
mod text;
mod window;

use std::io::{IsTerminal, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::cursor;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, size as terminal_size};
use ratatui::layout::{Rect, Size};
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::feed::FeedEvent;
use self::report::ServerReport;
use self::state::{KeyOutcome, ServerLink, TopState};
use self::window::SnapshotWindow;
use crate::cli::servers::TopArgs;
use crate::softirq::LevelPages;
use crate::terminal_output;

/// Length of the window of the rates on a screen, as in the dashboard.
const WINDOW_MS: u64 = 5000;
/// Maximum delay until a signal or an event of the server is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of URLs on a page of the levels.
const PAGE_URLS_MAX: usize = 10;
/// The largest area that is drawn. A signal waits for the end of a frame, which takes time for each cell.
const AREA_MAX: Size = Size::new(500, 200);
/// Maximum time to wait for the two snapshots of a report as text.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);

/// Shows the numbers until the user quits, or prints them as text.
///
/// # Errors
/// There is neither a server nor a level to show, or the terminal fails: a message for the user.
pub fn run(args: &TopArgs) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| format!("signals: {error}"))?;
    }
    let feed = match args.is_for_levels() {
        true => None,
        false => {
            let feed = feed::start(args.admin.clone());
            Some(feed.map_err(|error| format!("starting a thread: {error}"))?)
        }
    };
    if args.once || !stdout().is_terminal() {
        return print(args, feed.as_ref(), &stop);
    }
    let mut levels = LevelSource::new(args);
    if let (None, Err(reason)) = (&feed, &levels.pages) {
        return Err(reason.clone());
    }
    let failed = |error: std::io::Error| format!("the terminal: {error}");
    let mut terminal = open_terminal().map_err(failed)?;
    let result = show(&mut terminal, args, feed.as_ref(), &mut levels, &stop);
    ratatui::restore();
    result.map_err(failed)
}

/// Changes the terminal to its alternate screen. It is restored also after a panic.
fn open_terminal() -> std::io::Result<DefaultTerminal> {
    // Not a full screen viewport: it has no limit of size, and is cleared by a request for the position of the cursor,
    // which fails if a key arrives together with the answer.
    let viewport = Viewport::Fixed(screen_area()?);
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport })?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| ratatui::restore())?;
    Ok(terminal)
}

/// The area that is drawn: the terminal, up to [`AREA_MAX`].
fn screen_area() -> std::io::Result<Rect> {
    let (width, height) = terminal_size()?;
    Ok(Rect::new(
        0,
        0,
        width.min(AREA_MAX.width),
        height.min(AREA_MAX.height),
    ))
}

/// Updates the screen until the user quits.
fn show(
    terminal: &mut DefaultTerminal,
    args: &TopArgs,
    feed: Option<&Receiver<FeedEvent>>,
    levels: &mut LevelSource<'_>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let mut window = SnapshotWindow::new(WINDOW_MS);
    let mut state = TopState::new(match feed {
        Some(_) => ServerLink::Connecting,
        None => ServerLink::Unwanted,
    });
    let mut next_sample = Instant::now() + args.interval;
    let mut remaining = args.count;
    let mut area = screen_area()?;
    while remaining != Some(0) && !stop.load(Ordering::Relaxed) {
        let new_area = screen_area()?;
        if new_area != area {
            area = new_area;
            terminal.resize(area)?;
        }
        terminal.draw(|frame| draw::draw(frame, &state))?;
        let wait = next_sample.saturating_duration_since(Instant::now());
        // Keys and changes of the size interrupt the wait; each is followed by another frame.
        if !event::poll(wait.min(POLL_INTERVAL))? {
            recover_input();
        } else if let Event::Key(key) = event::read()? {
            match state.apply_key(key) {
                KeyOutcome::Continue => {}
                KeyOutcome::Redraw => terminal.resize(area)?,
                KeyOutcome::Quit => break,
            }
        }
        if let Some(feed) = feed {
            receive(feed, &mut window, &mut state);
        }
        if Instant::now() >= next_sample {
            next_sample = Instant::now() + args.interval;
            state.set_levels(levels.next_page(area.height.into()));
            remaining = remaining.map(|remaining| remaining - 1);
        }
    }
    Ok(())
}

/// Makes crossterm read keys that it has missed. It waits edge-triggered, and drops the event of a key if it handles
/// the signal of a new size first; the key would stay unread until the next one. The terminal's answer about its cursor
/// is the missing event.
fn recover_input() {
    let input = stdin();
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    let is_unread = input.is_terminal()
        && rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0);
    // A key that has just arrived is not missed.
    if is_unread && event::poll(Duration::ZERO).is_ok_and(|has_event| !has_event) {
        // Fails if the terminal does not answer in time.
        let _ = cursor::position();
    }
}

/// Applies the events that have arrived.
fn receive(feed: &Receiver<FeedEvent>, window: &mut SnapshotWindow, state: &mut TopState) {
    loop {
        match feed.try_recv() {
            Ok(FeedEvent::Snapshot(snapshot)) => {
                window.push(*snapshot);
                state.set_report(ServerReport::new(window));
            }
            Ok(FeedEvent::Lost(reason)) => state.link = ServerLink::Lost(reason),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
        }
    }
}

/// Prints reports as text.
fn print(
    args: &TopArgs,
    feed: Option<&Receiver<FeedEvent>>,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut levels = LevelSource::new(args);
    let mut window = SnapshotWindow::new(args.interval.as_millis() as u64);
    let count = if args.once {
        1
    } else {
        args.count.unwrap_or(1)
    };
    for _ in 0..count {
        let deadline = Instant::now() + args.interval;
        let server = feed.map(|feed| server_report(feed, &mut window, deadline));
        while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            thread::sleep(remaining.min(POLL_INTERVAL));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let text = match (server, levels.next_page(PAGE_URLS_MAX)) {
            (Some(Ok(report)), Ok(page)) => {
                format!("{}\nfast path\n{page}", text::server_text(&report))
            }
            (Some(Ok(report)), Err(reason)) => {
                let reason = table::visible(&reason);
                format!(
                    "{}\nfast path\n  not visible: {reason}\n",
                    text::server_text(&report)
                )
            }
            (_, Ok(page)) => format!("{page}\n"),
            (Some(Err(server)), Err(levels)) => return Err(format!("{server}; {levels}")),
            (None, Err(levels)) => return Err(levels),
        };
        terminal_output::out(text)?;
    }
    Ok(())
}

/// Waits for the report about the server at `deadline`, which needs two snapshots.
fn server_report(
    feed: &Receiver<FeedEvent>,
    window: &mut SnapshotWindow,
    deadline: Instant,
) -> Result<ServerReport, String> {
    let timeout = deadline + SNAPSHOT_TIMEOUT;
    loop {
        let report = ServerReport::new(window);
        if let Some(report) = report
            && Instant::now() >= deadline
        {
            return Ok(report);
        }
        match feed.recv_timeout(timeout.saturating_duration_since(Instant::now())) {
            Ok(FeedEvent::Snapshot(snapshot)) => window.push(*snapshot),
            Ok(FeedEvent::Lost(reason)) => return Err(reason),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err("the server has sent no numbers".into());
            }
        }
    }
}

/// The pages of the levels in the kernel. Levels that are attached later are found at the next sample.
struct LevelSource<'a> {
    args: &'a TopArgs,
    pages: Result<LevelPages, String>,
}

impl LevelSource<'_> {
    fn new(args: &TopArgs) -> LevelSource<'_> {
        LevelSource {
            args,
            pages: open_levels(args),
        }
    }

    /// The page since the previous sample, or why there is none.
    fn next_page(&mut self, urls_max: usize) -> Result<String, String> {
        let page = match &mut self.pages {
            Ok(pages) => pages.next_page(urls_max),
            Err(reason) => Err(reason.clone()),
        };
        if page.is_err() {
            self.pages = open_levels(self.args);
        }
        page
    }
}

fn open_levels(args: &TopArgs) -> Result<LevelPages, String> {
    match args.admin {
        // The levels in this namespace may belong to other servers.
        Some(_) => Err("--admin shows only the server".into()),
        None => LevelPages::open(args),
    }
}
