//! Loads the embedded object files into the kernel. Independent of interfaces, to which `links` attaches the programs.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramAttachType, ProgramInput,
};

use crate::error::LevelError;
use crate::layout::{self, constants};

use super::maps::{FreshMaps, MapSource, PinnedMaps};
use super::sizes::{MapCapacity, MapSizes};

/// The alignment that libbpf needs.
const OBJECT_ALIGNMENT: usize = 8;

/// An object file with this alignment.
#[repr(C, align(8))]
pub(super) struct AlignedObject<T: ?Sized>(pub(super) T);

/// The compressed object files.
static XDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o.zst"));
static TC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o.zst"));

/// The hook at which responses are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramTier {
    /// Native XDP, with a second program at TC ingress for work that needs the helpers of TC.
    Xdp,
    /// TC ingress.
    Tc,
}

/// Maximum length of the frame that a program returns in a trial.
const TRIAL_FRAME_MAX: usize = 4096;

/// The loaded programs of a tier, with the descriptors of their maps.
#[derive(Debug)]
pub struct LoadedPrograms {
    tier: ProgramTier,
    answering: LoadedProgram,
    after_xdp: Option<LoadedProgram>,
    parts: Option<LoadedProgram>,
    out: LoadedProgram,
}

impl LoadedPrograms {
    /// The program that answers requests.
    #[must_use]
    pub fn answering(&self) -> BorrowedFd<'_> {
        self.answering.fd()
    }

    /// The program at TC ingress behind native XDP; only at the XDP tier.
    #[must_use]
    pub fn after_xdp(&self) -> Option<BorrowedFd<'_>> {
        self.after_xdp.as_ref().map(LoadedProgram::fd)
    }

    /// The program at devmap egress that turns copies of a frame into segments of a response; only at the XDP tier.
    #[must_use]
    pub fn parts(&self) -> Option<BorrowedFd<'_>> {
        self.parts.as_ref().map(LoadedProgram::fd)
    }

    /// The program at TC egress.
    #[must_use]
    pub fn out(&self) -> BorrowedFd<'_> {
        self.out.fd()
    }

    /// The tier.
    #[must_use]
    pub fn tier(&self) -> ProgramTier {
        self.tier
    }
}

/// One loaded program of an object file.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    object: Object,
    name: &'static str,
}

impl LoadedProgram {
    /// Runs the program (`BPF_PROG_TEST_RUN`) on a frame that seems to come from `lo` of the thread's network
    /// namespace. Returns the program's verdict and the resulting frame, preceded by its metadata.
    ///
    /// # Errors
    /// If the kernel does not run the program.
    pub(crate) fn run_on_frame(&self, frame: &[u8]) -> Result<(i32, Vec<u8>), LevelError> {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == self.name);
        let mut out = vec![0; TRIAL_FRAME_MAX];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        let output = program.expect("the object has it").test_run(input);
        let output = output.map_err(LevelError::bpf("trying a program"))?;
        let verdict = output.return_value.cast_signed();
        let len = output.data.map_or(0, |data| data.len());
        out.truncate(len);
        Ok((verdict, out))
    }

    /// The program's descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        let mut programs = self.object.progs();
        let program = programs.find(|program| program.name() == self.name);
        let fd = program.expect("the object has it").as_fd().as_raw_fd();
        // SAFETY: the object owns the descriptor, and is borrowed for the same lifetime.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// Loads the programs of a tier. Maps pinned in `folder` are reused; others are created and pinned there, so that all
