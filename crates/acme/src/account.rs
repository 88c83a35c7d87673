//! ACME accounts: each is created once per authority, and stored.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};

use crate::authority_client::{AcmeClient, AcmeConnections};
use crate::error::{problem_type, to_failure};
use crate::folder::{AcmeFolder, FolderLock};
use crate::manager::ManagerContext;
use crate::plan::{AcmeFailure, FailureKind};
use crate::settings::{AcmeSettings, AuthoritySettings};
use crate::severity::Severity;

/// Polling interval while another process creates the account.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(200);
const LOCK_POLLS_MAX: u32 = 600;

/// A stored account.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: String,
    contact: Vec<String>,
    /// The key identifier of the external account binding.
    key_id: Option<String>,
    credentials: serde_json::Value,
}

/// An account with the HTTP client for its authority.
pub(crate) struct AccountSession {
    pub account: Account,
    pub client: AcmeClient,
}

/// The file name of the account with an authority, without extension.
pub(crate) fn file_name(authority: &AuthoritySettings) -> String {
    let url = &authority.directory;
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    // All characters except letters, digits and dots are replaced: the result must be a valid file name.
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    rest.chars().map(plain).collect()
}

/// Opens the account with this authority; creates it if necessary.
pub(crate) async fn open(
    shared: &Arc<ManagerContext>,
    authority: &AuthoritySettings,
    http: &AcmeConnections,
) -> Result<AccountSession, AcmeFailure> {
    let (settings, folder) = (&shared.settings, &shared.folder);
    let name = file_name(authority);
    let client = http.client();
    // Usually the account exists, and no lock is needed.
    if let Ok(Some(stored)) = load_account(folder, &name, authority) {
        return restore(settings, folder, &name, stored, client).await;
    }
    let _lock = lock(folder, &name).await?;
    // Another process may have created the account before this one got the lock.
    match load_account(folder, &name, authority) {
        Ok(Some(stored)) => return restore(settings, folder, &name, stored, client).await,
        Ok(None) => {}
        Err(AccountFault::Unavailable(failure)) => return Err(failure),
        Err(AccountFault::Damaged(reason)) => {
            folder.forget_account(&name);
            let line = format!(
                "account {name}: the file is damaged, so a new account is created and the old \
                 file is renamed to {name}.old: {reason}"
            );
            shared.log(Severity::Warning, &line);
        }
    }
    let account = create(settings, folder, authority, &client).await?;
    Ok(AccountSession { account, client })
}

/// The reason that a stored account cannot be used.
enum AccountFault {
    /// The file cannot be repaired: a new account is needed.
    Damaged(String),
    Unavailable(AcmeFailure),
}

/// Restores a stored account. If the configured contacts have changed, updates them at the authority.
async fn restore(
    settings: &AcmeSettings,
    folder: &AcmeFolder,
    name: &str,
    stored: StoredAccount,
    client: AcmeClient,
) -> Result<AccountSession, AcmeFailure> {
    let sorted = |error: Error| to_failure(&error, client.response_meta());
    let credentials = serde_json::from_value(stored.credentials.clone());
    let credentials = credentials.map_err(AcmeFailure::local)?;
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let restored = builder.from_credentials(credentials).await;
    let account = restored.map_err(sorted)?;
    // The request is needed only if the contacts have changed.
    if stored.contact != settings.contact {
        let contact: Vec<&str> = settings.contact.iter().map(String::as_str).collect();
        match account.update_contacts(&contact).await {
            // The order will fail with the same error, and `order` then retires the account.
            Err(error) if is_lost(&error) => {}
            updated => {
                updated.map_err(sorted)?;
                let contact = settings.contact.clone();
                // The contacts are stored only after the authority has accepted them: after a failure, the next call
                // tries again.
                store(folder, name, &StoredAccount { contact, ..stored })?;
            }
        }
    }
    Ok(AccountSession { account, client })
}

/// Whether the error means that the authority does not know the account.
pub(crate) fn is_lost(error: &Error) -> bool {
    problem_type(error) == Some("accountDoesNotExist")
}

/// The stored account; `None` if it belongs to another authority or another external account.
fn load_account(
    folder: &AcmeFolder,
    name: &str,
    authority: &AuthoritySettings,
) -> Result<Option<StoredAccount>, AccountFault> {
    let text = match folder.account(name) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Without the right to read the file, a retry would fail, too.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(AccountFault::Damaged(error.to_string()));
        }
        Err(error) => {
            let failure = AcmeFailure::local(format!("account {name} cannot be read: {error}"));
            return Err(AccountFault::Unavailable(failure));
        }
    };
    let damaged = |error: serde_json::Error| AccountFault::Damaged(error.to_string());
    let stored: StoredAccount = serde_json::from_slice(&text).map_err(damaged)?;
    let credentials = serde_json::from_value(stored.credentials.clone());
    // The credentials are parsed only to detect damage, because the caller can create another account.
    let _: AccountCredentials = credentials.map_err(damaged)?;
    let external = authority.external_account.as_ref();
    let key_id = external.map(|external| external.key_id.as_str());
    // The account of another authority or external account must not be used.
    let is_same = stored.directory == authority.directory && stored.key_id.as_deref() == key_id;
    Ok(is_same.then_some(stored))
}

fn store(folder: &AcmeFolder, name: &str, stored: &StoredAccount) -> Result<(), AcmeFailure> {
    let text = serde_json::to_vec_pretty(stored).map_err(AcmeFailure::local)?;
    folder.store_account(name, &text)
}

async fn create(
    settings: &AcmeSettings,
    folder: &AcmeFolder,
    authority: &AuthoritySettings,
    client: &AcmeClient,
) -> Result<Account, AcmeFailure> {
    let contact: Vec<&str> = settings.contact.iter().map(String::as_str).collect();
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: settings.terms_agreed,
        only_return_existing: false,
    };
    let key = match &authority.external_account {
        Some(external) => {
            let key = external.decoded();
            let key = key.ok_or_else(|| {
                AcmeFailure::local("the external account key is not valid base64")
            })?;
            Some(ExternalAccountKey::new(external.key_id.clone(), &key))
        }
        None => None,
    };
    let directory = authority.directory.clone();
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let created = builder.create(&new, directory, key.as_ref()).await;
    let (account, credentials) = created.map_err(|error| {
        let mut failure = to_failure(&error, client.response_meta());
        // This text distinguishes refused accounts from refused names in the log.
        if failure.kind == FailureKind::Refused {
            failure.text = format!("refuses to create an account: {}", failure.text);
        }
        failure
    })?;
    let stored = StoredAccount {
        directory: authority.directory.clone(),
        contact: settings.contact.clone(),
        key_id: authority
            .external_account
            .as_ref()
            .map(|external| external.key_id.clone()),
        credentials: serde_json::to_value(credentials).map_err(AcmeFailure::local)?,
    };
    // The account is stored before its first use: without its key it would be useless, but count against the
    // authority's limits.
    store(folder, &file_name(authority), &stored)?;
    Ok(account)
}

async fn lock(folder: &AcmeFolder, name: &str) -> Result<FolderLock, AcmeFailure> {
    for _ in 0..LOCK_POLLS_MAX {
        if let Some(lock) = folder.lock_account(name)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_POLL_INTERVAL).await;
    }
    Err(AcmeFailure::local(format!(
        "account {name}: another process holds its lock"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_file_name_is_derived_from_directory_url() {
        let authority = AuthoritySettings {
            directory: "https://acme-v02.api.example/../directory".into(),
            ..AuthoritySettings::default()
        };
        assert_eq!(file_name(&authority), "acme-v02.api.example-..-directory");
    }
}
