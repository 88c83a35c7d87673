//! From the objects in this program to programs in the kernel. It knows no interfaces: where they are
//! attached is for `links`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenMapMut, OpenObject,
    PrintLevel, ProgramAttachType,
};

use lowroad_wire::width::len_of;

use crate::error::Error;
use crate::layout::{self, constants};

/// An object file; libbpf wants its bytes aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static XDP: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o")));
static TC: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o")));

/// Where the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// In the driver, with a second program at TC ingress for what only that can do.
    Xdp,
    /// At TC ingress.
    Tc,
}

/// How large the maps are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Connections that have a place at the same time, at half load of the table.
    pub connections: u32,
    /// Bytes for responses, and for what is kept about each.
    pub memory: u32,
}

/// Bounds of [`Sizes::memory`].
pub const MEMORY_MIN: u32 = 1 << 20;
/// As above.
pub const MEMORY_MAX: u32 = 512 << 20;

impl Default for Sizes {
    fn default() -> Self {
        Self {
            connections: 32_768,
            memory: 32 << 20,
        }
    }
}

impl Sizes {
    /// Buckets of eight places.
    #[must_use]
    pub fn connection_buckets(self) -> u32 {
        (self.connections.clamp(16, 1 << 22) / 4).next_power_of_two()
    }

    /// How many responses there are places for: one for each four KiB.
    #[must_use]
    pub fn response_places(self) -> u32 {
        (self.memory() / 4096).next_power_of_two()
    }

    /// Bytes of the store, with its margin: what the places leave.
    #[must_use]
    pub fn store_len(self) -> u32 {
        let place = len_of::<layout::response>();
        (self.memory() - self.response_places() * place).next_multiple_of(4096)
    }

    /// The most is what the verifier can follow.
    fn memory(self) -> u32 {
        self.memory.clamp(MEMORY_MIN, MEMORY_MAX)
    }

    /// Buckets of eight entries, a quarter full at most.
    #[must_use]
    pub fn index_buckets(self) -> u32 {
        self.response_places() / 2
    }

    /// Entries of a map that is sized here.
    fn entries(self, map: &str) -> Result<Option<u32>, Error> {
        Ok(match map {
            "connections" => Some(self.connection_buckets()),
            "response_index" => Some(self.index_buckets()),
            "responses" => Some(self.response_places()),
            "response_hits" => Some(processors()?),
            _ => None,
        })
    }

    /// Bytes of a value of a map for which that is set here.
    fn value_len(self, map: &str) -> Option<u32> {
        match map {
            "store" => Some(self.store_len()),
            "response_hits" => Some(self.response_places() * HIT_COUNTER_LEN),
            _ => None,
        }
    }
}

/// Of one processor's counter of one response.
const HIT_COUNTER_LEN: u32 = u64::BITS / 8;

/// How many processors there can be.
fn processors() -> Result<u32, Error> {
    let count = libbpf_rs::num_possible_cpus().map_err(Error::bpf("counting processors"))?;
    u32::try_from(count).map_err(|_| Error::Usage(format!("{count} processors")))
}

/// Programs in the kernel, and the descriptors of their maps.
#[derive(Debug)]
pub struct Loaded {
    tier: Tier,
    answering: Program,
    behind: Option<Program>,
    parts: Option<Program>,
    out: Program,
}

impl Loaded {
    /// The one that answers.
    #[must_use]
    pub fn answering(&self) -> BorrowedFd<'_> {
        self.answering.fd()
    }

    /// The one at TC that does what the first has marked, if that is another.
    #[must_use]
    pub fn behind(&self) -> Option<BorrowedFd<'_>> {
        self.behind.as_ref().map(Program::fd)
    }

    /// The one that makes the parts of long answers, where copies of a frame go out.
    #[must_use]
    pub fn parts(&self) -> Option<BorrowedFd<'_>> {
        self.parts.as_ref().map(Program::fd)
    }

    /// The one at TC egress.
    #[must_use]
    pub fn out(&self) -> BorrowedFd<'_> {
        self.out.fd()
    }

    /// Where they run.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }
}

/// One program of an object; its others are not loaded.
#[derive(Debug)]
struct Program {
    object: Object,
    name: &'static str,
}

