//! Hosts that prove who they are, in some stories: when they connect and again, while their secrets
//! change. The model knows which secret is good when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_authentication::Secret;
use ebof_nvme::Nqn;

use super::{World, liar};
use crate::host::secrets::{self, SecretStore};
use crate::random::Random;
use crate::story::{Failure, fail};
use crate::target_life::Life;

/// After the target was told, so long may it take until all of its queues know.
const TOLD: Duration = Duration::from_secs(1);

/// Hosts that prove who they are.
pub(super) struct Proofs {
    /// What the target knows of them.
    pub(super) keys: Arc<SecretStore>,
    hosts: BTreeMap<usize, Standing>,
    /// Hosts without a secret are refused.
    pub(super) are_demanded: bool,
}

/// How it stands with the secret of a host.
struct Standing {
    nqn: Nqn,
    secret: Secret,
    /// The one that it has from then on.
    next: Option<(Instant, Secret)>,
    /// Since when the target does not know the one that it has.
    wrong: Option<Instant>,
    /// When something was last changed.
    changed: Instant,
    /// One that it had before, and that is good no more.
    old: Option<(Instant, Secret)>,
}

impl Proofs {
    /// Some of the hosts.
    pub(super) fn choose(random: &mut Random, names: &[Nqn], now: Instant) -> Self {
        let keys = Arc::new(SecretStore::default());
        let always = random.index(names.len());
        let mut hosts = BTreeMap::new();
        for (host, nqn) in names.iter().enumerate() {
            if host == always || random.percent(70) {
                let secret = secrets::secret(random);
                keys.set(nqn, vec![secret.clone()]);
                let nqn = nqn.clone();
                hosts.insert(host, Standing { nqn, secret, next: None, wrong: None, changed: now, old: None });
            }
        }
        let are_demanded = hosts.len() == names.len() && random.percent(50);
        Self { keys, hosts, are_demanded }
    }

    /// The hosts and their secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = (usize, Secret)> {
        self.hosts.iter().map(|(&host, standing)| (host, standing.secret.clone()))
    }

    /// One of the hosts that have secrets.
    pub(super) fn one_of(&self, number: usize) -> Option<usize> {
        self.hosts.keys().copied().nth(number % self.hosts.len().max(1))
    }

    /// A secret that this host had, and that nobody may use any more.
    pub(super) fn old_secret(&self, host: usize, now: Instant) -> Option<Secret> {
        let (since, secret) = self.hosts.get(&host)?.old.as_ref()?;
        (*since + TOLD < now).then(|| secret.clone())
    }

    /// When a host gets its next secret.
    pub(super) fn due(&self) -> Option<Instant> {
        self.hosts.values().filter_map(|standing| standing.next.as_ref().map(|(at, _)| *at)).min()
    }
}

/// A host proves once more who it is.
pub(super) fn prove(world: &mut World, host: usize) -> Result<(), Failure> {
    let now = world.rig.clock.now();
    if world.proofs.as_ref().is_some_and(|proofs| proofs.hosts.contains_key(&host)) {
        world.rig.count("proven again");
        world.hosts[host].prove_again(now)?;
    }
    Ok(())
}

/// The secret of a host changes: the host learns of it some time later. Meanwhile the target
/// takes both, or does not take the host's, which is a mistake.
pub(super) fn rekey(world: &mut World, host: usize, is_mistake: bool, pause: Duration) -> Result<(), Failure> {
    let now = world.rig.clock.now();
    let new = secrets::secret(&mut world.rig.chances);
    let Some(proofs) = &mut world.proofs else { return Ok(()) };
    let Some(standing) = proofs.hosts.get_mut(&host).filter(|standing| standing.next.is_none()) else {
        return Ok(());
    };
    if is_mistake {
        proofs.keys.set(&standing.nqn, vec![new.clone()]);
        standing.wrong = Some(now);
    } else {
        let both = if world.rig.chances.percent(50) { [&new, &standing.secret] } else { [&standing.secret, &new] };
        proofs.keys.set(&standing.nqn, both.map(Secret::clone).to_vec());
    }
    (standing.next, standing.changed) = (Some((now + pause, new)), now);
    world.rig.count("secrets changed");
    world.rig.note(|| format!("host {host} is to have another secret, is_mistake: {is_mistake}"));
    reread_keys(world)
}

/// Hosts get secrets that the target knows already, and it forgets those of before.
pub(super) fn step(world: &mut World) -> Result<(), Failure> {
    let now = world.rig.clock.now();
    let Some(proofs) = &mut world.proofs else { return Ok(()) };
    let mut changed = Vec::new();
    for (&host, standing) in &mut proofs.hosts {
        let Some((_, new)) = standing.next.take_if(|(at, _)| *at <= now) else { continue };
        proofs.keys.set(&standing.nqn, vec![new.clone()]);
        world.hosts[host].set_secret(new.clone(), &world.rig.clock, now);
        let old = std::mem::replace(&mut standing.secret, new);
        (standing.wrong, standing.changed, standing.old) = (None, now, Some((now, old)));
        changed.push(host);
    }
    changed.iter().for_each(|&host| liar::threaten(world, host));
    if changed.is_empty() { Ok(()) } else { reread_keys(world) }
}

fn reread_keys(world: &mut World) -> Result<(), Failure> {
    if world.rig.disk.is_off() {
        return Ok(());
    }
    world.life.as_ref().map_or(Ok(()), Life::reread_keys)
}

/// A host has proven who it is, by what it had since then.
pub(super) fn proven(world: &mut World, host: usize, begun: Instant) -> Result<(), Failure> {
    world.rig.count("proofs");
    let standing = world.proofs.as_ref().and_then(|proofs| proofs.hosts.get(&host));
    let is_wrong = standing.and_then(|standing| standing.wrong).is_some_and(|since| since + TOLD < begun);
    if is_wrong { fail(format!("host {host} has proven who it is by a secret that is none")) } else { Ok(()) }
}

/// A host was not believed, in a transaction that began then.
pub(super) fn denied(world: &mut World, host: usize, begun: Instant) -> Result<(), Failure> {
    world.rig.note(|| format!("host {host} is not believed"));
    world.rig.count("proofs denied");
    liar::threaten(world, host);
    let standing = world.proofs.as_ref().and_then(|proofs| proofs.hosts.get(&host));
    if standing.is_some_and(|standing| standing.wrong.is_some() || standing.changed + TOLD >= begun) {
        return Ok(());
    }
    fail(format!("host {host} is not believed, and has the secret"))
}
