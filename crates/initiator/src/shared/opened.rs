//! The open namespaces of a controller, kept by identity: what each was when it was opened. Several
//! controllers of one subsystem may share them, and none of another subsystem. Which NSID of a
//! controller refers to which is in `shared/bindings.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use ebof_nvme::identify::IdentifyNamespace;

use crate::shared::identity::{Mismatch, NamespaceFormat, NamespaceIdentity, NamespaceKey};
use crate::wait::lock::lock;

/// An open namespace, whichever controllers lead to it. Unique among those that know the same open
/// namespaces ([`crate::Subsystem`]); another namespace never gets its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceHead(u64);

/// A namespace as it was opened.
#[derive(Debug)]
pub(crate) struct OpenedNamespace {
    head: NamespaceHead,
    identity: NamespaceIdentity,
    format: NamespaceFormat,
    /// As last read.
    identify: Mutex<Arc<IdentifyNamespace>>,
}

impl OpenedNamespace {
    pub(crate) const fn head(&self) -> NamespaceHead {
        self.head
    }

    pub(crate) fn identifiers(&self) -> String {
        self.identity.text()
    }

    pub(crate) fn identify(&self) -> Arc<IdentifyNamespace> {
        Arc::clone(&lock(&self.identify))
    }

    /// It was read again.
    pub(crate) fn set_identify(&self, identify: Box<IdentifyNamespace>) {
        *lock(&self.identify) = Arc::from(identify);
    }

    /// Whether a namespace that was found is this one, in this format.
    pub(crate) fn check(&self, identity: &NamespaceIdentity, identify: &IdentifyNamespace) -> Result<(), Mismatch> {
        if !identity.is_same_as(&self.identity) {
            return Err(Mismatch::Identity);
        }
        if NamespaceFormat::from_identify(identify) != self.format {
            return Err(Mismatch::Format);
        }
        Ok(())
    }
}

/// The open namespaces.
#[derive(Debug, Default)]
pub(crate) struct OpenedNamespaces(Mutex<ByIdentity>);

#[derive(Debug, Default)]
struct ByIdentity {
    opened: BTreeMap<NamespaceKey, Weak<OpenedNamespace>>,
    /// How many were opened.
    count: u64,
    /// With how many entries those without handles are removed.
    sweep_at: usize,
}

/// Entries below which there is no sweep.
const SWEEP_MIN: usize = 64;

impl OpenedNamespaces {
    /// The namespace that was found with `identity`: the one that is open, if it is that with just
    /// these identifiers, in the same format, and `may_join` agrees; else a new one, which takes
    /// its place here. One that reported fewer would let another namespace pass that differs in the
    /// rest.
    pub(crate) fn open(
        &self,
        identity: NamespaceIdentity,
        identify: Box<IdentifyNamespace>,
        may_join: impl FnOnce(&Arc<OpenedNamespace>) -> bool,
    ) -> Arc<OpenedNamespace> {
        let mut all = lock(&self.0);
        let key = identity.key();
        let known = all.opened.get(&key).and_then(Weak::upgrade);
        let same = known
            .filter(|known| known.identity.reports_the_same(&identity) && known.check(&identity, &identify).is_ok());
        if let Some(known) = same.filter(may_join) {
            known.set_identify(identify);
            return known;
        }
        let format = NamespaceFormat::from_identify(&identify);
        all.count += 1;
        let head = NamespaceHead(all.count);
        let opened = Arc::new(OpenedNamespace { head, identity, format, identify: Mutex::new(Arc::from(identify)) });
        all.insert(key, Arc::downgrade(&opened));
        opened
    }

    /// A namespace that is still what it was: who finds it from now on finds this one, although
    /// another controller may have found something else with its identifiers meanwhile.
    pub(crate) fn keep(&self, opened: &Arc<OpenedNamespace>) {
        let mut all = lock(&self.0);
        let key = opened.identity.key();
        if !all.opened.get(&key).is_some_and(|known| Weak::ptr_eq(known, &Arc::downgrade(opened))) {
            all.insert(key, Arc::downgrade(opened));
        }
    }
}

