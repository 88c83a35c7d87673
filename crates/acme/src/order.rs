//! Processes one order, from taking the lock to storing the certificate (RFC 8555, section 7.4).

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
use crate::error::{problem_text, problem_type, to_failure};
use crate::folder::FolderLock;
use crate::issued_certificate::IssuedCertificate;
use crate::manager::ManagerContext;
use crate::plan::{AcmeFailure, FailureKind};
use crate::settings::{AuthoritySettings, ChallengeMethod};

/// Time limit for taking the lock, and again for the order.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Polling interval while another process holds the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Polling of the authority while it validates challenges or signs the certificate.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.6)
    .timeout(Duration::from_secs(180));

/// The certificate to be ordered.
#[derive(Clone, Debug)]
pub(crate) struct OrderRequest {
    /// The certificate's key.
    pub key: String,
    pub names: Vec<String>,
    pub on_demand: bool,
    /// The authority's index.
    pub authority_index: usize,
    /// The certificate to be replaced, if the same authority issued it.
    pub replaces: Option<CertificateIdentifier<'static>>,
}

/// The result of an order.
pub(crate) enum OrderOutcome {
    /// The issued certificate, and the error if it could not be stored.
    Issued(IssuedCertificate, Option<AcmeFailure>),
    /// The folder already has a suitable certificate; the directory URL of its issuer, if known.
    Found(IssuedCertificate, Option<String>),
    /// The operator's service refused the name.
    Unwanted,
}

/// Obtains a certificate.
pub(crate) async fn obtain(
    shared: Arc<ManagerContext>,
    order_request: OrderRequest,
) -> Result<OrderOutcome, AcmeFailure> {
    let minutes = TIMEOUT.as_secs() / 60;
    let locked = tokio::time::timeout(TIMEOUT, lock(&shared, &order_request.key)).await;
    let _lock = locked.unwrap_or_else(|_| {
        let text = format!("another process has been processing this order for {minutes} minutes");
        Err(AcmeFailure::local(text))
    })?;
    let order = order_now(&shared, &order_request);
    match tokio::time::timeout(TIMEOUT, order).await {
        Ok(outcome) => outcome,
        Err(_) => Err(AcmeFailure::new(
            FailureKind::Unreachable,
            format!("no certificate within {minutes} minutes"),
        )),
    }
}

async fn order_now(
    shared: &Arc<ManagerContext>,
    order_request: &OrderRequest,
) -> Result<OrderOutcome, AcmeFailure> {
    let authority = &shared.settings.authorities[order_request.authority_index];
    // Another process may have stored a certificate while this one waited for the lock.
    if let Some((issued, authority)) = find_fresh(shared, order_request) {
        return Ok(OrderOutcome::Found(issued, authority));
    }
    let http = shared
        .http(order_request.authority_index)
        .map_err(AcmeFailure::local)?;
    // The service is asked before each order, so that the operator can withdraw a name.
    if let (Some(on_demand), true) = (&shared.settings.on_demand, order_request.on_demand)
        && !demand_check::check(&http, &on_demand.ask, &order_request.key).await?
    {
        return Ok(OrderOutcome::Unwanted);
    }
    let folder = &shared.folder;
    // The folder is tested before the order: a certificate that cannot be stored would count against the authority's
    // limits.
    folder.probe(&order_request.key)?;
    let with_authority = |mut failure: AcmeFailure| {
        if failure.kind != FailureKind::Local {
            failure.text = format!("{}: {}", authority.directory, failure.text);
        }
        failure
    };
    let opened = account::open(shared, authority, &http).await;
    let pem = issue(shared, order_request, &opened.map_err(with_authority)?)
        .await
        .map_err(with_authority)?;
    let issued = check_issued(shared, order_request, &pem).map_err(with_authority)?;
    let fingerprint = issued.pair.fingerprint();
    // The fingerprint is recorded before the file is written; see `record_order`.
    shared.history.record_order(&order_request.key, fingerprint);
    let stored = folder.store_certificate(&order_request.key, &pem);
    Ok(OrderOutcome::Issued(issued, stored.err()))
}

/// Takes the lock of a certificate, so that only one process at a time orders it.
async fn lock(shared: &ManagerContext, key: &str) -> Result<FolderLock, AcmeFailure> {
    loop {
        if let Some(lock) = shared.folder.lock(key)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_POLL_INTERVAL).await;
    }
}

