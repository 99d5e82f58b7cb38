//! Applies changes of functions.

use super::State;
use crate::function::{Change, Function};

impl State {
    /// Applies a change of functions.
    pub(super) fn apply_functions(&mut self, change: Change) {
        match change {
            Change::Attached { nsid, functions } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions.extend(functions);
                }
            }
            Change::Detached { nsid, functions } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions.retain(|id| !functions.contains(id));
                }
            }
            Change::Mapped { nsid, functions, without_hosts } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions = functions;
                    if without_hosts {
                        namespace.for_everyone = false;
                        namespace.hosts.clear();
                    }
                }
            }
            Change::Exactly { nsid, functions, hosts, for_everyone } => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.functions = functions;
                    namespace.hosts = hosts;
                    namespace.for_everyone = for_everyone;
                }
            }
            Change::Changed { id, function } => {
                self.functions.insert(id, function);
            }
            Change::Allocated { primary } => self.primary = primary,
            Change::Reset {} => {
                self.functions.values_mut().for_each(Function::go_offline);
                self.primary = self.primary.after_reset();
            }
        }
    }
}
