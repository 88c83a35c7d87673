//! Load balancing: chooses a member of a group of interchangeable servers for each request.
//!
//! [`MemberGroup`] is a state machine without clock, random numbers or sockets: the caller passes random numbers and
//! the monotonic time (`now_ms`). `P` is the type of a member's target, usually a connection pool, which the group only
//! stores.
//!
//! For each request, the caller [picks](MemberGroup::pick) a member and [reports](MemberGroup::report) the outcome. The
//! candidates are the healthy primary members. If none of the primary members is healthy, or less than `panic_percent`
//! of them, the candidates are the healthy backups; if no backup is healthy either, all members (unless `panic_percent`
//! is 0). The `BalancingPolicy` selects one of the candidates. A member becomes unhealthy by failed active checks
//! ([`MemberGroup::record_check`]) or failed requests (`circuit`).

mod circuit;
mod clients;
mod hash;
mod member;
mod pick_reason;
mod selection;
mod settings;

use std::net::IpAddr;

use circuit::{CircuitBreaker, CircuitChange, CircuitReport, CircuitTicket};
use clients::ClientSet;
use member::GroupMember;
use selection::MemberCandidate;

pub use hash::hash_of;
pub use member::{MemberCounters, MemberHealth, MemberMode, NewMember, OperatorSettings};
pub use pick_reason::{CandidateTier, MemberStatus, NoMember, PickReason};
pub use selection::SelectionReason;
pub use settings::{
    BalancingPolicy, CircuitSettings, GroupSettings, HealthThresholds as HealthSettings,
};

/// Identifies a member as long as the group exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId {
    slot: u32,
    generation: u32,
}

/// A picked member. Its outcome must be reported exactly once.
#[must_use = "a picked member must be reported"]
#[derive(Debug)]
pub struct PickedMember {
    /// The member.
    pub member: MemberId,
    /// The reason for this member.
    pub reason: PickReason,
    circuit_ticket: CircuitTicket,
    /// The client of the request, or all clients if the request does not come from one client.
    clients: ClientSet,
    /// The request waits for a connection.
    pending: bool,
    /// The connection became a tunnel.
    is_tunnel: bool,
}

/// The properties of a request that determine its member.
#[derive(Clone, Copy, Debug, Default)]
pub struct PickRequest<'a> {
    /// The key for consistent hashing.
    pub key: Option<u64>,
    /// The client's address; `None` if the request does not come from one client. Failed requests of one client do not
    /// eject a member for other clients.
    pub client: Option<IpAddr>,
    /// Members that were tried already; they are not picked again.
    pub tried: &'a [MemberId],
    /// The member of the request's session: it is picked whenever it is a candidate.
    pub session: Option<MemberId>,
}

impl PickRequest<'_> {
    fn clients(&self) -> ClientSet {
        self.client.map_or(ClientSet::ALL, ClientSet::from_address)
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A response arrived that does not count as a failure of the member.
    Answered,
    /// The connection could not be established.
    ConnectFailed,
    /// The request timed out.
    TimedOut,
    /// The connection was lost before the end of the response.
    Lost,
    /// The response was malformed.
    Malformed,
    /// The response has a status code that the caller counts as a failure of the member (502, 503, 504).
    ServerError,
    /// The request was cancelled without fault of the member.
    Cancelled,
}

/// A change of a member's circuit breaker, for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitEvent {
    /// The member was ejected.
    Ejected {
        /// How long, ms.
        for_ms: u64,
        /// Whether only requests of one client are affected, because all failures are of this client.
        is_for_one_client: bool,
    },
    /// The ejection has ended, because a request succeeded.
    Recovered {
        /// Whether only requests of one client were affected.
        was_for_one_client: bool,
    },
}

/// The members of a group.
pub struct MemberGroup<P> {
    settings: GroupSettings,
    members: Vec<Option<GroupMember<P>>>,
    generation: u32,
    /// Whether a member was ever picked: members that are added later begin with a slow start.
    has_traffic: bool,
}