impl Program {
    fn fd(&self) -> BorrowedFd<'_> {
        let mut programs = self.object.progs();
        let program = programs.find(|program| program.name() == self.name);
        let fd = program.expect("the object has it").as_fd().as_raw_fd();
        // SAFETY: the object owns the descriptor, and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// Loads the programs of a tier. Maps that are pinned in `folder` are used, the others are made and
/// pinned there; so all programs have the same.
///
/// # Errors
/// [`Error::Verifier`] with its last lines; [`Error::Usage`] when a pinned map has other sizes;
/// [`Error::System`] when the process may not.
pub fn load(tier: Tier, sizes: Sizes, folder: &Path) -> Result<Loaded, Error> {
    let one = |object: &[u8], name| load_one(object, name, sizes, folder);
    let out = one(&TC.0, "lowroad_out")?;
    match tier {
        Tier::Tc => Ok(Loaded {
            tier,
            answering: one(&TC.0, "lowroad_tc")?,
            behind: None,
            parts: None,
            out,
        }),
        Tier::Xdp => Ok(Loaded {
            tier,
            answering: one(&XDP.0, "lowroad_xdp")?,
            behind: Some(one(&TC.0, "lowroad_marked")?),
            parts: Some(one(&XDP.0, "lowroad_part")?),
            out,
        }),
    }
}

/// The program that makes parts as one that can be tried (`BPF_PROG_TEST_RUN` takes none that stands
/// behind a map of devices).
///
/// # Errors
/// As [`load`].
pub fn load_parts_for_trial(sizes: Sizes, folder: &Path) -> Result<OwnedFd, Error> {
    let program = load_as(&XDP.0, "lowroad_part", sizes, folder, true)?;
    let fd = program.fd().try_clone_to_owned();
    fd.map_err(Error::system("duplicating a descriptor"))
}

fn load_one(
    bytes: &[u8],
    name: &'static str,
    sizes: Sizes,
    folder: &Path,
) -> Result<Program, Error> {
    load_as(bytes, name, sizes, folder, false)
}

fn load_as(
    bytes: &[u8],
    name: &'static str,
    sizes: Sizes,
    folder: &Path,
    is_trial: bool,
) -> Result<Program, Error> {
    let messages = messages();
    let mut open = ObjectBuilder::default()
        .open_memory(bytes)
        .map_err(Error::bpf("opening the programs"))?;
    for mut program in open.progs_mut() {
        program.set_autoload(program.name() == name);
        if is_trial && program.name() == name {
            program.set_attach_type(ProgramAttachType::Xdp);
        }
    }
    let inner = prepare(&mut open, sizes, folder)?;
    let loaded = open.load();
    drop(inner);
    let mut object = loaded.map_err(|error| {
        let said = messages
            .lock()
            .map_or_else(|_| String::new(), |said| last_lines(&said));
        match said.is_empty() {
            true => Error::bpf("loading the programs")(error),
            false => Error::Verifier(said),
        }
    })?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let path = folder.join(&name);
        if !name.contains('.') && !path.exists() {
            map.pin(&path)
                .map_err(Error::bpf(format!("pinning {}", path.display())))?;
        }
    }
    Ok(Program { object, name })
}

fn prepare(open: &mut OpenObject, sizes: Sizes, folder: &Path) -> Result<Option<OwnedFd>, Error> {
    let mut inner = None;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata") {
            let value = map.initial_value_mut().expect("constants have a value");
            write_constants(value, sizes);
            continue;
        }
        let (wanted_entries, value_len) = (sizes.entries(&name)?, sizes.value_len(&name));
        if let Some(entries) = wanted_entries {
            map.set_max_entries(entries)
                .map_err(Error::bpf(format!("sizing {name}")))?;
        }
        if let Some(len) = value_len {
            map.set_value_size(len)
                .map_err(Error::bpf(format!("sizing {name}")))?;
        }
        if name == "grace" {
            let template = grace_inner()?;
            map.set_inner_map_fd(template.as_fd())
                .map_err(Error::bpf("the map of maps"))?;
            inner = Some(template);
        }
        let path = folder.join(&name);
        if path.exists() {
            reuse(&mut map, &path, wanted_entries, value_len)?;
        }
    }
    Ok(inner)
}

/// Takes the map that is pinned, if its size is the one wanted: the programs' masks follow from that.
fn reuse(
    map: &mut OpenMapMut<'_>,
    path: &Path,
    entries: Option<u32>,
    value_len: Option<u32>,
) -> Result<(), Error> {
    let there = MapHandle::from_pinned_path(path)
        .map_err(Error::bpf(format!("opening {}", path.display())))?;
    let fits = entries.is_none_or(|entries| entries == there.max_entries())
        && value_len.is_none_or(|len| len == there.value_size());
    if fits && map.reuse_pinned_map(path).is_ok() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: pinned maps have other sizes than asked for; `lowroad detach` first",
        path.display()
    )))
}

fn write_constants(value: &mut [u8], sizes: Sizes) {
    let wanted = constants {
        connection_mask: sizes.connection_buckets() - 1,
        index_mask: sizes.index_buckets() - 1,
        response_mask: sizes.response_places() - 1,
        store_last: sizes.store_len() - layout::STORE_MARGIN,
    };
    let words = [
        wanted.connection_mask,
        wanted.index_mask,
        wanted.response_mask,
        wanted.store_last,
    ];
    assert_eq!(
        value.len(),
        size_of::<constants>(),
        "nothing else is constant"
    );
    for (to, word) in value.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
}

/// A map for the place of the map of maps whose replacement waits for a grace period.
pub(crate) fn grace_inner() -> Result<OwnedFd, Error> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some("grace_inner"), 4, 4, 1, &options)
        .map_err(Error::bpf("making a map"))?;
    map.as_fd()
        .try_clone_to_owned()
        .map_err(Error::system("duplicating a descriptor"))
}

/// Waits until no run of a program that began before is under way. The kernel does that when an
/// element of a map of maps is replaced (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c).
///
/// # Errors
/// When maps can't be made.
pub fn wait_for_programs(grace: &MapHandle) -> Result<(), Error> {
    let inner = grace_inner()?;
    let fd = inner.as_raw_fd().to_ne_bytes();
    grace
        .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
        .map_err(Error::bpf("waiting for a grace period"))
}

/// What libbpf says goes here and not to standard error.
fn messages() -> &'static Mutex<String> {
    static SAID: Mutex<String> = Mutex::new(String::new());
    fn keep(_level: PrintLevel, text: String) {
        if let Ok(mut said) = SAID.lock() {
            said.push_str(&text);
        }
    }
    libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    &SAID
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
