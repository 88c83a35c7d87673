//! One order, from the lock to the stored certificate (RFC 8555, section 7.4).

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, Error, Identifier, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::account::{self, AccountSession};
use crate::authority_client::AuthorityUnreachable;
use crate::challenge::{PendingChallenge, PublishedChallenges};
use crate::demand_check;
use crate::error::{in_words, problem_type, trouble};
use crate::folder::FolderLock;
use crate::issued_certificate::IssuedCertificate;
use crate::manager::ManagerContext;
use crate::plan::{AcmeFailure, FailureKind};
use crate::settings::{AuthoritySettings, ChallengeMethod};

/// Time limit from the lock to the certificate.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Polling interval while another process has the lock.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Polling of an authority that validates or signs.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.6)
    .timeout(Duration::from_secs(180));

/// A certificate to order.
#[derive(Clone, Debug)]
pub(crate) struct OrderRequest {
    /// The certificate's key.
    pub key: String,
    pub names: Vec<String>,
    pub on_demand: bool,
    /// The authority's index.
    pub place: usize,
    /// The certificate that it replaces, if the same authority has issued that.
    pub replaces: Option<CertificateIdentifier<'static>>,
}

/// The result of an order.
pub(crate) enum OrderOutcome {
    /// A certificate, and the failure to store it, if any.
    Issued(IssuedCertificate, Option<AcmeFailure>),
    /// The folder already has one: the certificate, and the directory URL of its issuer.
    Found(IssuedCertificate, Option<String>),
    /// The operator's service refused it.
    Unwanted,
}

/// Orders a certificate.
pub(crate) async fn get(
    shared: Arc<ManagerContext>,
    wanted: OrderRequest,
) -> Result<OrderOutcome, AcmeFailure> {
    let minutes = TIMEOUT.as_secs() / 60;
    let locked = tokio::time::timeout(TIMEOUT, lock(&shared, &wanted.key)).await;
    let _lock = locked.unwrap_or_else(|_| {
        let text = format!("another process has been processing this order for {minutes} minutes");
        Err(AcmeFailure::local(text))
    })?;
    let order = ordered(&shared, &wanted);
    match tokio::time::timeout(TIMEOUT, order).await {
        Ok(got) => got,
        Err(_) => Err(AcmeFailure::new(
            FailureKind::Unreachable,
            format!("no certificate within {minutes} minutes"),
        )),
    }
}

async fn ordered(
    shared: &Arc<ManagerContext>,
    wanted: &OrderRequest,
) -> Result<OrderOutcome, AcmeFailure> {
    let authority = &shared.settings.authorities[wanted.place];
    // Another process may have stored a certificate while this one waited for the lock.
    if let Some((issued, authority)) = fresh(shared, wanted) {
        return Ok(OrderOutcome::Found(issued, authority));
    }
    let http = shared.http(wanted.place).map_err(AcmeFailure::local)?;
    // The service is asked before each order, so that the operator can withdraw a name.
    if let (Some(on_demand), true) = (&shared.settings.on_demand, wanted.on_demand)
        && !demand_check::ask(&http, &on_demand.ask, &wanted.key).await?
    {
        return Ok(OrderOutcome::Unwanted);
    }
    let folder = &shared.folder;
    // Before the order: a certificate that cannot be stored would count against the authority's limits.
    folder.probe(&wanted.key)?;
    let said_by = |mut trouble: AcmeFailure| {
        if trouble.kind != FailureKind::Local {
            trouble.text = format!("{}: {}", authority.directory, trouble.text);
        }
        trouble
    };
    let opened = account::open(shared, authority, &http).await;
    let pem = issue(shared, wanted, &opened.map_err(said_by)?)
        .await
        .map_err(said_by)?;
    let issued = checked(shared, wanted, &pem).map_err(said_by)?;
    let fingerprint = issued.pair.fingerprint();
    // Recorded before the file appears; see `record_order`.
    shared.history.record_order(&wanted.key, fingerprint);
    let stored = folder.store_certificate(&wanted.key, &pem);
    Ok(OrderOutcome::Issued(issued, stored.err()))
}