impl<P> MemberGroup<P> {
    /// A group without members.
    pub fn new(settings: GroupSettings) -> MemberGroup<P> {
        MemberGroup {
            settings,
            members: Vec::new(),
            generation: 0,
            has_traffic: false,
        }
    }

    /// Adds a member with its target. If the group has had requests, the member begins with a slow start.
    pub fn add(&mut self, new: NewMember, target: P, now_ms: u64) -> MemberId {
        // A new generation, so that the identifier of a removed member does not match a later one in the same slot.
        self.generation = self.generation.wrapping_add(1);
        let member = GroupMember {
            generation: self.generation,
            target,
            hash: hash_of(new.name.as_bytes()),
            name: new.name,
            // With weights of 0 only, the shares would be divided by 0.
            weight: new.weight.max(1),
            backup: new.backup,
            live_weight: new.operator.weight.map(|weight| weight.max(1)),
            mode: new.operator.mode,
            circuit: CircuitBreaker::new(now_ms),
            is_healthy: true,
            contrary_checks: 0,
            // Before the group's first request, no member is warmer than another, so a slow start is not needed.
            slow_start_since_ms: self.has_traffic.then_some(now_ms),
            credit: 0,
            requests: 0,
            tunnels: 0,
            pending: 0,
            counts: MemberCounters::default(),
        };
        // Free slots are reused.
        let free = self.members.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        self.members[slot] = Some(member);
        MemberId {
            slot: slot as u32,
            generation: self.generation,
        }
    }

    /// Removes a member and returns its target. Requests in progress continue; their reports are ignored.
    pub fn remove(&mut self, id: MemberId) -> Option<P> {
        // An outdated identifier must not remove a later member in the same slot.
        self.member(id)?;
        let member = self.members.get_mut(id.slot as usize)?.take();
        member.map(|member| member.target)
    }

    /// Sets the operator's decision about a member. Returns whether the member exists.
    pub fn set_mode(&mut self, id: MemberId, mode: MemberMode, now_ms: u64) -> bool {
        let Some(member) = self.member_mut(id) else {
            return false;
        };
        let previous = std::mem::replace(&mut member.mode, mode);
        if mode.is_in_rotation() && !previous.is_in_rotation() {
            member.begin_slow_start(now_ms);
        }
        true
    }

    /// Sets the operator's weight of a member, `None` for the configured one. Returns whether the member exists.
    pub fn set_live_weight(&mut self, id: MemberId, weight: Option<u32>) -> bool {
        let member = self.member_mut(id);
        member.is_some_and(|member| {
            member.live_weight = weight.map(|weight| weight.max(1));
            true
        })
    }

    /// Changes a member's configured weight. Returns whether the member exists.
    pub fn set_weight(&mut self, id: MemberId, weight: u32) -> bool {
        let member = self.member_mut(id);
        member.is_some_and(|member| {
            member.weight = weight.max(1);
            true
        })
    }

    /// Changes whether a member is a backup. Returns whether the member exists.
    pub fn set_backup(&mut self, id: MemberId, backup: bool) -> bool {
        let member = self.member_mut(id);
        member.is_some_and(|member| {
            member.backup = backup;
            true
        })
    }

    /// The first member with a target that meets a condition.
    pub fn find(&self, mut is_match: impl FnMut(&P) -> bool) -> Option<MemberId> {
        let mut members = self.all();
        let (slot, _) = members.find(|(_, member)| is_match(&member.target))?;
        Some(self.id_at(slot))
    }

    /// Replaces a member's target. Returns whether the member exists.
    pub fn set_target(&mut self, id: MemberId, target: P) -> bool {
        let member = self.member_mut(id);
        member.is_some_and(|member| {
            member.target = target;
            true
        })
    }

    /// A member's target.
    pub fn target(&self, id: MemberId) -> Option<&P> {
        self.member(id).map(|member| &member.target)
    }

