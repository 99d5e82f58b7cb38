//! `gen-hostnqn` and `show-hostnqn`: the identity of this host.

use std::process::ExitCode;

use ebof_initiator::host;
use ebof_nvme::{Nqn, Uuid};

use super::Outcome;
use crate::global::Global;
use crate::output::View;
use crate::output::json::Object;
use crate::output::show;

/// No options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Plain {}

impl Plain {
    /// Generates a unique host NQN.
    pub(crate) fn generate(self, global: &Global) -> Outcome {
        let nqn = Nqn::from_uuid(Uuid(uuid::Uuid::new_v4().into_bytes()));
        show(global, &HostNqn { verb: "gen-hostnqn", nqn, more: None })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Shows this host's NQN.
    pub(crate) fn show(self, global: &Global) -> Outcome {
        let identity = host::identity();
        let more = Some((identity.id.to_string(), identity.source.name()));
        show(global, &HostNqn { verb: "show-hostnqn", nqn: identity.nqn, more })?;
        Ok(ExitCode::SUCCESS)
    }
}

struct HostNqn {
    verb: &'static str,
    nqn: Nqn,
    /// Host identifier, and the origin of both.
    more: Option<(String, &'static str)>,
}

impl View for HostNqn {
    fn text(&self, verbose: bool) -> String {
        match &self.more {
            Some((id, source)) if verbose => format!("{}\nhostid: {id}\nfrom:   {source}\n", self.nqn),
            _ => format!("{}\n", self.nqn),
        }
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document(self.verb, 1).with("hostnqn", self.nqn.as_str());
        match &self.more {
            Some((id, source)) => object.with("hostid", id.as_str()).with("source", *source),
            None => object,
        }
    }
}