/// The stored certificate, if it is not due for renewal: another process has obtained it.
fn find_fresh(
    shared: &ManagerContext,
    order_request: &OrderRequest,
) -> Option<(IssuedCertificate, Option<String>)> {
    let now_s = shared.settings.clock.unix_s();
    let issued = shared.load_stored(&order_request.key, &order_request.names)?;
    let saved = shared.folder.load_record(&order_request.key);
    let mut plan = saved
        .as_ref()
        .map(|saved| saved.plan.clone())
        .unwrap_or_default();
    plan.set_current(
        issued.pair.fingerprint(),
        issued.validity,
        crate::manager::jitter(),
    );
    let authority = saved.and_then(|saved| saved.authority);
    (!plan.needs_order(now_s)).then_some((issued, authority))
}

/// Places the order and completes it; returns key, certificate and chain as PEM.
async fn issue(
    shared: &Arc<ManagerContext>,
    order_request: &OrderRequest,
    opened: &AccountSession,
) -> Result<Vec<u8>, AcmeFailure> {
    let authority = &shared.settings.authorities[order_request.authority_index];
    let sorted = |error: Error| to_failure(&error, opened.client.response_meta());
    let mut order = match place_order(order_request, authority, &opened.account).await {
        Ok(order) => order,
        Err(OrderError::Acme(error)) if account::is_lost(&error) => {
            shared.folder.forget_account(&account::file_name(authority));
            let mut failure = sorted(error);
            // The authority no longer has the account. As a temporary failure, the order is soon retried, with a new
            // account.
            failure.kind = FailureKind::Unreachable;
            return Err(failure);
        }
        Err(failed) => return Err(failed.classify(sorted)),
    };
    let mut challenges = PublishedChallenges::new(shared.clone());
    // Challenges are withdrawn even if the validation failed.
    let proved = complete_challenges(shared, order_request, &mut order, &mut challenges).await;
    challenges.withdraw().await;
    proved.map_err(|failed| failed.classify(sorted))?;

    let local_failure = |error: rcgen::Error| {
        AcmeFailure::local(format!(
            "the certificate request cannot be created: {error}"
        ))
    };
    // Every certificate gets a new key.
    let key = KeyPair::generate().map_err(local_failure)?;
    let mut params = CertificateParams::new(order_request.names.clone()).map_err(local_failure)?;
    // The names are in the extension; the subject stays empty.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(local_failure)?;
    order.finalize_csr(request.der()).await.map_err(sorted)?;
    let chain = order.poll_certificate(&POLLING).await.map_err(sorted)?;
    Ok(format!("{}{chain}", key.serialize_pem()).into_bytes())
}

/// The cause of a failed order: an error of the authority, or a failure found by this module.
enum OrderError {
    Acme(Error),
    Failure(AcmeFailure),
}

impl OrderError {
    fn classify(self, classify: impl Fn(Error) -> AcmeFailure) -> AcmeFailure {
        match self {
            OrderError::Acme(error) => classify(error),
            OrderError::Failure(failure) => failure,
        }
    }

    fn refused(text: String) -> OrderError {
        OrderError::Failure(AcmeFailure::new(FailureKind::Refused, text))
    }

    fn wrong_answer(text: String) -> OrderError {
        OrderError::Failure(AcmeFailure::new(FailureKind::WrongAnswer, text))
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> OrderError {
        OrderError::Acme(error)
    }
}

async fn place_order(
    order_request: &OrderRequest,
    authority: &AuthoritySettings,
    account: &Account,
) -> Result<Order, OrderError> {
    let names = order_request.names.iter().cloned().map(Identifier::Dns);
    let names: Vec<Identifier> = names.collect();
    let mut new = NewOrder::new(&names);
    if let Some(profile) = &authority.profile {
        let mut offered: Vec<&str> = account.profiles().map(|profile| profile.name).collect();
        offered.sort_unstable();
        // The profile is checked here, since authorities report an unknown profile less clearly.
        if !offered.contains(&profile.as_str()) {
            let offered = offered.join(", ");
            let text = format!("has no profile {profile}; it offers: {offered}");
            return Err(OrderError::refused(text));
        }
        new = new.profile(profile);
    }
    if let Some(id) = &order_request.replaces {
        let mut replacing = NewOrder::new(&names).replaces(id.clone());
        if let Some(profile) = &authority.profile {
            replacing = replacing.profile(profile);
        }
        match account.new_order(&replacing).await {
            Err(error) if is_replaces_rejected(&error) => {}
            order => return Ok(order?),
        }
    }
    Ok(account.new_order(&new).await?)
}

/// Whether to repeat the order without `replaces` (RFC 9773), which is optional: the authority may no longer know the
/// certificate, may already have issued a replacement, or may not support the field.
fn is_replaces_rejected(error: &Error) -> bool {
    match error {
        Error::Unsupported(_) => true,
        Error::Other(error) => !error.is::<AuthorityUnreachable>(),
        error => !matches!(
            problem_type(error),
            None | Some("rateLimited" | "accountDoesNotExist" | "badNonce")
        ),
    }
}

/// Publishes the challenge responses, and waits until the authority has validated them.
async fn complete_challenges(
    shared: &ManagerContext,
    order_request: &OrderRequest,
    order: &mut Order,
    challenges: &mut PublishedChallenges,
) -> Result<(), OrderError> {
    let challenge = &shared.settings.challenge;
    let authority = &shared.settings.authorities[order_request.authority_index].directory;
    if !publish_challenge(challenge, authority, order_request, order, challenges).await? {
        // All names have been validated before.
        return Ok(());
    }
    let mut authorizations = order.authorizations();
    // All responses are published before any is announced, so that one update of the endpoints or DNS suffices.
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut challenge_handle) = authorization.challenge(challenge.kind())
        {
            challenge_handle.set_ready().await?;
        }
    }
    match order.poll_ready(&POLLING).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) => Err(failure_reason(order).await),
        Err(error @ Error::Api(_)) => match failure_reason(order).await {
            failed @ OrderError::Failure(_) => Err(failed),
            OrderError::Acme(_) => Err(OrderError::Acme(error)),
        },
        Err(error) => Err(OrderError::Acme(error)),
    }
}