    /// Returns the member that [`MemberGroup::pick`] would pick now, and the reason, without changing the group.
    ///
    /// # Errors
    /// [`NoMember`]
    pub fn preview(
        &self,
        request: &PickRequest<'_>,
        now_ms: u64,
        random: u64,
    ) -> Result<(MemberId, PickReason), NoMember> {
        let (candidates, index, reason) = self.choose(request, now_ms, random)?;
        Ok((self.id_at(candidates[index].slot), reason))
    }

    /// Picks a member for a request. The request counts as pending until [`MemberGroup::mark_connected`].
    ///
    /// # Errors
    /// [`NoMember`]
    pub fn pick(
        &mut self,
        request: &PickRequest<'_>,
        now_ms: u64,
        random: u64,
    ) -> Result<PickedMember, NoMember> {
        let (candidates, index, reason) = self.choose(request, now_ms, random)?;
        let clients = request.clients();
        // From now on, new members begin with a slow start.
        self.has_traffic = true;
        // Only round robin has state to be updated. A session's request has no turn: one busy session would otherwise use up
        // its member's turns, and all new sessions would go to the other members.
        if self.settings.policy == BalancingPolicy::RoundRobin
            && reason.selected_by != SelectionReason::Session
        {
            self.take_turn(&candidates, index);
        }
        let member = self.id_at(candidates[index].slot);
        let settings = self.settings;
        let picked = self.member_mut(member).expect("a candidate is a member");
        picked.requests += 1;
        picked.pending += 1;
        picked.counts.picked += 1;
        Ok(PickedMember {
            member,
            reason,
            circuit_ticket: picked.circuit.begin(&settings.circuit, clients, now_ms),
            clients,
            pending: true,
            is_tunnel: false,
        })
    }

    /// Records that a request has its connection: the request is no longer pending.
    pub fn mark_connected(&mut self, picked: &mut PickedMember) {
        // The flag is cleared, so that a second call, from `mark_tunnelled` or `report`, has no effect.
        if std::mem::take(&mut picked.pending)
            && let Some(member) = self.member_mut(picked.member)
        {
            member.pending -= 1;
        }
    }

    /// Records that a request's connection became a tunnel, which may last for days.
    pub fn mark_tunnelled(&mut self, picked: &mut PickedMember) {
        self.mark_connected(picked);
        if let Some(member) = self.member_mut(picked.member)
            && !std::mem::replace(&mut picked.is_tunnel, true)
        {
            member.tunnels += 1;
        }
    }

    /// Records the outcome of a request. Returns the change of the member's circuit breaker, if there was one.
    pub fn report(
        &mut self,
        mut picked: PickedMember,
        outcome: AttemptOutcome,
        now_ms: u64,
    ) -> Option<CircuitEvent> {
        // The request may have ended while it was still waiting for a connection.
        self.mark_connected(&mut picked);
        let settings = self.settings;
        // With panic routing, the last healthy member is never ejected.
        let may_eject =
            self.has_other_healthy(picked.member, now_ms) || settings.panic_percent == 0;
        // The member may have been removed while the request was in progress.
        let member = self.member_mut(picked.member)?;
        // An ejection would have no effect on a member that is forced, so it is not reported either.
        let may_eject = may_eject && member.mode != MemberMode::Force;
        member.requests -= 1;
        member.tunnels -= u32::from(picked.is_tunnel);
        // `None` if the outcome shows nothing about the member.
        let evidence = member.counts.count(outcome);
        let clients = match outcome {
            // A failed connection attempt does not depend on the client, and counts for all clients.
            AttemptOutcome::ConnectFailed => ClientSet::ALL,
            _ => picked.clients,
        };
        let circuit = &settings.circuit;
        let change = member.circuit.end(
            picked.circuit_ticket,
            evidence,
            clients,
            may_eject,
            circuit,
            now_ms,
        );
        match change {
            CircuitChange::None => None,
            CircuitChange::Opened {
                until_ms,
                is_for_one_client,
            } => {
                member.counts.ejected += 1;
                Some(CircuitEvent::Ejected {
                    for_ms: until_ms.saturating_sub(now_ms),
                    is_for_one_client,
                })
            }
            CircuitChange::Closed { was_for_one_client } => {
                member.begin_slow_start(now_ms);
                Some(CircuitEvent::Recovered { was_for_one_client })
            }
            // Other clients have used the member all the time, so it needs no slow start.
            CircuitChange::ClosedByOthers => Some(CircuitEvent::Recovered {
                was_for_one_client: true,
            }),
        }
    }

