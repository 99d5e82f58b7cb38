//! What to do where both ends do not trust each other: secrets, keys, proofs.

use ebof_authentication::Explanation;
use ebof_authentication::host::Refusal;

use crate::error::connect_error::{ConnectErrorKind as K, Step, Tried};

/// What to do about authentication.
pub(super) fn to_do(kind: &K, tried: &Tried) -> String {
    match kind {
        K::AuthenticationRequired => format!(
            "name a file with the secret that the target has of host {}: --dhchap-secret-file FILE (`ebof gen-dhchap-key` \
             makes a new one, for both ends)",
            tried.host_nqn
        ),
        K::SecureChannelRequired => {
            "connect with --concat and --dhchap-secret-file FILE, or with a key for TLS: --tls --tls-key-file FILE"
                .to_owned()
        }
        K::AuthenticationNotOffered => format!(
            "see whether the target has a secret of host {} (`dhchap_key` of an ebof target), or connect with a key for \
             TLS: --tls --tls-key-file FILE",
            tried.host_nqn
        ),
        K::NotProven => "see whether the target has a secret of this host, and whether the address is right; without \
            --dhchap-ctrl-secret-file anybody's target will do"
            .to_owned(),
        K::Key(_) if tried.step == Step::Keys => {
            "mend that, or name the key for TLS: --tls-key-file FILE (`ebof check-tls-key` tells what is in a file), or \
             --keyring and --tls-key of one that nvme-cli has put into the kernel"
                .to_owned()
        }
        K::Key(_) => {
            "mend that, or name another one: --dhchap-secret-file FILE, --tls-key-file FILE (`ebof check-dhchap-key` and \
             `check-tls-key` tell what is in a file)"
                .to_owned()
        }
        K::Authentication(refusal) => to_do_about_authentication(refusal, tried),
        K::Tls { is_silent, .. } => format!(
            "see whether the port has TLS{}whether the target has this key of host {} (`ebof check-tls-key` tells \
             its identity); an ebof target notes why it refuses (`ebof target events`)",
            if *is_silent { ": one without closes like this, too; and " } else { ", and " },
            tried.host_nqn
        ),
        K::TlsRequired { concat: true, .. } => {
            "--concat begins without TLS: allow that at the port, too (`tls = \"allowed\"` of an ebof target), or connect \
             with a key for TLS: --tls --tls-key-file FILE"
                .to_owned()
        }
        K::TlsRequired { concat: false, .. } => format!(
            "connect with --tls and the key that the target has of this host: --tls --tls-key-file FILE (an ebof target \
             gives it one by `ebof target add key {} --kind tls`)",
            tried.host_nqn
        ),
        // Whoever is in the middle can bring this about: to go without TLS is not the first advice.
        K::NoTls => {
            "have TLS at the port (`tls = \"allowed\"` or \"required\" of an ebof target), or name a port that has it; \
             without --tls, everybody on the way can read and change what travels"
                .to_owned()
        }
        _ => "see the target's log".to_owned(),
    }
}

/// What to do if an authentication failed.
fn to_do_about_authentication(refusal: &Refusal, tried: &Tried) -> String {
    match refusal {
        Refusal::ByController { explanation: Explanation::HashNotUsable | Explanation::GroupNotUsable } => {
            "see which hash functions and groups the target allows: this host offers all".to_owned()
        }
        Refusal::ByController { explanation: Explanation::SecureChannelMismatch } => {
            "see whether the target wants TLS behind the authentication (then: --concat), and whether the port has TLS and \
             goes without it, too (`tls = \"allowed\"` of an ebof target)"
                .to_owned()
        }
        Refusal::ByController { .. } | Refusal::Unexplained => format!(
            "compare the secret with the one that the target has of host {} (`ebof check-dhchap-key` shows its kind): of \
             several keys in a file a host uses the first; a secret with a hash belongs to one host NQN; if the target was to prove itself, it may have no secret for that",
            tried.host_nqn
        ),
        Refusal::WrongResponse | Refusal::NoResponse => {
            "see whether the address is right, and whether the target has the same secret of the subsystem".to_owned()
        }
        Refusal::HashNotOffered { .. } | Refusal::GroupNotOffered { .. } => {
            "see the target's settings of authentication: it has to choose what is offered".to_owned()
        }
        Refusal::RepeatedChallenge | Refusal::Value | Refusal::Message { .. } => {
            "the target has a bug, or somebody in between changes what it says: see its log".to_owned()
        }
    }
}
