//! The database of a guest: created and filled once on the host, then copied into each guest and started there. It runs
//! in the guest's virtual time, and its instructions are counted with the server's, as on a shared machine. Independent
//! of servers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::icount::kernel::{CopiedPath, build_once, cache};
use crate::peers::{PeerFailure, programs};

/// The database's address in the guest.
pub const ADDRESS: &str = "127.0.0.1:3306";
const FOLDER: &str = "/db";
/// Files that the database reads apart from its data.
const SHARED: &[&str] = &["/usr/share/mysql/english", "/usr/share/mysql/charsets"];
/// A small log, since the guest's disk is its memory. The database must be filled and run with the same value.
const LOG: &str = "--innodb-log-file-size=4M";

/// An installed database program with its filled data folder.
pub struct SampleDatabase {
    program: PathBuf,
    data: PathBuf,
}

impl SampleDatabase {
    /// The database filled by this SQL file: from the cache, or created now.
    ///
    /// # Errors
    /// MariaDB is not installed, or failed; the text includes its output.
    pub fn from_schema(schema: &Path) -> Result<SampleDatabase, PeerFailure> {
        let find_program = |name: &str| {
            programs::find(name).ok_or_else(|| {
                PeerFailure::NotInstalled(format!(
                    "{name} is missing: `lowroad-lab peers install mariadb` installs it"
                ))
            })
        };
        let (program, installer) = (
            find_program("mariadbd")?,
            find_program("mariadb-install-db")?,
        );
        let data = filled(&program, &installer, schema).map_err(PeerFailure::Broken)?;
        Ok(SampleDatabase { program, data })
    }

    /// The files that a guest needs to run the database.
    pub fn copied(&self) -> impl Iterator<Item = CopiedPath> {
        let copied_path = |source: &Path, path: &str| CopiedPath {
            source: source.to_owned(),
            path: path.to_owned(),
        };
        let program = self.program.display().to_string();
        let own_files = [
            copied_path(&self.data, FOLDER),
            copied_path(&self.program, &program),
        ];
        let shared = SHARED
            .iter()
            .map(move |path| copied_path(Path::new(path), path));
        own_files.into_iter().chain(shared)
    }

    /// Shell code that starts the database in the guest and waits until it accepts connections.
    pub fn command(&self) -> String {
        let program = self.program.display();
        // nosync: the data is in memory, so a flush would cost instructions and protect nothing.
        format!(
            "{program} --no-defaults --user=root --datadir={FOLDER} --tmpdir=/tmp --socket=/tmp/mariadb.sock \
             --pid-file=/tmp/mariadb.pid --bind-address=127.0.0.1 --port=3306 --skip-name-resolve {LOG} \
             --innodb-flush-method=nosync --innodb-buffer-pool-size=16M --max-connections=1024 \
             --thread-cache-size=64 &\n\
             until [ -S /tmp/mariadb.sock ]; do sleep 0.2; done\n"
        )
    }
}

fn filled(program: &Path, installer: &Path, schema: &Path) -> Result<PathBuf, String> {
    let text =
        fs::read_to_string(schema).map_err(|error| format!("{}: {error}", schema.display()))?;
    let version = run(Command::new(program).arg("--version"))?;
    // Without grant tables CREATE USER is refused; FLUSH PRIVILEGES loads them first.
    let text = format!("FLUSH PRIVILEGES;\n{text}");
    // Another version of the server may store its files in another format.
    let sum = crc32fast::hash(format!("{version}{text}").as_bytes());
    build_once(&cache()?.join(format!("database-{sum:08x}")), |folder| {
        let folder = format!("--datadir={}", folder.display());
        let usual = ["--no-defaults", "--user=root", &folder, LOG];
        let mut install = Command::new(installer);
        install.args(usual);
        run(install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]))?;
        let statements = schema.with_extension("bootstrap.sql");
        fs::write(&statements, &text)
            .map_err(|error| format!("{}: {error}", statements.display()))?;
        let from = File::open(&statements);
        let from = from.map_err(|error| format!("{}: {error}", statements.display()))?;
        // --bootstrap runs the statements without opening a socket, so it can't conflict with another instance.
        run(Command::new(program)
            .args(usual)
            .arg("--bootstrap")
            .stdin(from))
        .map(drop)
    })
}

/// Returns the output of a command, if it succeeds.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // --bootstrap reads its statements from standard input; other commands must not read the lab's.
    if command.get_args().all(|argument| argument != "--bootstrap") {
        command.stdin(Stdio::null());
    }
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = stderr.lines().last().unwrap_or_default();
            Err(format!("{name}: {}: {last}", output.status))
        }
    }
}