    /// Records the result of an active check. Returns whether it changed the member's health.
    pub fn record_check(&mut self, id: MemberId, passed: bool, now_ms: u64) -> bool {
        let health = self.settings.health;
        let Some(member) = self.member_mut(id) else {
            return false;
        };
        match passed {
            true => member.counts.checks_passed += 1,
            false => member.counts.checks_failed += 1,
        }
        // Only a series of contrary results changes the health; a single lost packet does not.
        if member.is_healthy == passed {
            member.contrary_checks = 0;
            return false;
        }
        member.contrary_checks += 1;
        if member.contrary_checks < if passed { health.rise } else { health.fall }.max(1) {
            return false;
        }
        (member.is_healthy, member.contrary_checks) = (passed, 0);
        if passed {
            // Passed checks also end an ejection, so that the member need not wait for a trial request.
            member.circuit.close(now_ms);
            member.begin_slow_start(now_ms);
        }
        true
    }

    /// Marks a member of unknown health as down until checks succeed.
    pub fn mark_down(&mut self, id: MemberId) {
        if let Some(member) = self.member_mut(id) {
            member.is_healthy = false;
        }
    }

    /// The health and counters of each member.
    pub fn status(&self, now_ms: u64) -> Vec<MemberStatus> {
        let members = self.members.iter().enumerate();
        members
            .filter_map(|(slot, member)| {
                let member = member.as_ref()?;
                Some(MemberStatus {
                    member: self.id_at(slot),
                    name: member.name.clone(),
                    weight: member.weight_in_force(),
                    configured_weight: member.weight,
                    mode: member.mode,
                    backup: member.backup,
                    health: member.health(&self.settings, ClientSet::ALL, now_ms),
                    requests: member.requests,
                    pending: member.pending,
                    counts: member.counts,
                })
            })
            .collect()
    }

    /// Returns the candidates, the index of the chosen one, and the reason.
    fn choose(
        &self,
        request: &PickRequest<'_>,
        now_ms: u64,
        random: u64,
    ) -> Result<(Vec<MemberCandidate>, usize, PickReason), NoMember> {
        if let Some((tier, candidate)) = self.draining_session_member(request, now_ms) {
            let reason = PickReason {
                tier,
                selected_by: SelectionReason::Session,
                candidates: 1,
            };
            return Ok((vec![candidate], 0, reason));
        }
        let (tier, candidates) = self.candidates(request, now_ms)?;
        let policy = self.settings.policy;
        let of_session = request.session.and_then(|member| {
            let is_member = |it: &MemberCandidate| self.id_at(it.slot) == member;
            let index = candidates.iter().position(is_member)?;
            Some((index, SelectionReason::Session))
        });
        let chosen =
            of_session.or_else(|| selection::choose(policy, &candidates, request.key, random));
        let (index, selected_by) = chosen.ok_or(NoMember::Empty)?;
        let reason = PickReason {
            tier,
            selected_by,
            candidates: candidates.len(),
        };
        Ok((candidates, index, reason))
    }

    /// The member of the request's session with its tier, if the operator drains it and it would be a candidate
    /// otherwise: it is none for other requests.
    fn draining_session_member(
        &self,
        request: &PickRequest<'_>,
        now_ms: u64,
    ) -> Option<(CandidateTier, MemberCandidate)> {
        let id = request.session.filter(|id| !request.tried.contains(id))?;
        let member = self.member(id)?;
        if member.mode != MemberMode::Drain || member.is_full(&self.settings) {
            return None;
        }
        // A session does not keep a client at a server that fails.
        let clients = request.clients();
        if !is_usable(member.health(&self.settings, clients, now_ms)) {
            return None;
        }
        let tier = self.tier(clients, now_ms, Some(id));
        // A backup keeps its sessions only as long as backups are used.
        let is_in_tier = match tier {
            CandidateTier::Primary => !member.backup,
            CandidateTier::Backup => member.backup,
            CandidateTier::Panic => true,
        };
        is_in_tier.then(|| (tier, self.candidate(id.slot as usize, member, now_ms)))
    }

