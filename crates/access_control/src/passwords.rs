//! Basic authentication (RFC 7617) by a password file. A verification takes tens of ms, so separate threads do it;
//! verified credentials are remembered under a keyed hash while the file is unchanged, which is checked each second.
//! Wrong attempts of each client and pending verifications are bounded. Concurrent requests of a client with the same
//! credentials, such as a browser's for one page, share a verification.

mod basic;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lowroad_config::passwords::{self, PASSWORD_FILE_LEN_MAX, PasswordUsers};
use lowroad_engine::helper_pool::HelperPool;
use lowroad_file_stamp::FileStamp;
use lowroad_limits::{ClientRates, RequestRate, retry_after_s};
use lowroad_privileges::helper;
use lowroad_store::clock;

pub use basic::BasicCredentials;

/// Wrong attempts of a client: the burst, and the number per minute afterwards.
const TRIES: u64 = 10;
/// The maximum number of pending verifications.
const WAITING_MAX: usize = 256;
/// The number of verifier threads.
const THREADS: usize = 2;
/// The maximum number of remembered credentials, and how long each is remembered.
const KNOWN_MAX: usize = 1024;
const KNOWN_FOR_MS: u64 = 600_000;
/// The interval of the checks whether the file has changed.
const LOOKED_FOR_MS: u64 = 1000;

/// A password file.
pub struct PasswordFile {
    file: PathBuf,
    /// The realm that browsers display.
    pub realm: String,
    tries: ClientRates,
    state: Mutex<PasswordState>,
    /// The callbacks of each pending verification.
    waiting: Mutex<HashMap<CredentialHash, Vec<VerifyCallback>>>,
    /// The number of wrong passwords.
    wrong: AtomicU64,
    hashers: [RandomState; 2],
}

/// A hash of credentials, and the client.
type CredentialHash = ([u64; 2], IpAddr);
/// Resumes a waiting request.
type VerifyCallback = Box<dyn FnOnce(PasswordOutcome) + Send>;

struct PasswordState {
    users: Arc<PasswordUsers>,
    /// The stamp of the file that was read.
    stamp: Option<FileStamp>,
    looked_ms: u64,
    /// Times of verification, by a hash of the credentials.
    known: HashMap<[u64; 2], u64>,
    /// The reason why a changed file is not in force.
    fault: Option<String>,
}

/// The result of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordOutcome {
    /// The password is right.
    Right,
    /// The password is wrong, or the user is unknown.
    Wrong,
    /// Too many wrong attempts by this client; the number of seconds until the next is permitted.
    TooOften(u64),
    /// Too many verifications are pending.
    Busy,
}

impl PasswordFile {
    /// Reads a password file. If it can't be read, the users that `before` has of the same file stay in force.
    ///
    /// # Errors
    /// The file is unusable, or a thread can't be started; the text names the file.
    pub fn open(
        file: &Path,
        realm: &str,
        before: Option<&PasswordFile>,
    ) -> io::Result<PasswordFile> {
        // Started here, so that a failure is reported at the start instead of to a client.
        helpers()?;
        let (users, stamp, fault) = match (read(file), before) {
            (Ok((users, stamp)), _) => (Arc::new(users), stamp, None),
            // Only an unreadable file leaves the users in force; invalid contents fail the start or reload.
            (Err(error), Some(before)) if error.kind() != ErrorKind::InvalidData => {
                let state = before.lock();
                (state.users.clone(), state.stamp, Some(error.to_string()))
            }
            (Err(error), _) => {
                return Err(io::Error::other(format!("{}: {error}", file.display())));
            }
        };
        Ok(PasswordFile {
            file: file.into(),
            realm: realm.into(),
            tries: ClientRates::new(RequestRate {
                requests: TRIES,
                period_ms: 60_000,
                burst: TRIES,
            }),
            state: Mutex::new(PasswordState {
                users,
                stamp,
                looked_ms: clock::now_ms(),
                known: HashMap::new(),
                fault,
            }),
            waiting: Mutex::default(),
            wrong: AtomicU64::new(0),
            hashers: [RandomState::new(), RandomState::new()],
        })
    }

    /// Whether these credentials were verified recently. Costs one hash.
    pub fn is_known(&self, credentials: &BasicCredentials, now_ms: u64) -> bool {
        let hash = self.hash(credentials);
        let state = self.lock();
        // If the file was not checked recently, a helper must check it before the credentials count as known.
        now_ms < state.looked_ms + LOOKED_FOR_MS && state.knows(hash, now_ms)
    }