/// programs share them.
///
/// Returns `LevelError::Verifier` with the last lines of the verifier's log; `LevelError::Usage` if a pinned map has
/// another size; `LevelError::System` if the process lacks permission.
pub fn load(
    tier: ProgramTier,
    sizes: MapSizes,
    folder: &Path,
) -> Result<LoadedPrograms, LevelError> {
    let maps = PinnedMaps::new(folder);
    let load_one =
        |compressed: &[u8], name| load_as(compressed, name, sizes.map_capacity(), &maps, false);
    // XDP has no egress hook, so both tiers use the egress program at TC.
    let out = load_one(TC, "lowroad_out")?;
    match tier {
        ProgramTier::Tc => Ok(LoadedPrograms {
            tier,
            answering: load_one(TC, "lowroad_tc")?,
            after_xdp: None,
            parts: None,
            out,
        }),
        ProgramTier::Xdp => Ok(LoadedPrograms {
            tier,
            answering: load_one(XDP, "lowroad_xdp")?,
            after_xdp: Some(load_one(TC, "lowroad_marked")?),
            parts: Some(load_one(XDP, "lowroad_part")?),
            out,
        }),
    }
}

/// The programs of a tier for a trial, with private maps. `parts` is not run itself: it is entered into the fan-out
/// maps.
pub(crate) struct TrialPrograms {
    /// The program that answers.
    pub(crate) answering: LoadedProgram,
    /// At the XDP tier: the full TC program, for frames that XDP passes on.
    pub(crate) after_xdp: Option<LoadedProgram>,
    /// At the XDP tier: the program for the segments of long responses.
    pub(crate) parts: Option<LoadedProgram>,
}

/// Loads the programs of a tier with private maps only.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_for_trial(
    tier: ProgramTier,
    room: MapCapacity,
    maps: &FreshMaps,
) -> Result<TrialPrograms, LevelError> {
    let load_one = |compressed: &[u8], name| load_as(compressed, name, room, maps, false);
    match tier {
        ProgramTier::Tc => Ok(TrialPrograms {
            answering: load_one(TC, "lowroad_tc")?,
            after_xdp: None,
            parts: None,
        }),
        ProgramTier::Xdp => Ok(TrialPrograms {
            answering: load_one(XDP, "lowroad_xdp")?,
            after_xdp: Some(load_one(TC, "lowroad_tc")?),
            parts: Some(load_one(XDP, "lowroad_part")?),
        }),
    }
}

/// Loads the fan-out program as an ordinary XDP program, since `BPF_PROG_TEST_RUN` rejects devmap programs.
///
/// # Errors
/// As [`load`].
pub fn load_parts_for_trial(sizes: MapSizes, folder: &Path) -> Result<OwnedFd, LevelError> {
    let maps = PinnedMaps::new(folder);
    let program = load_as(XDP, "lowroad_part", sizes.map_capacity(), &maps, true)?;
    let fd = program.fd().try_clone_to_owned();
    fd.map_err(LevelError::system("duplicating a descriptor"))
}

fn load_as(
    compressed: &[u8],
    name: &'static str,
    room: MapCapacity,
    maps: &dyn MapSource,
    is_trial: bool,
) -> Result<LoadedProgram, LevelError> {
    // `messages()` empties the buffer: after a failure it holds the verifier's log of this load.
    let messages = messages();
    let object =
        zstd::decode_all(compressed).map_err(LevelError::system("decompressing the programs"))?;
    let mut buffer = Vec::new();
    let mut open = ObjectBuilder::default()
        .open_memory(aligned(&object, &mut buffer))
        .map_err(LevelError::bpf("opening the programs"))?;
    for mut program in open.progs_mut() {
        // Each object contains several programs; each call loads only one of them.
        program.set_autoload(program.name() == name);
        if is_trial && program.name() == name {
            program.set_attach_type(ProgramAttachType::Xdp);
        }
    }
    let inner = prepare(&mut open, room, maps)?;
    let loaded = open.load();
    // libbpf needs the inner map's template until the maps are created.
    drop(inner);
    let mut object = loaded.map_err(|error| {
        let lines = messages
            .lock()
            .map_or_else(|_| String::new(), |text| last_lines(&text));
        match lines.is_empty() {
            true => LevelError::bpf("loading the programs")(error),
            false => LevelError::Verifier(lines),
        }
    })?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        // Maps with a dot in their name hold constants, and belong to one program.
        if !name.contains('.') {
            maps.store(&name, &mut map)?;
        }
    }
    Ok(LoadedProgram { object, name })
}

