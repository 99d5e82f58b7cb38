//! Where the configuration in force is stored, and from which revision on this target changes it.

use std::sync::{Arc, Mutex, PoisonError};

use ebof_manage::api::{Cause, ConfigStore, ConfigStoreError, Revision};
use ebof_manage::{Config, Plan};

/// A store, and what of it this target has seen.
pub(crate) struct Stored {
    store: Arc<dyn ConfigStore>,
    /// The revision that it had when this target read or replaced it last.
    seen: Mutex<Option<Revision>>,
}

impl Stored {
    pub(crate) fn with_store(store: Arc<dyn ConfigStore>) -> Self {
        let seen = Mutex::new(store.revision());
        Self { store, seen }
    }

    pub(crate) fn into_store(self) -> Arc<dyn ConfigStore> {
        self.store
    }

    pub(crate) fn store(&self) -> &dyn ConfigStore {
        &*self.store
    }

    /// Stores a configuration in place of the one that was seen last.
    pub(crate) fn replace(&self, config: &Config, plan: &Plan, cause: &Cause) -> Result<(), ConfigStoreError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.replace(seen.as_ref(), config, plan, cause)?;
        *seen = Some(Revision::from_config(config));
        Ok(())
    }
}
