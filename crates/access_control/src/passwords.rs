//! Basic authentication (RFC 7617) with a password file. A verification takes tens of ms, so it runs on separate
//! threads. Verified credentials are remembered as keyed hashes until the file changes, which is checked every second.
//! Wrong attempts of a client and pending verifications are limited. Concurrent requests of a client with the same
//! credentials (as browsers send them for a page) share one verification.

mod basic;
mod schemes;

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

/// Wrong attempts per client: the burst, and the number per minute after it.
const ATTEMPTS_MAX: u64 = 10;
/// The maximum number of pending verifications.
const WAITING_MAX: usize = 256;
/// The number of verifier threads.
const THREADS: usize = 2;
/// The maximum number of remembered credentials, and the time for which each is remembered.
const VERIFIED_MAX: usize = 1024;
const VERIFIED_FOR_MS: u64 = 600_000;
/// The interval between checks whether the file has changed.
const CHECK_INTERVAL_MS: u64 = 1000;

/// A password file.
pub struct PasswordFile {
    file: PathBuf,
    /// The realm, which browsers display.
    pub realm: String,
    attempts: ClientRates,
    state: Mutex<PasswordState>,
    /// The callbacks of each pending verification.
    pending: Mutex<HashMap<CredentialHash, Vec<VerifyCallback>>>,
    /// The number of wrong passwords so far.
    wrong: AtomicU64,
    hashers: [RandomState; 2],
}

/// A hash of credentials, and the client's address.
type CredentialHash = ([u64; 2], IpAddr);
/// Called with the outcome of a verification; resumes the waiting request.
type VerifyCallback = Box<dyn FnOnce(PasswordOutcome) + Send>;

struct PasswordState {
    users: Arc<PasswordUsers>,
    /// The file stamp (identity, size and times) when the file was read.
    stamp: Option<FileStamp>,
    checked_ms: u64,
    /// The times of successful verifications, by a hash of the credentials.
    verified: HashMap<[u64; 2], u64>,
    /// The reason why the current contents of the file are not in force.
    fault: Option<String>,
}

/// The outcome of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordOutcome {
    /// The password is right.
    Right,
    /// The password is wrong, or the user does not exist.
    Wrong,
    /// The client made too many wrong attempts; the number of seconds until the next one is permitted.
    TooOften(u64),
    /// Too many verifications are pending.
    Busy,
}

impl PasswordFile {
    /// Reads a password file. If it cannot be read, the users of `previous`, from the same file, stay in force.
    ///
    /// # Errors
    /// The file is unusable, or a thread cannot be started; the text names the file.
    pub fn open(
        file: &Path,
        realm: &str,
        previous: Option<&PasswordFile>,
    ) -> io::Result<PasswordFile> {
        // The threads are started here, so that a failure is reported at start instead of to a client.
        helpers()?;
        let (users, stamp, fault) = match (read(file), previous) {
            (Ok((users, stamp)), _) => (Arc::new(users), stamp, None),
            // Users stay in force only if the file is unreadable; invalid contents fail the start or reload.
            (Err(error), Some(previous)) if error.kind() != ErrorKind::InvalidData => {
                let state = previous.lock();
                (state.users.clone(), state.stamp, Some(error.to_string()))
            }
            (Err(error), _) => {
                return Err(io::Error::other(format!("{}: {error}", file.display())));
            }
        };
        Ok(PasswordFile {
            file: file.into(),
            realm: realm.into(),
            attempts: ClientRates::new(RequestRate {
                requests: ATTEMPTS_MAX,
                period_ms: 60_000,
                burst: ATTEMPTS_MAX,
            }),
            state: Mutex::new(PasswordState {
                users,
                stamp,
                checked_ms: clock::now_ms(),
                verified: HashMap::new(),
                fault,
            }),
            pending: Mutex::default(),
            wrong: AtomicU64::new(0),
            hashers: [RandomState::new(), RandomState::new()],
        })
    }