/// Copies an object file to `buffer`, with the alignment that libbpf needs.
fn aligned<'b>(object: &[u8], buffer: &'b mut Vec<u8>) -> &'b [u8] {
    // Allocations of bytes have no alignment that could be relied on, so the copy begins at the first aligned byte.
    buffer.resize(object.len() + OBJECT_ALIGNMENT, 0);
    let start = buffer.as_ptr().align_offset(OBJECT_ALIGNMENT);
    let copy = &mut buffer[start..start + object.len()];
    copy.copy_from_slice(object);
    copy
}

fn prepare(
    open: &mut OpenObject,
    room: MapCapacity,
    maps: &dyn MapSource,
) -> Result<Option<OwnedFd>, LevelError> {
    let mut inner = None;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata") {
            let value = map.initial_value_mut().expect("constants have a value");
            write_constants(value, room);
            continue;
        }
        let (wanted_entries, value_len) = (room.entries(&name)?, room.value_len(&name));
        if let Some(entries) = wanted_entries {
            map.set_max_entries(entries)
                .map_err(LevelError::bpf(format!("sizing {name}")))?;
        }
        if let Some(len) = value_len {
            map.set_value_size(len)
                .map_err(LevelError::bpf(format!("sizing {name}")))?;
        }
        if name == "admission_grace" {
            // libbpf needs a template of the inner map to create a map of maps.
            let template = grace_inner()?;
            map.set_inner_map_fd(template.as_fd())
                .map_err(LevelError::bpf("the map of maps"))?;
            inner = Some(template);
        }
        // The programs' masks are derived from the requested sizes, so existing maps must have these sizes.
        if let Some(existing) = maps.find(&name)? {
            let fits = wanted_entries.is_none_or(|entries| entries == existing.max_entries())
                && value_len.is_none_or(|len| len == existing.value_size());
            if !fits || map.reuse_fd(existing.as_fd()).is_err() {
                return Err(maps.size_mismatch_error(&name));
            }
        }
    }
    Ok(inner)
}

fn write_constants(value: &mut [u8], room: MapCapacity) {
    let values = constants {
        connection_mask: room.connection_buckets - 1,
        index_mask: room.index_buckets - 1,
        response_mask: room.response_slots - 1,
        store_last: room.store_len - layout::STORE_MARGIN,
    };
    // The words are in the order of the structure's fields.
    let words = [
        values.connection_mask,
        values.index_mask,
        values.response_mask,
        values.store_last,
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

/// Creates an inner map for `admission_grace`; replacing that map's element waits for a grace period.
pub(crate) fn grace_inner() -> Result<OwnedFd, LevelError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some("grace_inner"), 4, 4, 1, &options)
        .map_err(LevelError::bpf("creating a map"))?;
    map.as_fd()
        .try_clone_to_owned()
        .map_err(LevelError::system("duplicating a descriptor"))
}

/// Waits until all program runs that have already begun are over. The kernel does that when an element of a map of maps
/// is replaced (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c).
///
/// # Errors
/// If maps can't be created.
pub fn wait_for_programs(grace: &MapHandle) -> Result<(), LevelError> {
    let inner = grace_inner()?;
    let fd = inner.as_raw_fd().to_ne_bytes();
    grace
        .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
        .map_err(LevelError::bpf("waiting for a grace period"))
}

/// Redirects libbpf's messages from standard error into a buffer, and empties the buffer.
pub(super) fn messages() -> &'static Mutex<String> {
    static LIBBPF_LOG: Mutex<String> = Mutex::new(String::new());
    fn append_message(_level: PrintLevel, text: String) {
        if let Ok(mut log) = LIBBPF_LOG.lock() {
            log.push_str(&text);
        }
    }
    libbpf_rs::set_print(Some((PrintLevel::Info, append_message)));
    if let Ok(mut log) = LIBBPF_LOG.lock() {
        log.clear();
    }
    &LIBBPF_LOG
}

pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
