//! The gate between Connect and everything else (NVMe over Fabrics, Connect Response, AUTHREQ):
//! until its host has proven who it is, a queue executes no command that means anything, and the
//! host has no effect on others.
//!
//! Which proofs a subsystem demands is not decided here, nor what opening means for other hosts
//! (`registry`).

use alloc::boxed::Box;

use ebof_nvme::opcode::fabrics;
use ebof_nvme::{Sqe, Status};

use super::{Live, Role};
use crate::admin;
use crate::association::Association;
use crate::connect::authentication;
use crate::task::outcome::{Fault, Outcome};

/// A role behind a gate that is shut.
pub(crate) fn shut(behind: Role) -> Role {
    Role::Gated(Box::new(behind))
}

/// Takes a command at a gate that is shut. As at Linux' target, a host may look at its controller's
/// properties.
#[cold]
pub(super) fn submit(behind: &mut Role, association: &Association, sqe: &Sqe) -> Outcome {
    if sqe.fctype().is_some_and(|fctype| authentication::is_one(sqe.opcode, fctype)) {
        let is_admin = matches!(behind, Role::Admin(_));
        return authentication::submit(sqe, if is_admin { association.admin_sgl() } else { association.io_sgl() });
    }
    match behind {
        Role::Admin(controller) if sqe.fctype() == Some(fabrics::PROPERTY_GET) => admin::submit(controller, sqe),
        _ => Err(Fault::new(Status::AUTHENTICATION_REQUIRED)),
    }
}

/// What becomes of a queue whose gate opens. It may be open.
pub(super) fn opened(live: Live) -> Live {
    let role = match live.role {
        Role::Gated(behind) => *behind,
        open => open,
    };
    Live { role, ..live }
}
