//! The changes of operators that survive a restart: a JSON file of the server (`changes` in `[admin]`). A start applies it
//! by the names of origins and the addresses of servers, as an upgrade applies the changes of its predecessor. See
//! docs/decisions/0083-changes-that-survive-a-restart.md.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lowroad_handler::origin_control::{KeptChange, OriginControl, ServerMode};
use lowroad_log::{ErrorLogger, LogLevel};
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::deny_list::{DenyEntry, DenyList, DenyRecord, ENTRIES_MAX};

/// The maximum length of the file in bytes: full lists of all kinds are shorter.
const FILE_LEN_MAX: u64 = 16 << 20;

/// The changes of an operator to a server of an origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedServer {
    /// The name of the origin.
    pub origin: String,
    /// The address of the server.
    pub address: String,
    /// The state: ready, drain, down or force.
    pub state: String,
    /// The weight; `None`: the configured one.
    pub weight: Option<u32>,
    /// The weight of a server that was added, and whether it is a backup.
    pub added: Option<(u32, bool)>,
}

impl From<KeptChange> for ChangedServer {
    fn from(change: KeptChange) -> ChangedServer {
        ChangedServer {
            origin: change.origin,
            address: change.address,
            state: change.mode.as_str().to_owned(),
            weight: change.weight,
            added: change.added,
        }
    }
}

impl From<ChangedServer> for KeptChange {
    fn from(changed: ChangedServer) -> KeptChange {
        KeptChange {
            origin: changed.origin,
            address: changed.address,
            // A state of a later version is unknown here.
            mode: ServerMode::from_name(&changed.state).unwrap_or_default(),
            weight: changed.weight,
            added: changed.added,
        }
    }
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SavedChanges {
    /// The changed servers of origins.
    pub servers: Vec<ChangedServer>,
    /// The entries of the deny list.
    pub deny: Vec<DenyRecord>,
    /// The level of the error log.
    pub log_level: Option<String>,
    /// The share of new traces that are recorded, 0 to 1.
    pub trace_sample: Option<f64>,
}

impl SavedChanges {
    /// Parses the file. Also returns a text for each entry that can't be used.
    ///
    /// # Errors
    /// The file is no JSON object.
    pub fn parse(text: &[u8]) -> Result<(SavedChanges, Vec<String>), String> {
        let mut members: serde_json::Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let mut faults = Vec::new();
        // A later version may have written more members; each is parsed by itself, so that one fault costs one entry.
        let mut take = |name: &str| members.remove(name).filter(|value| !value.is_null());
        let (servers, deny) = (take("servers"), take("deny"));
        let (level, sample) = (take("log_level"), take("trace_sample"));
        let servers = list::<ChangedServer>("servers", servers, &mut faults, |server| {
            let state = ServerMode::from_name(&server.state).map(drop);
            state.ok_or_else(|| format!("state {:?} is unknown", server.state))
        });
        let mut deny = list::<DenyRecord>("deny", deny, &mut faults, |record| {
            DenyEntry::new(&record.address, record.until_s).map(drop)
        });
        if deny.len() > ENTRIES_MAX {
            faults.push(format!(
                "deny: only the first {ENTRIES_MAX} of {} entries are used",
                deny.len()
            ));
            deny.truncate(ENTRIES_MAX);
        }
        let log_level = level.and_then(|value| {
            let name = value
                .as_str()
                .filter(|it| LogLevel::from_name(it).is_some());
            faults.extend(name.is_none().then(|| format!("log_level: {value}")));
            name.map(str::to_owned)
        });
        let trace_sample = sample.and_then(|value| {
            let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
            faults.extend(share.is_none().then(|| format!("trace_sample: {value}")));
            share
        });
        faults.extend(members.keys().map(|name| format!("{name}: unknown")));
        let changes = SavedChanges {
            servers,
            deny,
            log_level,
            trace_sample,
        };
        Ok((changes, faults))
    }