/// Publishes the responses to pending challenges; returns false if there are none.
async fn publish_challenge(
    challenge: &ChallengeMethod,
    authority: &str,
    order_request: &OrderRequest,
    order: &mut Order,
    challenges: &mut PublishedChallenges,
) -> Result<bool, OrderError> {
    let mut has_published = false;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                let text = format!("returned an authorization that is already {status:?}");
                return Err(OrderError::wrong_answer(text));
            }
        }
        let name = authorization.identifier().to_string();
        // A faulty authority must not make this server prove control of names that it did not order.
        if !order_request.names.contains(&name) {
            let text = format!("requires control of {name:.80}, which was not ordered");
            return Err(OrderError::wrong_answer(text));
        }
        let Some(challenge_handle) = authorization.challenge(challenge.kind()) else {
            let text = format!("offers no {} challenge for {name}", challenge.name());
            return Err(OrderError::refused(text));
        };
        // The token becomes part of a URL path.
        if challenge_handle.token.is_empty() || !challenge_handle.token.bytes().all(is_token_byte) {
            return Err(OrderError::wrong_answer("sent an invalid token".into()));
        }
        let pending_challenge = PendingChallenge {
            domain: name.strip_prefix("*.").unwrap_or(&name),
            token: &challenge_handle.token,
            authorization: challenge_handle.key_authorization(),
            authority,
        };
        challenges
            .publish(pending_challenge)
            .await
            .map_err(OrderError::Failure)?;
        has_published = true;
    }
    Ok(has_published)
}

/// Whether a byte may be in a token (RFC 8555, section 8.1).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// The errors of the failed validations, as reported by the authority.
async fn failure_reason(order: &mut Order) -> OrderError {
    let mut problems = Vec::new();
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
        problems.extend(errors.map(|problem| format!("{name}: {}", problem_text(problem))));
    }
    match problems.is_empty() {
        true => OrderError::Acme(Error::Str("the reason why the order is invalid")),
        false => OrderError::refused(format!("cannot verify {}", problems.join("; "))),
    }
}

/// Checks that the issued certificate covers the ordered names and is valid.
fn check_issued(
    shared: &ManagerContext,
    order_request: &OrderRequest,
    pem: &[u8],
) -> Result<IssuedCertificate, AcmeFailure> {
    let wrong_answer = |fault: String| {
        AcmeFailure::new(
            FailureKind::WrongAnswer,
            format!("issued a certificate that {fault}"),
        )
    };
    let now_s = shared.settings.clock.unix_s();
    let file = shared.folder.certificate_file(&order_request.key);
    let issued = IssuedCertificate::read(pem, &file, now_s);
    let issued = issued.map_err(|error| wrong_answer(format!("cannot be used: {error}")))?;
    // A certificate that lacks names or has expired would be ordered again and again.
    if !issued.covers(&order_request.names) {
        return Err(wrong_answer("does not cover all names".into()));
    }
    if issued.validity.not_after_s <= now_s {
        return Err(wrong_answer("has already expired".into()));
    }
    Ok(issued)
}
