//! What is on the medium and on the wire of functions.

use alloc::string::ToString;

use super::*;
use crate::change::State;

#[test]
fn names_on_the_medium_are_unchanged() {
    let changes: [&[u8]; 4] = [
        br#"{"functions":{"change":{"changed":{"id":2,"function":{"queues":9,"interrupts":8,"online":true,"port":["fabric0","fabric1"],"share":{"weight":4,"iops":5,"bytes_per_second":6,"minimum_iops":1}}}}}}"#,
        br#"{"functions":{"change":{"allocated":{"primary":{"queues":1,"interrupts":2,"next_queues":3,"next_interrupts":4}}}}}"#,
        br#"{"functions":{"change":{"mapped":{"nsid":1,"functions":[2],"without_hosts":true}}}}"#,
        br#"{"functions":{"change":{"reset":{}}}}"#,
    ];
    for change in changes {
        let read: crate::Change = serde_json::from_slice(change).unwrap();
        assert_eq!(read.to_bytes(), change, "{}", String::from_utf8_lossy(change));
    }
    let journal: alloc::vec::Vec<_> = changes[..2].iter().map(|change| change.to_vec()).collect();
    let state = State::restore(b"", &journal).unwrap();
    let function = &state.functions[&2];
    let ports = PortNames::new(["fabric1", "fabric0"]).unwrap();
    assert_eq!((function.queues, function.online, &function.ports), (9, true, &ports));
    assert_eq!(State::restore(&state.to_bytes(), &[]).unwrap(), state);
}

#[test]
fn a_medium_without_functions_is_read() {
    let checkpoint = br#"{"namespaces":{"1":{"instance":1,"blocks":8,"capacity_blocks":8,"format":0,"shared":false,
        "nguid":"00000000000000000000000000000001","eui64":"0000000000000002","uuid":"00000000000000000000000000000003"}}}"#;
    let state = State::restore(checkpoint, &[]).unwrap();
    assert!(state.functions.is_empty() && state.namespaces[&1].functions.is_empty());
    assert_eq!(state.primary, Primary::default());
    // A namespace without functions is written as before.
    assert!(!String::from_utf8(state.to_bytes()).unwrap().contains("\"functions\":[]"));
}

#[test]
fn structures_say_what_functions_have() {
    let online = Function { queues: 9, interrupts: 5, online: true, ..Function::default() };
    let assigned = Function { queues: 2, ..Function::default() };
    let functions: BTreeMap<u16, Function> = [(1, online), (2, assigned), (3, Function::default())].into();
    let primary = Primary { queues: 7, next_queues: 8, ..Primary::default() };
    let capabilities = primary_capabilities(ControllerId(128), &primary, &functions);
    let ResourceCapabilities { frt, rfa, rfap, prt, frsm, gran, .. } = capabilities.queues;
    assert_eq!((frt.get(), rfa.get(), rfap.get(), prt.get(), frsm.get(), gran.get()), (195, 11, 7, 1, 129, 1));
    assert_eq!((capabilities.crt, capabilities.interrupts.rfa.get(), capabilities.interrupts.rfap.get()), (3, 5, 0));
    let list = secondary_controllers(ControllerId(128), &functions, ControllerId(2));
    assert_eq!((list.numid, list.used()[0].scid.get(), list.used()[1].vfn.get()), (2, 2, 3));
    let first = secondary_controllers(ControllerId(128), &functions, ControllerId(0)).entries[0];
    assert_eq!((first.scs, first.nvq.get(), first.nvi.get(), first.pcid.get()), (ONLINE, 9, 5, 128));
    assert_eq!(secondary_controllers(ControllerId(128), &functions, ControllerId(4)).numid, 0);
    assert_eq!(FunctionId(3).to_string(), "vf3");
}

#[test]
fn shares_are_checked() {
    let share = Share::default();
    assert!(share.is_legal() && Share { weight: 1000, ..share }.is_legal());
    for wrong in [
        Share { weight: 0, ..share },
        Share { weight: 1001, ..share },
        Share { iops: Some(0), ..share },
        Share { bytes_per_second: Some(0), ..share },
        Share { iops: Some(9), minimum_iops: Some(10), ..share },
    ] {
        assert!(!wrong.is_legal(), "{wrong:?}");
    }
}