    /// Verifies credentials on a thread and calls `done`.
    ///
    /// # Errors
    /// Too many verifications are pending.
    pub fn verify(
        self: &Arc<Self>,
        credentials: BasicCredentials,
        client: IpAddr,
        done: impl FnOnce(PasswordOutcome) + Send + 'static,
    ) -> Result<(), PasswordOutcome> {
        let helpers = helpers().map_err(|_| PasswordOutcome::Busy)?;
        let shown = (self.hash(&credentials), client);
        let mut waiting = lock(&self.waiting);
        // One verification serves all concurrent requests with these credentials: a browser sends several at once.
        if let Some(others) = waiting.get_mut(&shown) {
            others.push(Box::new(done));
            return Ok(());
        }
        // A verification takes long by design, so a flood of passwords must not fill the memory.
        if waiting.len() >= WAITING_MAX {
            return Err(PasswordOutcome::Busy);
        }
        waiting.insert(shown, vec![Box::new(done)]);
        // Unlocked first: a full queue drops the verification below, and the drop takes this lock.
        drop(waiting);
        let verifying = PendingVerification {
            passwords: self.clone(),
            shown,
            found: PasswordOutcome::Busy,
        };
        // A full queue drops the verification, which reports `Busy`.
        let _ = helpers.submit(move || verifying.check(&credentials));
        Ok(())
    }

    /// Verifies at once, without recording anything. Blocks.
    pub fn look(&self, credentials: &BasicCredentials) -> PasswordOutcome {
        let users = self.lock().users.clone();
        match self.is_right(&users, credentials) {
            true => PasswordOutcome::Right,
            false => PasswordOutcome::Wrong,
        }
    }

    /// Verifies credentials. Blocks on the disk and computes.
    fn check(&self, credentials: &BasicCredentials, client: IpAddr) -> PasswordOutcome {
        self.follow();
        let (hash, now_ms) = (self.hash(credentials), clock::now_ms());
        let (users, is_known) = {
            let state = self.lock();
            (state.users.clone(), state.knows(hash, now_ms))
        };
        // Another request may have verified them while this one was queued.
        if is_known {
            return PasswordOutcome::Right;
        }
        // Taken before the verification, so that concurrent attempts can't exceed the limit.
        if let Err(wait_ms) = self.tries.take(client, now_ms) {
            return PasswordOutcome::TooOften(retry_after_s(wait_ms));
        }
        if !self.is_right(&users, credentials) {
            self.wrong.fetch_add(1, Relaxed);
            return PasswordOutcome::Wrong;
        }
        // Only wrong attempts count.
        self.tries.give_back(client, now_ms);
        let mut state = self.lock();
        // A result for a file that has been replaced must not be remembered.
        if Arc::ptr_eq(&state.users, &users) {
            state.learn(hash, clock::now_ms());
        }
        PasswordOutcome::Right
    }

    /// Reads the file again if it has changed. An unusable file leaves the previous users in force.
    fn follow(&self) {
        let now_ms = clock::now_ms();
        let known = {
            let mut state = self.lock();
            if now_ms < state.looked_ms + LOOKED_FOR_MS {
                return;
            }
            // Set before the check, so that one thread at a time reads the file.
            state.looked_ms = now_ms;
            state.stamp
        };
        let stamp = helper::stamp(&self.file);
        // Without a stamp, the file is read each time: it may be back.
        if stamp.is_some() && stamp == known {
            return;
        }
        let read = read(&self.file);
        let mut state = self.lock();
        match read {
            Ok((users, stamp)) => {
                // A removed user or a changed password must take effect at once.
                state.known.clear();
                state.users = Arc::new(users);
                state.stamp = stamp;
                state.fault = None;
            }
            Err(error) => state.fault = Some(error.to_string()),
        }
    }

    /// The file of users.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The reason why the current file is not in force, if it is not.
    pub fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// The state as text.
    pub fn status(&self) -> String {
        let wrong = self.wrong.load(Relaxed);
        let state = self.lock();
        let mut text = format!("{} users, {wrong} wrong passwords", state.users.len());
        if let Some(fault) = &state.fault {
            text.push_str(&format!(", the file can't be used: {fault}"));
        }
        text
    }

    fn is_right(&self, users: &PasswordUsers, credentials: &BasicCredentials) -> bool {
        let Some((hash, is_own)) = hash_for(users, &credentials.user, &self.hashers[0]) else {
            return false;
        };
        let is_right = match hash.starts_with("$argon2") {
            true => is_argon2(&credentials.password, hash),
            false => bcrypt::verify(&credentials.password, hash).unwrap_or(false),
        };
        // Combined only after the verification: its duration must not reveal whether the user exists.
        is_right && is_own
    }

    /// A keyed hash: without the keys, collisions can't be found.
    fn hash(&self, credentials: &BasicCredentials) -> [u64; 2] {
        let hash =
            |hasher: &RandomState| hasher.hash_one((&credentials.user, &credentials.password));
        [hash(&self.hashers[0]), hash(&self.hashers[1])]
    }

    fn lock(&self) -> MutexGuard<'_, PasswordState> {
        lock(&self.state)
    }
}

impl PasswordState {
    fn knows(&self, hash: [u64; 2], now_ms: u64) -> bool {
        let since_ms = self.known.get(&hash);
        since_ms.is_some_and(|since_ms| now_ms < since_ms + KNOWN_FOR_MS)
    }