/// Takes the name's lock, so that one process at a time orders.
async fn lock(shared: &ManagerContext, key: &str) -> Result<FolderLock, AcmeFailure> {
    loop {
        if let Some(lock) = shared.folder.lock(key)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The certificate that another process has stored, if it is not due for renewal.
fn fresh(
    shared: &ManagerContext,
    wanted: &OrderRequest,
) -> Option<(IssuedCertificate, Option<String>)> {
    let now_s = shared.settings.clock.unix_s();
    let issued = shared.load_stored(&wanted.key, &wanted.names)?;
    let saved = shared.folder.saved(&wanted.key);
    let mut plan = saved
        .as_ref()
        .map(|saved| saved.plan.clone())
        .unwrap_or_default();
    plan.holds(
        issued.pair.fingerprint(),
        issued.validity,
        crate::manager::jitter(),
    );
    let authority = saved.and_then(|saved| saved.authority);
    (!plan.needs_order(now_s)).then_some((issued, authority))
}

/// Orders; returns key, certificate and chain.
async fn issue(
    shared: &Arc<ManagerContext>,
    wanted: &OrderRequest,
    opened: &AccountSession,
) -> Result<Vec<u8>, AcmeFailure> {
    let authority = &shared.settings.authorities[wanted.place];
    let sorted = |error: Error| trouble(&error, opened.asker.said());
    let mut order = match placed(wanted, authority, &opened.account).await {
        Ok(order) => order,
        Err(OrderError::Acme(error)) if account::is_lost(&error) => {
            shared.folder.forget_account(&account::file_name(authority));
            let mut trouble = sorted(error);
            // The authority no longer has the account; the next order follows soon and creates a new one.
            trouble.kind = FailureKind::Unreachable;
            return Err(trouble);
        }
        Err(failed) => return Err(failed.sorted(sorted)),
    };
    let mut shown = PublishedChallenges::new(shared.clone());
    // Challenges are withdrawn in any case, also if the validation failed.
    let proved = prove(shared, wanted, &mut order, &mut shown).await;
    shown.take_away().await;
    proved.map_err(|failed| failed.sorted(sorted))?;

    let making = |error: rcgen::Error| {
        AcmeFailure::local(format!(
            "the certificate request cannot be created: {error}"
        ))
    };
    // A new key for each certificate.
    let key = KeyPair::generate().map_err(making)?;
    let mut params = CertificateParams::new(wanted.names.clone()).map_err(making)?;
    // The names are in the extension; the subject is left empty.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(making)?;
    order.finalize_csr(request.der()).await.map_err(sorted)?;
    let chain = order.poll_certificate(&POLLING).await.map_err(sorted)?;
    Ok(format!("{}{chain}", key.serialize_pem()).into_bytes())
}

/// Why an order fails: an error of the authority, or a local one.
enum OrderError {
    Acme(Error),
    Own(AcmeFailure),
}

impl OrderError {
    fn sorted(self, sorted: impl Fn(Error) -> AcmeFailure) -> AcmeFailure {
        match self {
            OrderError::Acme(error) => sorted(error),
            OrderError::Own(trouble) => trouble,
        }
    }

    fn refused(text: String) -> OrderError {
        OrderError::Own(AcmeFailure::new(FailureKind::Refused, text))
    }

    fn wrong(text: String) -> OrderError {
        OrderError::Own(AcmeFailure::new(FailureKind::WrongAnswer, text))
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> OrderError {
        OrderError::Acme(error)
    }
}

async fn placed(
    wanted: &OrderRequest,
    authority: &AuthoritySettings,
    account: &Account,
) -> Result<Order, OrderError> {
    let names = wanted.names.iter().cloned().map(Identifier::Dns);
    let names: Vec<Identifier> = names.collect();
    let mut new = NewOrder::new(&names);
    if let Some(profile) = &authority.profile {
        let mut offered: Vec<&str> = account.profiles().map(|profile| profile.name).collect();
        offered.sort_unstable();
        // Checked here, since authorities report an unknown profile less clearly.
        if !offered.contains(&profile.as_str()) {
            let offered = offered.join(", ");
            let text = format!("has no profile {profile}; it offers: {offered}");
            return Err(OrderError::refused(text));
        }
        new = new.profile(profile);
    }
    if let Some(id) = &wanted.replaces {
        let mut replacing = NewOrder::new(&names).replaces(id.clone());
        if let Some(profile) = &authority.profile {
            replacing = replacing.profile(profile);
        }
        match account.new_order(&replacing).await {
            Err(error) if may_go_without(&error) => {}
            order => return Ok(order?),
        }
    }
    Ok(account.new_order(&new).await?)
}

/// Whether to repeat the order without `replaces` (RFC 9773), which is optional: an authority may not know the replaced
/// certificate any more, may have a replacement for it already, or may not support the field.
fn may_go_without(error: &Error) -> bool {
    match error {
        Error::Unsupported(_) => true,
        Error::Other(error) => !error.is::<AuthorityUnreachable>(),
        error => !matches!(
            problem_type(error),
            None | Some("rateLimited" | "accountDoesNotExist" | "badNonce")
        ),
    }
}

/// Publishes the challenges, and waits until the authority has validated them.
async fn prove(
    shared: &ManagerContext,
    wanted: &OrderRequest,
    order: &mut Order,
    shown: &mut PublishedChallenges,
) -> Result<(), OrderError> {
    let challenge = &shared.settings.challenge;
    let authority = &shared.settings.authorities[wanted.place].directory;
    if !show(challenge, authority, wanted, order, shown).await? {
        // All names were validated before.
        return Ok(());
    }
    let mut authorizations = order.authorizations();
    // All challenges are published before the first is announced, so that one update serves all.
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut given) = authorization.challenge(challenge.kind())
        {
            given.set_ready().await?;
        }
    }
    match order.poll_ready(&POLLING).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) => Err(why(order).await),
        Err(error @ Error::Api(_)) => match why(order).await {
            failed @ OrderError::Own(_) => Err(failed),
            OrderError::Acme(_) => Err(OrderError::Acme(error)),
        },
        Err(error) => Err(OrderError::Acme(error)),
    }
}

