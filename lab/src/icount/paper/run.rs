//! Runs the comparison: a new guest for each repeat of each server, several in parallel if requested. Repeats are the
//! outermost loop. Defines only the order of the work.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::super::kernel::{GuestKernel, plugin};
use super::super::standard::progress;
use super::super::table::thousands;
use super::super::{CountTraffic, measure};
use super::figure::CountedFigure;
use super::guest_of::{GuestMaterials, PreparedGuest};
use super::load::PaperLoad;
use super::subject::ComparedServer;
use super::{PaperComparison, database, table};

/// The settings of a comparison.
#[derive(Debug)]
pub struct PaperPlan {
    /// The paper.
    pub paper: &'static PaperComparison,
    /// The selected servers.
    pub subjects: Vec<&'static ComparedServer>,
    /// The selected loads.
    pub loads: Vec<&'static PaperLoad>,
    /// The number of requests behind each figure, which a load may divide.
    pub traffic: CountTraffic,
    /// Guests for each server.
    pub repeats: u32,
    /// The `lowroad` binary, if not in the default location.
    pub lowroad: Option<PathBuf>,
    /// Number of simultaneous guests.
    pub jobs: usize,
}

/// Progress messages of the workers.
enum PaperProgress {
    /// The current step.
    Step(String),
    /// A repeat of a figure is complete, with the server's version.
    Done(
        &'static ComparedServer,
        &'static PaperLoad,
        String,
        Result<u64, String>,
    ),
}

/// Measures and prints the comparison. `keep` receives all figures so far after each new one.
///
/// # Errors
/// No server can be measured on this machine.
pub fn run(
    plan: &PaperPlan,
    keep: &mut dyn FnMut(&[CountedFigure]),
) -> Result<Vec<CountedFigure>, String> {
    progress("the guest's kernel (downloaded once)");
    let (kernel, plugin) = (GuestKernel::new()?, plugin()?);
    progress("");
    let (todo, mut figures) = split_possible(plan);
    if todo.is_empty() && figures.is_empty() {
        return Err("none of these servers supports any of these loads".into());
    }
    let (mut done, total) = (0, todo.iter().map(|(_, loads)| loads.len()).sum::<usize>());
    let queue = Mutex::new(todo);
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        for _ in 0..plan.jobs {
            let (sender, queue, kernel, plugin) = (sender.clone(), &queue, &kernel, &plugin);
            scope.spawn(move || {
                // A closure reads the queue, so that the lock is released before the guest is measured.
                let next = || {
                    queue
                        .lock()
                        .expect("no thread panics with this lock")
                        .pop_front()
                };
                while let Some((subject, loads)) = next() {
                    let turn = PaperTurn {
                        plan,
                        subject,
                        kernel,
                        plugin,
                        sender: &sender,
                    };
                    turn.run_all(&loads);
                }
            });
        }
        // The loop below ends when all workers have dropped their senders.
        drop(sender);
        for event in receiver {
            match event {
                PaperProgress::Step(text) => progress(&format!("{done} of {total}; {text}")),
                PaperProgress::Done(subject, load, version, result) => {
                    done += 1;
                    progress("");
                    println!("{}", line(subject, load, &result));
                    let figure = find_or_add(plan, &mut figures, subject, load);
                    figure.add(version, result);
                    keep(&figures);
                }
            }
        }
    });
    println!("\n{}", table::markdown(plan.paper, &figures));
    println!(
        "Linux {}, 512 MiB and one processor for each, {} requests in progress",
        kernel.release(),
        plan.traffic.connections
    );
    Ok(figures)
}

/// Guests to boot, with the loads of each.
type PendingGuest = VecDeque<(&'static ComparedServer, Vec<&'static PaperLoad>)>;

/// The guests to boot, and figures without a count for the servers that are unavailable, which are reported.
fn split_possible(plan: &PaperPlan) -> (PendingGuest, Vec<CountedFigure>) {
    let (mut todo, mut figures) = (PendingGuest::new(), Vec::new());
    let no_database = database::missing().map(|(reason, _)| reason);
    for &subject in &plan.subjects {
        let missing = subject
            .missing(plan.lowroad.as_deref())
            .map(|(reason, _)| reason);
        let mut loads = Vec::new();
        for &load in &plan.loads {
            if subject.missing_feature(load).is_some() {
                continue;
            }
            let takes_pages = load.sizes().next().is_some();
            let reason = missing
                .clone()
                .or(no_database.clone().filter(|_| takes_pages));
            match reason {
                None => loads.push(load),
                Some(reason) => find_or_add(plan, &mut figures, subject, load).leave_out(reason),
            }
        }
        if !loads.is_empty() {
            todo.push_back((subject, loads));
        }
    }
    for (server, reason) in table::failures(plan.paper, &figures) {
        println!("left out, {server}: {reason}");
    }
    let first_round: Vec<_> = todo.iter().cloned().collect();
    // The guests are booted round by round, so that the first figures of all servers are there early.
    for _ in 1..plan.repeats {
        todo.extend(first_round.iter().cloned());
    }
    (todo, figures)
}