    fn learn(&mut self, hash: [u64; 2], now_ms: u64) {
        if self.known.len() >= KNOWN_MAX {
            let oldest = self.known.iter().min_by_key(|(_, since_ms)| **since_ms);
            if let Some(oldest) = oldest.map(|(hash, _)| *hash) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(hash, now_ms);
    }
}

/// A pending verification; its drop calls all callbacks.
struct PendingVerification {
    passwords: Arc<PasswordFile>,
    shown: CredentialHash,
    found: PasswordOutcome,
}

impl PendingVerification {
    fn check(mut self, credentials: &BasicCredentials) {
        self.found = self.passwords.check(credentials, self.shown.1);
    }
}

impl Drop for PendingVerification {
    fn drop(&mut self) {
        let waiting = lock(&self.passwords.waiting).remove(&self.shown);
        for done in waiting.unwrap_or_default() {
            done(self.found);
        }
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hash to verify a password against, and whether it is the user's own. An unknown user gets the hash of a known
/// one, always the same, so that timing does not reveal which users exist: hashes of a file may differ in cost, so a
/// common hash for all unknown users would be detectable.
fn hash_for<'u>(
    users: &'u PasswordUsers,
    user: &str,
    hasher: &RandomState,
) -> Option<(&'u str, bool)> {
    if let Some(own) = users.get(user) {
        return Some((own, true));
    }
    let count = u64::try_from(users.len()).ok()?;
    let number = hasher.hash_one(user).checked_rem(count)?;
    let hash = users.values().nth(usize::try_from(number).ok()?)?;
    Some((hash, false))
}

fn is_argon2(password: &[u8], hash: &str) -> bool {
    use argon2::{Argon2, PasswordHash, PasswordVerifier};
    let hash = PasswordHash::new(hash);
    hash.is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// # Errors
/// Of kind [`ErrorKind::InvalidData`] if the file was read and can't be used.
fn read(file: &Path) -> io::Result<(PasswordUsers, Option<FileStamp>)> {
    let invalid = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    // Taken before the read: a change during the read is then noticed at the next check.
    let before = helper::stamp(file);
    let len = before.map_or(0, |stamp| stamp.len);
    if len > PASSWORD_FILE_LEN_MAX {
        return Err(invalid(format!(
            "longer than {PASSWORD_FILE_LEN_MAX} bytes"
        )));
    }
    let text = helper::open(file).and_then(io::read_to_string)?;
    Ok((passwords::users(&text).map_err(invalid)?, before))
}

/// Starts the threads with the first password file.
fn helpers() -> io::Result<&'static HelperPool> {
    static HELPERS: OnceLock<HelperPool> = OnceLock::new();
    if let Some(helpers) = HELPERS.get() {
        return Ok(helpers);
    }
    let started = HelperPool::start_as("password", THREADS)?;
    Ok(HELPERS.get_or_init(|| started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    #[test]
    fn equal_credentials_are_verified_once() {
        let folder = lowroad_testkit::TempFolder::new();
        let hash = bcrypt::hash("right", 4).expect("a hash");
        let file = folder.file("users", format!("ann:{hash}\n"));
        let passwords = Arc::new(PasswordFile::open(&file, "realm", None).expect("a file"));
        let (to, from) = channel();
        let shown = |password: &str| BasicCredentials {
            user: "ann".into(),
            password: password.into(),
        };
        let ask = |password: &str, client: u8| {
            let to = to.clone();
            let done = move |checked| to.send(checked).expect("it is heard");
            passwords.verify(shown(password), [192, 0, 2, client].into(), done)
        };
        // Both threads are blocked, so that all verifications are pending at the same time.
        let state = passwords.lock();
        for number in 0..WAITING_MAX {
            let password = if number == 0 {
                "wrong".into()
            } else {
                number.to_string()
            };
            assert_eq!(ask(&password, number as u8), Ok(()));
        }
        for _ in 0..1000 {
            assert_eq!(ask("wrong", 0), Ok(()), "it waits already");
        }
        assert_eq!(
            ask("wrong", 1),
            Err(PasswordOutcome::Busy),
            "another client's"
        );
        drop(state);
        for _ in 0..WAITING_MAX + 1000 {
            assert_eq!(from.recv(), Ok(PasswordOutcome::Wrong));
        }
        assert_eq!(passwords.wrong.load(Relaxed), WAITING_MAX as u64);
        assert_eq!(ask("right", 0), Ok(()));
        assert_eq!(from.recv(), Ok(PasswordOutcome::Right));
    }

    #[test]
    fn strangers_cost_what_users_do() {
        let users = (0..10).map(|number| (format!("user {number}"), format!("hash {number}")));
        let (users, hasher): (PasswordUsers, _) = (users.collect(), RandomState::new());
        assert_eq!(hash_for(&users, "user 3", &hasher), Some(("hash 3", true)));
        let stranger = |number: usize| {
            let name = format!("stranger {number}");
            let found = hash_for(&users, &name, &hasher);
            assert_eq!(found, hash_for(&users, &name, &hasher));
            let (hash, is_own) = found.expect("a hash");
            assert!(!is_own);
            hash
        };
        let hashes: HashSet<&str> = (0..300).map(stranger).collect();
        assert_eq!(hashes.len(), users.len());
        assert_eq!(hash_for(&PasswordUsers::new(), "user 3", &hasher), None);
    }
}