/// Publishes the pending challenges; false if there are none.
async fn show(
    challenge: &ChallengeMethod,
    authority: &str,
    wanted: &OrderRequest,
    order: &mut Order,
    shown: &mut PublishedChallenges,
) -> Result<bool, OrderError> {
    let mut some = false;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                let text = format!("returned an authorization that is already {status:?}");
                return Err(OrderError::wrong(text));
            }
        }
        let name = authorization.identifier().to_string();
        // A faulty authority must not make this server prove foreign names.
        if !wanted.names.contains(&name) {
            let text = format!("requires control of {name:.80}, which was not ordered");
            return Err(OrderError::wrong(text));
        }
        let Some(given) = authorization.challenge(challenge.kind()) else {
            let text = format!("offers no {} challenge for {name}", challenge.name());
            return Err(OrderError::refused(text));
        };
        // The token becomes part of a path and a file name.
        if given.token.is_empty() || !given.token.bytes().all(is_of_token) {
            return Err(OrderError::wrong("sent an invalid token".into()));
        }
        let given = PendingChallenge {
            domain: name.strip_prefix("*.").unwrap_or(&name),
            token: &given.token,
            authorization: given.key_authorization(),
            authority,
        };
        shown.show(given).await.map_err(OrderError::Own)?;
        some = true;
    }
    Ok(some)
}

/// A character of a token (RFC 8555, section 8.1).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// The authority's errors of the failed validations.
async fn why(order: &mut Order) -> OrderError {
    let mut seen = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let Ok(mut authorization) = authorization else {
            break;
        };
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else {
            break;
        };
        let errors = state
            .challenges
            .iter()
            .filter_map(|challenge| challenge.error.as_ref());
        seen.extend(errors.map(|problem| format!("{name}: {}", in_words(problem))));
    }
    match seen.is_empty() {
        true => OrderError::Acme(Error::Str("the reason why the order is invalid")),
        false => OrderError::refused(format!("cannot verify {}", seen.join("; "))),
    }
}

/// Checks that the issued certificate is the ordered one.
fn checked(
    shared: &ManagerContext,
    wanted: &OrderRequest,
    pem: &[u8],
) -> Result<IssuedCertificate, AcmeFailure> {
    let wrong = |what: String| {
        AcmeFailure::new(
            FailureKind::WrongAnswer,
            format!("issued a certificate that {what}"),
        )
    };
    let now_s = shared.settings.clock.unix_s();
    let file = shared.folder.certificate_file(&wanted.key);
    let issued = IssuedCertificate::read(pem, &file, now_s);
    let issued = issued.map_err(|error| wrong(format!("cannot be used: {error}")))?;
    // A certificate that lacks names or has expired would cause an endless loop of orders.
    if !issued.covers(&wanted.names) {
        return Err(wrong("does not cover all names".into()));
    }
    if issued.validity.not_after_s <= now_s {
        return Err(wrong("has already expired".into()));
    }
    Ok(issued)
}