    /// Whether these credentials were verified recently. Computes one hash.
    pub fn is_verified(&self, credentials: &BasicCredentials, now_ms: u64) -> bool {
        let hash = self.hash(credentials);
        let state = self.lock();
        // If the file was not checked recently, a helper must do so first.
        now_ms < state.checked_ms + CHECK_INTERVAL_MS && state.is_verified(hash, now_ms)
    }

    /// Verifies credentials on a helper thread, then calls `callback`.
    ///
    /// # Errors
    /// Too many verifications are pending.
    pub fn verify(
        self: &Arc<Self>,
        credentials: BasicCredentials,
        client: IpAddr,
        callback: impl FnOnce(PasswordOutcome) + Send + 'static,
    ) -> Result<(), PasswordOutcome> {
        let helpers = helpers().map_err(|_| PasswordOutcome::Busy)?;
        let key = (self.hash(&credentials), client);
        let mut pending = lock(&self.pending);
        // One verification serves all concurrent requests with these credentials, as browsers send several at the same
        // time.
        if let Some(callbacks) = pending.get_mut(&key) {
            callbacks.push(Box::new(callback));
            return Ok(());
        }
        // Verifications are slow by design, so their number is limited: a flood of passwords must not fill the memory.
        if pending.len() >= WAITING_MAX {
            return Err(PasswordOutcome::Busy);
        }
        pending.insert(key, vec![Box::new(callback)]);
        // The lock is released first: a full queue drops the verification below, which takes the lock again.
        drop(pending);
        let verifying = PendingVerification {
            passwords: self.clone(),
            key,
            outcome: PasswordOutcome::Busy,
        };
        // If the queue is full, the verification is dropped, which reports `Busy`.
        let _ = helpers.submit(move || verifying.check(&credentials));
        Ok(())
    }

    /// Verifies credentials on the calling thread, without recording the result. Blocks.
    pub fn verify_blocking(&self, credentials: &BasicCredentials) -> PasswordOutcome {
        let users = self.lock().users.clone();
        match self.is_right(&users, credentials) {
            true => PasswordOutcome::Right,
            false => PasswordOutcome::Wrong,
        }
    }

    /// Verifies credentials. Blocks on the disk and needs CPU time.
    fn check(&self, credentials: &BasicCredentials, client: IpAddr) -> PasswordOutcome {
        self.reload_if_changed();
        let (hash, now_ms) = (self.hash(credentials), clock::now_ms());
        let (users, is_verified) = {
            let state = self.lock();
            (state.users.clone(), state.is_verified(hash, now_ms))
        };
        // Another request may have verified the credentials while this one was queued.
        if is_verified {
            return PasswordOutcome::Right;
        }
        // Counted before the verification, so that concurrent attempts cannot exceed the limit.
        if let Err(wait_ms) = self.attempts.take(client, now_ms) {
            return PasswordOutcome::TooOften(retry_after_s(wait_ms));
        }
        if !self.is_right(&users, credentials) {
            self.wrong.fetch_add(1, Relaxed);
            return PasswordOutcome::Wrong;
        }
        // A right password does not count as an attempt.
        self.attempts.refund(client, now_ms);
        let mut state = self.lock();
        // A result must not be remembered if the users were replaced meanwhile.
        if Arc::ptr_eq(&state.users, &users) {
            state.record_verified(hash, clock::now_ms());
        }
        PasswordOutcome::Right
    }

    /// Reads the file again if it has changed. If it is unusable, the previous users stay in force.
    fn reload_if_changed(&self) {
        let now_ms = clock::now_ms();
        let previous_stamp = {
            let mut state = self.lock();
            if now_ms < state.checked_ms + CHECK_INTERVAL_MS {
                return;
            }
            // Set before the check, so that only one thread at a time reads the file.
            state.checked_ms = now_ms;
            state.stamp
        };
        let stamp = helper::file_stamp(&self.file);
        // Without a stamp, the file is read each time, as it may exist again.
        if stamp.is_some() && stamp == previous_stamp {
            return;
        }
        let read = read(&self.file);
        let mut state = self.lock();
        match read {
            Ok((users, stamp)) => {
                // A removed user or a changed password takes effect immediately.
                state.verified.clear();
                state.users = Arc::new(users);
                state.stamp = stamp;
                state.fault = None;
            }
            Err(error) => state.fault = Some(error.to_string()),
        }
    }