impl ByIdentity {
    /// Entries without handles are removed from time to time: a target may report other identifiers
    /// each time.
    fn insert(&mut self, key: NamespaceKey, opened: Weak<OpenedNamespace>) {
        self.opened.insert(key, opened);
        if self.opened.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.opened.retain(|_, opened| opened.strong_count() > 0);
            self.sweep_at = self.opened.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::identify::LbaFormat;
    use ebof_nvme::{Nqn, Nsid};

    use super::*;
    use crate::shared::identity::Identifiers;

    fn found(nsid: u32, nguid: u128, lbads: u8) -> (NamespaceIdentity, Box<IdentifyNamespace>) {
        let nguid = nguid.to_be_bytes();
        let mut identify = IdentifyNamespace { nsze: 10.into(), nguid, ..IdentifyNamespace::default() };
        identify.lbaf[0] = LbaFormat::data_only(lbads);
        let subsystem = Arc::new(Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        (NamespaceIdentity::new(&subsystem, Nsid(nsid), Identifiers::new(&identify, Some(&[]))), Box::new(identify))
    }

    fn open(all: &OpenedNamespaces, nsid: u32, nguid: u128, lbads: u8) -> Arc<OpenedNamespace> {
        let (identity, identify) = found(nsid, nguid, lbads);
        all.open(identity, identify, |_| true)
    }

    #[test]
    fn one_namespace_is_opened_once_whatever_leads_to_it() {
        let all = OpenedNamespaces::default();
        let first = open(&all, 1, 1, 9);
        let (identity, mut resized) = found(2, 1, 9);
        resized.nsze = 20.into();
        let again = all.open(identity, resized, |_| true);
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(first.identify().nsze.get(), 20, "as last read");
        assert!(!Arc::ptr_eq(&first, &open(&all, 1, 2, 9)), "another identity");
        let formatted = open(&all, 1, 1, 12);
        assert!(!Arc::ptr_eq(&first, &formatted), "another format");
        assert!(Arc::ptr_eq(&formatted, &open(&all, 1, 1, 12)));
        let (identity, identify) = found(1, 1, 12);
        assert!(!Arc::ptr_eq(&formatted, &all.open(identity, identify, |_| false)));
        all.keep(&first);
        assert!(Arc::ptr_eq(&first, &open(&all, 1, 1, 9)), "as it has always been");
    }

    #[test]
    fn who_was_opened_with_fewer_identifiers_is_not_joined() {
        let all = OpenedNamespaces::default();
        let found = |list: Option<&[u8]>| {
            let (_, identify) = found(1, 1, 9);
            let subsystem = Arc::new(Nqn::parse("nqn.2014-08.org.example:a").unwrap());
            (NamespaceIdentity::new(&subsystem, Nsid(1), Identifiers::new(&identify, list)), identify)
        };
        let uuid = |byte| [&[3, 16, 0, 0][..], &[byte; 16]].concat();
        let (identity, identify) = found(None);
        let before = all.open(identity, identify, |_| true);
        let (identity, identify) = found(Some(&uuid(1)));
        assert_eq!(before.check(&identity, &identify), Ok(()), "the list was refused then");
        let opened = all.open(identity, identify, |_| true);
        assert!(!Arc::ptr_eq(&before, &opened));
        let (another, identify) = found(Some(&uuid(2)));
        assert_eq!(opened.check(&another, &identify), Err(Mismatch::Identity));
    }

    #[test]
    fn what_differs_is_told() {
        let all = OpenedNamespaces::default();
        let opened = open(&all, 1, 1, 9);
        let check = |nguid, lbads| {
            let (identity, identify) = found(1, nguid, lbads);
            opened.check(&identity, &identify)
        };
        assert_eq!(check(1, 9), Ok(()));
        assert_eq!((check(2, 9), check(2, 12)), (Err(Mismatch::Identity), Err(Mismatch::Identity)));
        assert_eq!(check(1, 12), Err(Mismatch::Format));
    }

    // @test hostile.target
    #[test]
    fn identities_that_nobody_has_open_are_forgotten() {
        let all = OpenedNamespaces::default();
        let held = open(&all, 1, 1, 9);
        for other in 2..10_000 {
            drop(open(&all, 1, other, 9));
        }
        assert!(lock(&all.0).opened.len() <= SWEEP_MIN);
        assert!(Arc::ptr_eq(&held, &open(&all, 1, 1, 9)));
    }
}