    /// Reads the file for a start, and logs its faults. Without a readable file, there are no changes.
    pub fn load(path: &Path, logger: &ErrorLogger) -> SavedChanges {
        let file = match ChangesFile::read(path) {
            Ok(file) => file,
            Err(fault) => {
                logger.error(format_args!(
                    "admin.changes: {fault}; the server starts without the changes in it"
                ));
                return SavedChanges::default();
            }
        };
        for fault in &file.faults {
            logger.warn(format_args!(
                "admin.changes: {}: an entry is skipped: {fault}",
                path.display()
            ));
        }
        file.changes
    }

    /// The changes of servers, as those of a predecessor.
    pub fn server_changes(&self) -> Vec<KeptChange> {
        self.servers.iter().cloned().map(KeptChange::from).collect()
    }

    /// Logs the changes of servers that no origin in force has. They have no effect, and stay in the file.
    pub fn warn_about_unknown_servers(&self, control: &dyn OriginControl, logger: &ErrorLogger) {
        // A name that is looked up may get this address later, so that the change is kept.
        let views = control.views();
        for ChangedServer {
            origin, address, ..
        } in &self.servers
        {
            let view = views.iter().find(|view| view.name == *origin);
            let has_server =
                view.is_some_and(|view| view.servers.iter().any(|it| it.address == *address));
            if !has_server {
                logger.warn(format_args!(
                    "admin.changes: the change of {origin} {address} has no effect now: no origin in force has this server"
                ));
            }
        }
    }

    /// Replaces the changes of a server by those that `control` keeps for it.
    pub fn set_server(&mut self, control: &dyn OriginControl, origin: &str, address: &str) {
        self.servers
            .retain(|server| server.origin != origin || server.address != address);
        let kept = control.kept_changes().into_iter();
        let mut kept = kept.filter(|it| it.origin == origin && it.address == address);
        self.servers.extend(kept.next().map(ChangedServer::from));
    }