    /// The candidates for a request; at least one.
    fn candidates(
        &self,
        request: &PickRequest<'_>,
        now_ms: u64,
    ) -> Result<(CandidateTier, Vec<MemberCandidate>), NoMember> {
        let clients = request.clients();
        if self.all().next().is_none() {
            return Err(NoMember::Empty);
        }
        // Not counted as down, so that messages name the cause.
        if !self.all().any(|(_, member)| member.mode.is_in_rotation()) {
            return Err(NoMember::AllOutOfService);
        }
        let first = self.tier(clients, now_ms, None);
        let mut no_member = NoMember::AllDown;
        // If all primary members were tried, backups get the request.
        for tier in [Some(first), first.next()].into_iter().flatten() {
            // `is_full`: at least one member of the tier is full.
            let (mut available, mut is_full) = (Vec::new(), false);
            for (slot, member) in self.all() {
                if !self.is_in_tier(tier, member, clients, now_ms) {
                    continue;
                }
                if request.tried.contains(&self.id_at(slot)) {
                    no_member = NoMember::AllTried;
                } else if member.is_full(&self.settings) {
                    is_full = true;
                } else {
                    available.push(self.candidate(slot, member, now_ms));
                }
            }
            if !available.is_empty() {
                return Ok((tier, available));
            }
            // Backups replace unhealthy members, but not busy ones: overload must not spread to the backups.
            if is_full {
                return Err(NoMember::AllFull);
            }
        }
        Err(no_member)
    }

    /// The tier of members that is tried first for requests of `clients`. `draining`: a working member that the operator
    /// drains, and that counts as if it were in rotation.
    fn tier(&self, clients: ClientSet, now_ms: u64, draining: Option<MemberId>) -> CandidateTier {
        let (mut primaries, mut healthy, mut healthy_backups) = (0_u32, 0_u32, 0_u32);
        for (slot, member) in self.all() {
            let is_drained = draining == Some(self.id_at(slot));
            if !is_drained && !member.mode.is_in_rotation() {
                continue;
            }
            let is_healthy = is_drained || self.is_member_healthy(member, clients, now_ms);
            primaries += u32::from(!member.backup);
            healthy += u32::from(!member.backup && is_healthy);
            healthy_backups += u32::from(member.backup && is_healthy);
        }
        // Panic threshold, as in Envoy: if nearly all members look unhealthy, the health data is more likely wrong.
        let is_panic = u64::from(healthy) * 100
            < u64::from(primaries) * u64::from(self.settings.panic_percent);
        match (is_panic, healthy, healthy_backups) {
            // Healthy backups are used if no primary member is healthy, or too few of them are.
            (_, 0, 1..) | (true, _, 1..) => CandidateTier::Backup,
            // Without healthy backups, unhealthy members are better than none.
            (true, ..) => CandidateTier::Panic,
            (_, 0, 0) if primaries == 0 && self.settings.panic_percent > 0 => CandidateTier::Panic,
            _ => CandidateTier::Primary,
        }
    }

    fn is_in_tier(
        &self,
        tier: CandidateTier,
        member: &GroupMember<P>,
        clients: ClientSet,
        now_ms: u64,
    ) -> bool {
        match tier {
            _ if !member.mode.is_in_rotation() => false,
            CandidateTier::Primary => {
                !member.backup && self.is_member_healthy(member, clients, now_ms)
            }
            CandidateTier::Backup => {
                member.backup && self.is_member_healthy(member, clients, now_ms)
            }
            // All members in rotation, regardless of their health.
            CandidateTier::Panic => true,
        }
    }