    /// The path of the password file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The reason why the current contents of the file are not in force; `None` if they are.
    pub fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// The state, as text.
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
        let Some((hash, user_exists)) = hash_for(users, &credentials.user, &self.hashers[0]) else {
            return false;
        };
        let is_right = schemes::verify(&credentials.password, hash);
        // Combined only after the verification: its duration must not reveal whether the user exists.
        is_right && user_exists
    }

    /// A keyed hash of credentials: without the keys, collisions cannot be found.
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
    fn is_verified(&self, hash: [u64; 2], now_ms: u64) -> bool {
        let since_ms = self.verified.get(&hash);
        since_ms.is_some_and(|since_ms| now_ms < since_ms + VERIFIED_FOR_MS)
    }

    fn record_verified(&mut self, hash: [u64; 2], now_ms: u64) {
        if self.verified.len() >= VERIFIED_MAX {
            let oldest = self.verified.iter().min_by_key(|(_, since_ms)| **since_ms);
            if let Some(oldest) = oldest.map(|(hash, _)| *hash) {
                self.verified.remove(&oldest);
            }
        }
        self.verified.insert(hash, now_ms);
    }
}

/// A pending verification. Dropping it calls all callbacks with the outcome.
struct PendingVerification {
    passwords: Arc<PasswordFile>,
    key: CredentialHash,
    outcome: PasswordOutcome,
}

impl PendingVerification {
    fn check(mut self, credentials: &BasicCredentials) {
        self.outcome = self.passwords.check(credentials, self.key.1);
    }
}

impl Drop for PendingVerification {
    fn drop(&mut self) {
        let callbacks = lock(&self.passwords.pending).remove(&self.key);
        for callback in callbacks.unwrap_or_default() {
            callback(self.outcome);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hash against which a password is verified, and whether the user exists. An unknown user gets the hash of a known
/// user, always the same one, so that timing does not reveal which users exist: the hashes in a file may differ in
/// cost, so that one common hash for all unknown users would be detectable.
fn hash_for<'u>(
    users: &'u PasswordUsers,
    user: &str,
    hasher: &RandomState,
) -> Option<(&'u str, bool)> {
    if let Some(user_hash) = users.get(user) {
        return Some((user_hash, true));
    }
    let count = u64::try_from(users.len()).ok()?;
    let number = hasher.hash_one(user).checked_rem(count)?;
    let hash = users.values().nth(usize::try_from(number).ok()?)?;
    Some((hash, false))
}

/// # Errors
/// [`ErrorKind::InvalidData`] if the file was read but cannot be used.
fn read(file: &Path) -> io::Result<(PasswordUsers, Option<FileStamp>)> {
    let invalid = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
    // Taken before reading: a change during the read is then noticed by the next check.
    let stamp_before = helper::file_stamp(file);
    let len = stamp_before.map_or(0, |stamp| stamp.len);
    if len > PASSWORD_FILE_LEN_MAX {
        return Err(invalid(format!(
            "longer than {PASSWORD_FILE_LEN_MAX} bytes"
        )));
    }
    let text = helper::open(file).and_then(io::read_to_string)?;
    Ok((passwords::users(&text).map_err(invalid)?, stamp_before))
}

/// The helper threads, which are started for the first password file.
pub(crate) fn helpers() -> io::Result<&'static HelperPool> {
    static HELPERS: OnceLock<HelperPool> = OnceLock::new();
    if let Some(helpers) = HELPERS.get() {
        return Ok(helpers);
    }
    let pool = HelperPool::start_as("password", THREADS)?;
    Ok(HELPERS.get_or_init(|| pool))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    #[test]
    fn concurrent_equal_credentials_share_one_verification() {
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
        // Holding the lock blocks both threads, so that all verifications are pending at the same time.
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
    fn unknown_user_is_verified_against_hash_of_known_user() {
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