fn line(subject: &ComparedServer, load: &PaperLoad, result: &Result<u64, String>) -> String {
    let figure = match result {
        Ok(figure) => thousands(*figure),
        Err(error) => format!("- {}", error.trim().replace('\n', "\n    ")),
    };
    format!("{:<16}{:<46}{figure:>12}", subject.name, load.title)
}

/// The figure of a server and a load, created if missing.
fn find_or_add<'a>(
    plan: &PaperPlan,
    figures: &'a mut Vec<CountedFigure>,
    subject: &ComparedServer,
    load: &PaperLoad,
) -> &'a mut CountedFigure {
    let is_same =
        |figure: &CountedFigure| figure.server == subject.name && figure.load == load.name;
    let index = figures.iter().position(is_same).unwrap_or_else(|| {
        figures.push(CountedFigure {
            paper: plan.paper.number.to_owned(),
            server: subject.name.to_owned(),
            load: load.name.to_owned(),
            requests: requests(plan, load).requests,
            ..CountedFigure::default()
        });
        figures.len() - 1
    });
    &mut figures[index]
}

fn requests(plan: &PaperPlan, load: &PaperLoad) -> CountTraffic {
    CountTraffic {
        requests: (plan.traffic.requests / load.divided_by).max(1),
        ..plan.traffic
    }
}

/// The measurement of one guest.
struct PaperTurn<'a> {
    plan: &'a PaperPlan,
    subject: &'static ComparedServer,
    kernel: &'a GuestKernel,
    plugin: &'a Path,
    sender: &'a Sender<PaperProgress>,
}

impl PaperTurn<'_> {
    fn run_all(&self, loads: &[&'static PaperLoad]) {
        let mut ready = None;
        for &load in loads {
            let mut result = self.run_load(&mut ready, load, loads);
            // QEMU crashes occasionally: retry once in a new guest. If the server itself crashes the guest, it does so
            // again.
            let is_running = |ready: &mut PreparedGuest| ready.guest.runs();
            if result.is_err() && !ready.as_mut().is_some_and(is_running) {
                ready = None;
                result = self.run_load(&mut ready, load, loads);
            }
            let version = ready
                .as_ref()
                .map_or(String::new(), |ready| ready.version.clone());
            let has_booted = ready.is_some();
            let failure = result.as_ref().err().cloned();
            let _ = self
                .sender
                .send(PaperProgress::Done(self.subject, load, version, result));
            if let (false, Some(error)) = (has_booted, failure) {
                return self.give_up(load, loads, &error);
            }
        }
    }

    /// Records the failure for all remaining loads. If a guest failed to boot twice, it would not boot for the next
    /// load either, and each timeout takes long.
    fn give_up(&self, failed: &PaperLoad, loads: &[&'static PaperLoad], reason: &str) {
        let remaining = loads
            .iter()
            .skip_while(|load| load.name != failed.name)
            .skip(1);
        for &load in remaining {
            let failed =
                PaperProgress::Done(self.subject, load, String::new(), Err(reason.to_owned()));
            let _ = self.sender.send(failed);
        }
    }

    /// Counts one figure, in the running guest or a new one.
    fn run_load(
        &self,
        ready: &mut Option<PreparedGuest>,
        load: &PaperLoad,
        loads: &[&'static PaperLoad],
    ) -> Result<u64, String> {
        let ready = match ready {
            Some(ready) => ready,
            None => {
                self.step("boots");
                let materials = GuestMaterials {
                    kernel: self.kernel,
                    plugin: self.plugin,
                    lowroad: self.plan.lowroad.as_deref(),
                    // The guest serves all loads, so it needs a database if any of them does.
                    has_pages: loads.iter().any(|load| load.sizes().next().is_some()),
                };
                ready.insert(PreparedGuest::boot(self.subject, &materials)?)
            }
        };
        self.step(load.title);
        // The responses are checked before counting: a wrong response that is fast would look like a good figure.
        ready.check(self.subject, load)?;
        let request = load.drive_request(self.subject, &ready.address.to_string())?;
        let traffic = requests(self.plan, load);
        let figure = measure(&mut ready.guest, ready.address, &request, traffic)?;
        Ok(figure.round() as u64)
    }

    fn step(&self, text: &str) {
        let text = format!("{}: {text}", self.subject.name);
        let _ = self.sender.send(PaperProgress::Step(text));
    }
}