    /// Changes the entries of the deny list.
    ///
    /// # Errors
    /// The list would be too long: nothing is changed.
    pub fn edit_deny(&mut self, edit: impl FnOnce(&mut DenyList)) -> Result<(), String> {
        // Sorted and without duplicates, like the list in force.
        let mut list = DenyList::from_records(&self.deny);
        edit(&mut list);
        list.check_len()
            .map_err(|fault| format!("admin.changes: {fault}"))?;
        self.deny = list.records();
        Ok(())
    }
}

/// The valid elements of a list.
fn list<T: DeserializeOwned + Serialize>(
    name: &str,
    value: Option<Value>,
    faults: &mut Vec<String>,
    check: impl Fn(&T) -> Result<(), String>,
) -> Vec<T> {
    let elements = match value {
        None => return Vec::new(),
        Some(Value::Array(elements)) => elements,
        Some(other) => {
            faults.push(format!("{name}: {other} is no list"));
            return Vec::new();
        }
    };
    let mut valid = Vec::new();
    for element in elements {
        let parsed = T::deserialize(&element).map_err(|error| error.to_string());
        let checked = parsed.and_then(|it| {
            check_members(&element, &it)?;
            check(&it).map(|()| it)
        });
        match checked {
            Ok(it) => valid.push(it),
            Err(fault) => faults.push(format!("{name}: {element}: {fault}")),
        }
    }
    valid
}

/// Checks that an element has only members that its type has: others may be mistakes, and would not be written again.
fn check_members<T: Serialize>(element: &Value, parsed: &T) -> Result<(), String> {
    let known = serde_json::to_value(parsed).map_err(|error| error.to_string())?;
    let members = element.as_object().into_iter().flatten();
    match members
        .map(|(name, _)| name)
        .find(|name| known.get(name).is_none())
    {
        Some(unknown) => Err(format!("{unknown} is unknown")),
        None => Ok(()),
    }
}

/// The file with its content.
pub struct ChangesFile {
    path: PathBuf,
    /// The changes.
    pub changes: SavedChanges,
    /// The entries that can't be used.
    faults: Vec<String>,
}

impl ChangesFile {
    /// Reads the file; one that does not exist is empty.
    ///
    /// # Errors
    /// The file can't be read, or is no JSON: a message with the path and a remedy.
    pub fn read(path: &Path) -> Result<ChangesFile, String> {
        let path = &resolve_link(path)?;
        let (changes, faults) = match read_bounded(path) {
            Ok(text) => SavedChanges::parse(&text).map_err(|fault| {
                format!(
                    "{} is damaged ({fault}); repair or remove it",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Default::default(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Ok(ChangesFile {
            path: path.to_owned(),
            changes,
            faults,
        })
    }

    /// As [`ChangesFile::read`], for a change.
    ///
    /// # Errors
    /// Also if the file has an entry that can't be used: the change would remove it.
    pub fn read_for_change(path: &Path) -> Result<ChangesFile, String> {
        let file = ChangesFile::read(path)?;
        match file.faults.first() {
            Some(fault) => Err(format!(
                "{} has an entry that can't be used ({fault}); repair or remove it",
                path.display()
            )),
            None => Ok(file),
        }
    }

    /// Replaces the file: a crash leaves the old or the new one.
    ///
    /// # Errors
    /// The file can't be written: a message with the path.
    pub fn write(&self) -> Result<(), String> {
        self.replace()
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn replace(&self) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.changes)?;
        text.push(b'\n');
        let mut new_path = self.path.clone().into_os_string();
        new_path.push(".new");
        let new_path = PathBuf::from(new_path);
        // Left behind by a crash.
        match fs::remove_file(&new_path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        // Addresses of clients are personal data.
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new_path)?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        let renamed = written.and_then(|()| fs::rename(&new_path, &self.path));
        if renamed.is_err() {
            // The error of the write is the one to report.
            let _ = fs::remove_file(&new_path);
        }
        renamed?;
        // Otherwise a loss of power could bring back the old file.
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// The file to which a symbolic link leads; other paths are unchanged. Otherwise the link itself would be replaced.
///
/// # Errors
/// The link leads nowhere: a message for the operator.
pub fn resolve_link(path: &Path) -> Result<PathBuf, String> {
    match fs::canonicalize(path) {
        Err(error) if path.is_symlink() => Err(format!(
            "{}: a symbolic link without a file: {error}",
            path.display()
        )),
        // A missing file is created.
        Err(_) => Ok(path.to_owned()),
        Ok(file) => Ok(file),
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO or a device would block the start. Examined after the file is open, as it may be replaced meanwhile.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let mut text = Vec::new();
    if file.metadata()?.is_file() {
        file.take(FILE_LEN_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 <= FILE_LEN_MAX {
            return Ok(text);
        }
    }
    Err(io::Error::other("no regular file, or too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_entries_are_skipped_and_named() {
        let text = br#"{
            "servers": [
                {"origin": "app", "address": "10.0.0.1:80", "state": "drain", "weight": null, "added": null},
                {"origin": "app", "address": "10.0.0.2:80", "state": "asleep", "weight": 3, "added": [1, false]},
                {"origin": 7}
            ],
            "deny": [{"address": "10.0.0.0/8", "until_s": 5}, {"address": "x", "until_s": null}],
            "log_level": "loud", "trace_sample": 0.5, "later": 1
        }"#;
        let (changes, faults) = SavedChanges::parse(text).expect("an object");
        assert_eq!(changes.servers.len(), 1);
        assert_eq!(changes.server_changes()[0].mode, ServerMode::Drain);
        assert_eq!((changes.deny.len(), &changes.log_level), (1, &None));
        assert_eq!(changes.trace_sample, Some(0.5));
        assert_eq!(faults.len(), 5, "{faults:?}");
        for damaged in [&b""[..], b"[]", b"{\"servers\": [", b"\0\0\0\0"] {
            assert!(SavedChanges::parse(damaged).is_err());
        }
    }

    #[test]
    fn file_is_replaced_completely() {
        let folder = lowroad_testkit::TempFolder::new();
        let path = folder.path().join("changes.json");
        let mut file = ChangesFile::read_for_change(&path).expect("no file is an empty one");
        assert_eq!(file.changes, SavedChanges::default());
        file.changes.log_level = Some("warn".into());
        let entry = DenyEntry::new("10.0.0.0/8", Some(9)).expect("an entry");
        let edited = file.changes.edit_deny(|list| list.add([entry]));
        assert_eq!(edited, Ok(()));
        // Left behind by a crash.
        folder.file("changes.json.new", "{");
        file.write().expect("room");
        let again = ChangesFile::read_for_change(&path).expect("a file");
        assert_eq!(again.changes, file.changes);
        let names = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, 1);
        folder.file("changes.json", "{\"later\": 1}");
        assert!(ChangesFile::read(&path).is_ok());
        assert!(ChangesFile::read_for_change(&path).is_err());
    }

    #[test]
    fn unknown_members_of_entries_are_named() {
        let text = br#"{
            "servers": [{"origin": "a", "address": "b", "state": "down", "weight": null, "added": null, "zone": 1}],
            "deny": [{"address": "10.0.0.1", "until": 5}, {"address": "10.0.0.2"}]
        }"#;
        let (changes, faults) = SavedChanges::parse(text).expect("an object");
        assert_eq!((changes.servers.len(), changes.deny.len()), (0, 1));
        assert!(faults[0].contains("zone is unknown"), "{faults:?}");
        assert!(faults[1].contains("until is unknown"), "{faults:?}");
    }

    #[test]
    fn deny_list_beyond_the_limit_is_refused() {
        let record = |at: usize| DenyRecord {
            address: format!("10.{}.{}.1/32", at / 250, at % 250),
            until_s: None,
        };
        let mut changes = SavedChanges {
            deny: (0..ENTRIES_MAX).map(record).collect(),
            ..SavedChanges::default()
        };
        let again = [record(3), record(4)].map(|it| DenyEntry::new(&it.address, None));
        let again = again.map(|it| it.expect("an entry"));
        assert_eq!(changes.edit_deny(|list| list.add(again)), Ok(()));
        // The canonical form of single addresses.
        assert!(changes.deny.iter().all(|it| !it.address.contains('/')));
        let full = changes.clone();
        let more = DenyEntry::new("192.0.2.1", None).expect("an entry");
        assert!(changes.edit_deny(|list| list.add([more])).is_err());
        assert_eq!(changes, full);
        changes.deny.push(more.record());
        let text = serde_json::to_vec(&changes).expect("JSON");
        let (parsed, faults) = SavedChanges::parse(&text).expect("an object");
        assert_eq!(parsed.deny.len(), ENTRIES_MAX);
        assert!(faults[0].contains("of 10001 entries"), "{faults:?}");
    }

    #[test]
    fn symbolic_link_is_followed_when_the_file_is_replaced() {
        let folder = lowroad_testkit::TempFolder::new();
        let file = folder.file("real.json", "{}");
        let link = folder.path().join("changes.json");
        std::os::unix::fs::symlink("real.json", &link).expect("a link");
        let mut read = ChangesFile::read_for_change(&link).expect("a file");
        read.changes.log_level = Some("warn".into());
        read.write().expect("room");
        assert!(link.is_symlink());
        let text = fs::read_to_string(&file).expect("a file");
        assert!(text.contains("warn"), "{text}");
        fs::remove_file(file).expect("the file");
        let refused = ChangesFile::read_for_change(&link).err();
        assert!(refused.is_some_and(|it| it.contains("without a file")));
    }

    #[test]
    fn special_file_does_not_block() {
        let folder = lowroad_testkit::TempFolder::new();
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a FIFO");
        assert!(ChangesFile::read(&path).is_err());
    }
}