    /// Whether a member is in rotation, and healthy or forced, regardless of its load.
    fn is_member_healthy(&self, member: &GroupMember<P>, clients: ClientSet, now_ms: u64) -> bool {
        match member.mode {
            MemberMode::Ready => is_usable(member.health(&self.settings, clients, now_ms)),
            MemberMode::Force => true,
            MemberMode::Drain | MemberMode::Down => false,
        }
    }

    fn has_other_healthy(&self, id: MemberId, now_ms: u64) -> bool {
        let mut other_members = self.all().filter(|(slot, _)| *slot != id.slot as usize);
        other_members.any(|(_, member)| self.is_member_healthy(member, ClientSet::ALL, now_ms))
    }

    fn candidate(&self, slot: usize, member: &GroupMember<P>, now_ms: u64) -> MemberCandidate {
        MemberCandidate {
            slot,
            weight: member.current_weight(&self.settings, now_ms),
            load: member.requests,
            hash: member.hash,
            credit: member.credit,
        }
    }

    /// Smooth weighted round robin (nginx): the credit of each candidate increases by its weight, and the credit of the
    /// chosen candidate decreases by the sum of all weights.
    fn take_turn(&mut self, candidates: &[MemberCandidate], chosen_index: usize) {
        let total: u64 = candidates.iter().map(|candidate| candidate.weight).sum();
        // Only the credit of candidates increases, so that an unavailable member does not accumulate turns.
        for (index, candidate) in candidates.iter().enumerate() {
            if let Some(member) = &mut self.members[candidate.slot] {
                // The credit may be negative.
                member.credit = member.credit.saturating_add_unsigned(candidate.weight);
                if index == chosen_index {
                    member.credit = member.credit.saturating_sub_unsigned(total);
                }
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = (usize, &GroupMember<P>)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(slot, member)| Some((slot, member.as_ref()?)))
    }

    fn id_at(&self, slot: usize) -> MemberId {
        let member = self.members[slot].as_ref();
        MemberId {
            slot: slot as u32,
            generation: member.map_or(0, |member| member.generation),
        }
    }

    fn member(&self, id: MemberId) -> Option<&GroupMember<P>> {
        let member = self.members.get(id.slot as usize)?.as_ref();
        member.filter(|member| member.generation == id.generation)
    }

    fn member_mut(&mut self, id: MemberId) -> Option<&mut GroupMember<P>> {
        let member = self.members.get_mut(id.slot as usize)?.as_mut();
        member.filter(|member| member.generation == id.generation)
    }
}

/// Whether a member with this health may get requests, regardless of its load.
fn is_usable(health: MemberHealth) -> bool {
    match health {
        // A member that is due for a trial counts as healthy, since the trial needs a request.
        MemberHealth::Up
        | MemberHealth::SlowStart { .. }
        | MemberHealth::Trial
        | MemberHealth::Full => true,
        MemberHealth::TrialInProgress | MemberHealth::Ejected { .. } | MemberHealth::Down => false,
    }
}

impl MemberCounters {
    /// Counts an outcome, and returns its report for the circuit breaker; `None` if it shows nothing about the member.
    fn count(&mut self, outcome: AttemptOutcome) -> Option<CircuitReport> {
        let count = match outcome {
            AttemptOutcome::Answered => &mut self.answered,
            AttemptOutcome::ConnectFailed => &mut self.connect_failed,
            AttemptOutcome::TimedOut => &mut self.timed_out,
            AttemptOutcome::Lost => &mut self.lost,
            AttemptOutcome::Malformed => &mut self.malformed,
            AttemptOutcome::ServerError => &mut self.server_errors,
            AttemptOutcome::Cancelled => &mut self.cancelled,
        };
        *count += 1;
        match outcome {
            AttemptOutcome::Answered => Some(CircuitReport::Success),
            AttemptOutcome::Cancelled => None,
            AttemptOutcome::ConnectFailed | AttemptOutcome::Lost => {
                Some(CircuitReport::Unreachable)
            }
            AttemptOutcome::TimedOut | AttemptOutcome::Malformed | AttemptOutcome::ServerError => {
                Some(CircuitReport::Failure)
            }
        }
    }
}

#[cfg(test)]
mod tests;
