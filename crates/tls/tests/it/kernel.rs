//! Records of the kernel at one end or both, where it has TLS (`modprobe tls`), and what happens
//! where it has none. Guests of tests/vm have it:
//! `tests/vm/try.sh -l none -b 'modprobe tls' PROGRAM kernel`.

use std::io::IoSlice;
use std::net::Shutdown;

use ebof_authentication::Hash;
use ebof_tls::{ClientHandshake, Limits, NotInKernel, RecordsBy, ServerHandshake};

use crate::support::{self, End, drive, narrow_pair, pair, psk, streams_by};
use crate::transfers::{MIB, check_wire, transfer};

const OWN: RecordsBy = RecordsBy::Own;
const KERNEL: RecordsBy = RecordsBy::Kernel;
/// Where the kernel is at work.
const ENDS: [[RecordsBy; 2]; 3] = [[KERNEL, OWN], [OWN, KERNEL], [KERNEL, KERNEL]];

/// What a connection that wants the kernel's records says if it does not get them.
fn not_in_kernel() -> Option<NotInKernel> {
    let (client, server) = pair();
    let mut find = |_: &str| vec![psk(Hash::Sha256, 7)];
    let [host, target] = drive([
        End::Client(ClientHandshake::new(client, psk(Hash::Sha256, 7)).with_records(KERNEL)),
        End::Server(ServerHandshake::new(server), &mut find),
    ])
    .map(Result::unwrap);
    assert_eq!(host.records, if host.not_in_kernel.is_some() { OWN } else { KERNEL });
    assert_eq!((target.records, target.not_in_kernel), (OWN, None));
    transfer([host.stream, target.stream], 100_000, 6);
    host.not_in_kernel
}

fn is_missing() -> bool {
    let reason = not_in_kernel();
    if let Some(reason) = &reason {
        println!("SKIPPED: {reason}");
    }
    reason.is_some()
}

#[test]
fn where_the_kernel_has_no_tls_the_records_are_own_ones_and_it_is_said() {
    match not_in_kernel() {
        None => println!("SKIPPED: this kernel has TLS"),
        Some(reason) => {
            assert_eq!(reason, NotInKernel::NoModule);
            assert!(reason.to_string().contains("modprobe tls"));
        }
    }
}

#[test]
fn data_arrive_as_they_were_sent() {
    if is_missing() {
        return;
    }
    for by in ENDS {
        for (seed, hash) in [(1, Hash::Sha256), (2, Hash::Sha384)] {
            transfer(streams_by(pair(), hash, by), 8 * MIB, seed);
            transfer(streams_by(narrow_pair(), hash, by), 8 * MIB, seed);
        }
    }
}

#[test]
fn nothing_of_the_data_is_on_the_wire() {
    if is_missing() {
        return;
    }
    for by in ENDS {
        check_wire(by);
    }
}

#[test]
fn an_end_is_seen_after_all_that_was_sent_before() {
    if is_missing() {
        return;
    }
    for by in ENDS {
        for how in [Shutdown::Write, Shutdown::Both] {
            let [mut sender, mut receiver] = streams_by(pair(), Hash::Sha384, by);
            support::send(&mut sender, &[5; 100_000]);
            sender.shutdown(how);
            assert_eq!(support::receive(&mut receiver, 200_000), [5; 100_000]);
            assert_eq!(receiver.receive(&mut [0; 10]).unwrap(), 0);
            assert!(!receiver.has_received());
            let refused = sender.send(&[IoSlice::new(b"late")], false).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::NotConnected);
        }
    }
}

/// Kernels before 6.14 cannot change a key: they end the connection, and say why.
#[test]
fn keys_are_changed_in_both_directions_or_the_connection_ends_and_says_why() {
    if is_missing() {
        return;
    }
    for by in ENDS {
        let (client, server) = pair();
        let limits = |key_blocks| Limits { key_blocks };
        let mut find = |_: &str| vec![psk(Hash::Sha256, 7)];
        let ends = drive([
            End::Client(ClientHandshake::with_limits(client, psk(Hash::Sha256, 7), limits(1000)).with_records(by[0])),
            End::Server(ServerHandshake::with_limits(server, limits(5000)).with_records(by[1]), &mut find),
        ]);
        let mut ends = ends.map(|outcome| outcome.unwrap().stream);
        // The first KeyUpdate is the host's.
        let mut why = None;
        for _ in 0..20 {
            match ends[0].send(&[IoSlice::new(&[1; 5000])], false) {
                Ok(sent) => assert_eq!(sent, 5000),
                Err(error) => {
                    why = Some(error);
                    break;
                }
            }
            let mut bytes = [0; 5000];
            support::wait_for_data(&ends[1]);
            if let Err(error) = ends[1].receive(&mut bytes)
                && error.kind() != std::io::ErrorKind::WouldBlock
            {
                why = Some(error);
                break;
            }
        }
        match why {
            None => _ = transfer(ends, 8 * MIB, 5),
            Some(error) => {
                println!("this kernel cannot change keys: {error}");
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
                assert!(error.to_string().contains("Linux 6.14"), "{error}");
            }
        }
    }
}
