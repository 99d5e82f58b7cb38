//! Authentication: messages that are changed, cut, repeated and mixed between a host with another
//! secret and a controller, and messages of any bytes.
//!
//! An input is a sequence of actions. The first byte chooses one: the host begins, the last message
//! of one end goes to the other, the controller is asked for its message, one of the last four is
//! repeated, any bytes go to one end, time passes. What goes to an end is changed by the (offset,
//! value) pairs that follow their number.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use ebof_authentication::controller::{self, Policy, TransactionOutcome};
use ebof_authentication::host::{self, Offer};
use ebof_authentication::message::{FromController, FromHost, SecureChannel};
use ebof_authentication::response::Names;
use ebof_authentication::{ControllerEnd, Entropy, Group, HostEnd, Identity, KeyMaterial, Secret};
use ebof_nvme::Nqn;

/// Messages that are remembered.
const MESSAGES_MAX: usize = 4;

struct World {
    host: HostEnd,
    controller: ControllerEnd,
    messages: VecDeque<Vec<u8>>,
    turn: u32,
}

/// Runs any messages in any order. The host does not have the controller's secret, so that nothing
/// whatever may authenticate either of them.
///
/// # Panics
/// An invariant is violated.
pub fn authentication(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        texts(text);
    }
    let mut world = World::new();
    let mut input = input;
    while let Some(act) = take(&mut input) {
        match act % 8 {
            0 => world.begin(),
            1 => world.tell_controller(&mut input),
            2 => world.transmit(&mut input),
            3 => world.tell_host(&mut input),
            4 => world.repeat(act),
            5 => {
                let length = usize::from(act >> 3).min(input.len());
                let (message, rest) = input.split_at(length);
                world.remember(message.to_vec());
                input = rest;
            }
            6 => world.controller.forget(),
            _ => world.tell_both(&mut input),
        }
    }
}

/// What is read is written as it was read.
fn texts(text: &str) {
    if let Ok(secret) = Secret::parse(text) {
        assert_eq!(Secret::parse(&secret.to_text()), Ok(secret));
    }
    if let Ok(identity) = text.parse::<Identity>() {
        assert_eq!(identity.to_string(), text);
    }
    let _ = ebof_authentication::ConfiguredPsk::parse(text);
}

fn take(input: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = input.split_first()?;
    *input = rest;
    Some(first)
}

fn secret(seed: u8) -> Secret {
    Secret::new(KeyMaterial::new(vec![seed; 32]), None).expect("a legal length")
}

impl World {
    fn new() -> Self {
        let nqn = |name: &str| Nqn::parse(name).expect("an NQN");
        let names = Names { host: nqn("nqn.2014-08.org.example:host"), subsystem: nqn("nqn.2014-08.org.example:sub") };
        // The exponentiations of other groups take milliseconds.
        let groups = vec![Group::Null];
        let offer = Offer { groups: groups.clone(), ..Offer::everything(SecureChannel::None) };
        let of_host = host::Credentials { names: names.clone(), host: secret(1), controller: Some(secret(2)) };
        let of_controller = controller::Credentials { names, host: vec![secret(3)], controller: Some(secret(4)) };
        let policy = Policy { groups, ..Policy::default() };
        Self {
            host: HostEnd::new(of_host, offer),
            controller: ControllerEnd::new(of_controller, policy),
            messages: VecDeque::new(),
            turn: 0,
        }
    }

    fn entropy(&mut self) -> Entropy {
        self.turn += 1;
        let mut next = self.turn;
        Entropy::new(NonZeroU32::new(self.turn).expect("at least 1"), |bytes| {
            for byte in bytes {
                next = next.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                *byte = next.to_le_bytes()[2];
            }
        })
    }

    fn remember(&mut self, message: Vec<u8>) {
        if self.messages.len() == MESSAGES_MAX {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// The last message, changed.
    fn last(&mut self, input: &mut &[u8]) -> Vec<u8> {
        let mut message = self.messages.back().cloned().unwrap_or_default();
        for _ in 0..take(input).unwrap_or(0) % 8 {
            let (Some(at), Some(value)) = (take(input), take(input)) else { break };
            let at = usize::from(at);
            match message.get_mut(at) {
                Some(byte) => *byte = value,
                None => message.truncate(value.into()),
            }
        }
        message
    }

    fn begin(&mut self) {
        let entropy = self.entropy();
        let next = self.host.begin(7, entropy);
        self.after_host(next);
    }

    fn tell_controller(&mut self, input: &mut &[u8]) {
        let message = self.last(input);
        let _ = FromHost::decode(&message);
        let entropy = self.entropy();
        match self.controller.receive(&message, &entropy) {
            controller::Next::Complete(outcome) => check(outcome.as_ref()),
            controller::Next::Compute(_) => unreachable!("the null group has no exponentiation"),
        }
    }

    fn transmit(&mut self, input: &mut &[u8]) {
        let bytes_max = if take(input).unwrap_or(0) < 200 { 4096 } else { 16 };
        if let Ok((message, outcome)) = self.controller.transmit(bytes_max) {
            assert!(message.len() <= bytes_max);
            check(outcome.as_ref());
            FromController::decode(&message).expect("what the controller sends is legal");
            self.remember(message);
        }
    }

    fn tell_host(&mut self, input: &mut &[u8]) {
        let message = self.last(input);
        let next = self.host.receive(&message);
        self.after_host(next);
    }

    fn tell_both(&mut self, input: &mut &[u8]) {
        self.tell_controller(input);
        self.tell_host(input);
    }

    fn repeat(&mut self, act: u8) {
        if let Some(message) = self.messages.get(usize::from(act >> 3) % MESSAGES_MAX).cloned() {
            self.remember(message);
        }
    }

    fn after_host(&mut self, next: host::Next) {
        let message = match next {
            host::Next::Exchange(message) => Some(message),
            host::Next::Over { message, result } => {
                assert!(result.is_err(), "the controller has another secret");
                message
            }
            host::Next::Compute(_) => unreachable!("the null group has no exponentiation"),
        };
        if let Some(message) = message {
            FromHost::decode(&message).expect("what the host sends is legal");
            self.remember(message);
        }
    }
}

fn check(outcome: Option<&TransactionOutcome>) {
    assert!(!matches!(outcome, Some(TransactionOutcome::Authenticated(_))), "the host has another secret");
}
