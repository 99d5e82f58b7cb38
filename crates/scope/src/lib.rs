//! What a part of a target is to those who may see no more than that: an operator of one tenant
//! sees nothing of another one ([0111](../../../docs/adr/0111-parts-and-audit.md)).
//!
//! Owns [`Scope`], the names of drives and subsystems, and [`VisibleTarget`], the target as
//! somebody sees it. Everything that is told through a limited one passes the filters of this
//! crate, so that whoever answers requests has nothing to check: what is not theirs is not there.
//! Who has which scope is decided elsewhere.
#![forbid(unsafe_code)]

mod enclosure;
mod events;
mod measured;
mod own;
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_manage::Target;
use ebof_manage::enclosure::Enclosure;
use ebof_manage::events::Events;
use ebof_manage::history::Measured;
use own::Own;

/// Drives and subsystems, by their names.
///
/// A drive brings its own subsystem and those of its functions; a subsystem brings its drive, if it
/// has one. Names need not exist (yet).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Names of drives.
    pub drives: BTreeSet<String>,
    /// NQNs of subsystems.
    pub subsystems: BTreeSet<String>,
}

/// A target, as somebody sees and changes it.
#[derive(Clone)]
pub struct VisibleTarget {
    /// Its status and configuration.
    pub target: Arc<dyn Target>,
    /// Its drives, and who has what of them.
    pub enclosure: Arc<dyn Enclosure>,
    /// What happens to it.
    pub events: Arc<dyn Events>,
    /// What its objects did.
    pub measured: Arc<dyn Measured>,
}

impl VisibleTarget {
    /// No more of it than a scope has.
    #[must_use]
    pub fn limited_to(&self, scope: Scope) -> Self {
        let limited = Arc::new(Limited { whole: self.clone(), scope });
        Self { target: limited.clone(), enclosure: limited.clone(), events: limited.clone(), measured: limited }
    }
}

impl std::fmt::Debug for VisibleTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VisibleTarget").finish_non_exhaustive()
    }
}

/// A target through the eyes of those who have a scope.
struct Limited {
    whole: VisibleTarget,
    scope: Scope,
}

impl Limited {
    /// What is in the scope now.
    fn own(&self) -> Own {
        Own::from_scope(&self.scope, &self.whole.target.config(), &self.whole.enclosure.inventory())
    }
}

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
