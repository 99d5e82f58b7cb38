//! Sets of ports: their limits, and what is read of a medium of today, of earlier versions, and of
//! a hostile one.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::change::{Change, State};
use crate::function::{self, Function};

fn read(json: &str) -> Result<PortNames, String> {
    serde_json::from_str(json).map_err(|error: serde_json::Error| error.to_string())
}

fn names(set: &PortNames) -> Vec<&str> {
    set.iter().collect()
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("port{number:02}")).collect()
}

#[test]
fn a_set_has_limits_and_no_name_twice() {
    let set = PortNames::new(["b", "a"]).unwrap();
    assert_eq!((names(&set), set.contains("b"), set.contains("c")), (vec!["a", "b"], true, false));
    assert!(PortNames::new(["a"]).unwrap().is_subset(&set) && !set.is_subset(&PortNames::default()));
    assert!(PortNames::new(None::<String>).unwrap().is_empty());
    assert_eq!(PortNames::new(["a", "b", "a"]), Err(PortNamesError::Twice));
    assert_eq!(PortNames::new([""]), Err(PortNamesError::Name));
    // Characters are counted, not bytes.
    assert!(PortNames::new(["\u{fffd}".repeat(64)]).is_ok());
    assert_eq!(PortNames::new(["a".repeat(65)]), Err(PortNamesError::Name));
    assert!(PortNames::new(numbered(PortNames::MAX)).is_ok());
    assert_eq!(PortNames::new(numbered(PortNames::MAX + 1)), Err(PortNamesError::TooMany));
}

/// The port in records of the version that had one, in a change and in a checkpoint. From the first
/// checkpoint on, the drive has the form of today.
// @test drive.earlier-versions
#[test]
fn the_one_port_of_an_earlier_version_is_a_set_of_one() {
    let change = br#"{"functions":{"change":{"changed":{"id":2,"function":{"queues":9,"interrupts":8,"online":true,"port":"fabric0","share":{"weight":4}}}}}}"#;
    let checkpoint = br#"{"functions":{"1":{"queues":2,"interrupts":1,"online":true,"port":"fabric1","share":{"weight":1}},"3":{"queues":0,"interrupts":0,"online":false,"share":{"weight":1}}},"transactions":{"t":{"decider":"00000000000000000000000000000001","functions":{"1":{"queues":0,"interrupts":0,"online":false,"port":"fabric2","share":{"weight":1}}},"namespaces":{}}}}"#;
    let state = State::restore(checkpoint, &[change.to_vec()]).unwrap();
    let ports = |state: &State, id| names(&state.functions[&id].ports).join(",");
    let before = |state: &State| names(&state.transactions["t"].functions[&1].ports).join(",");
    let all = |state: &State| ([1, 2, 3].map(|id| ports(state, id)), before(state));
    assert_eq!(all(&state), (["fabric1", "fabric0", ""].map(String::from), "fabric2".to_string()));
    let written = String::from_utf8(state.to_bytes()).unwrap();
    for list in [r#""port":["fabric0"]"#, r#""port":["fabric1"]"#, r#""port":["fabric2"]"#] {
        assert!(written.contains(list), "{written}");
    }
    assert_eq!(written.matches("\"port\"").count(), 3, "a function without ports has no list: {written}");
    let again = State::restore(written.as_bytes(), &[]).unwrap();
    assert_eq!(again, state);
    assert_eq!(again.to_bytes(), written.as_bytes());
}

/// The structures of the version that had one port.
mod one_port {
    use alloc::collections::BTreeMap;
    use alloc::string::String;

    #[derive(Debug, serde::Deserialize)]
    pub(super) struct State {
        #[serde(default)]
        pub(super) functions: BTreeMap<u16, Function>,
    }

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(default)]
    pub(super) struct Function {
        pub(super) port: Option<String>,
    }
}

#[test]
fn an_earlier_version_refuses_a_list_and_reads_functions_without_ports() {
    let with = |names: &[&str]| {
        let function = Function { ports: PortNames::new(names.iter().copied()).unwrap(), ..Function::default() };
        let mut state = State::default();
        state.apply(Change::Functions { change: function::FunctionChange::Changed { id: 1, function } });
        serde_json::from_slice::<one_port::State>(&state.to_bytes())
    };
    assert_eq!(with(&[]).unwrap().functions[&1].port, None);
    for names in [["a"].as_slice(), &["a", "b"]] {
        let error = with(names).unwrap_err();
        // What follows is the text of that version.
        let text = crate::RestoreError::State(error).to_string();
        assert!(text.contains("invalid type: sequence, expected a string"), "{text}");
        assert!(text.ends_with("; was it written by a later version?"), "{text}");
    }
}

#[test]
fn what_is_no_set_of_ports_on_the_medium_is_refused() {
    let full = serde_json::to_string(&numbered(PortNames::MAX)).unwrap();
    assert_eq!(read(&full).unwrap().iter().count(), PortNames::MAX);
    let many = serde_json::to_string(&numbered(PortNames::MAX + 1)).unwrap();
    let long = format!("[\"{}\"]", "a".repeat(65));
    for (wrong, why) in [
        (r#"["a","a"]"#, "in ascending order"),
        (r#"["b","a"]"#, "in ascending order"),
        (r#"["a",""]"#, "in ascending order"),
        (r#"[""]"#, "1 to 64 characters"),
        (r#""""#, "1 to 64 characters"),
        (long.as_str(), "1 to 64 characters"),
        (&long[1..long.len() - 1], "1 to 64 characters"),
        (many.as_str(), "at most 8 ports"),
        (r#"["a",1]"#, "invalid type: integer"),
        (r#"["a",["b"]]"#, "invalid type: sequence"),
        (r#"["a",null]"#, "invalid type: null"),
        ("7", "a list of ports, or the name of one"),
        ("true", "a list of ports, or the name of one"),
        (r#"{"a":"b"}"#, "a list of ports, or the name of one"),
    ] {
        let error = read(wrong).unwrap_err();
        assert!(error.contains(why), "{wrong}: {error}");
        let state = format!(r#"{{"functions":{{"1":{{"port":{wrong}}}}}}}"#);
        assert!(State::restore(state.as_bytes(), &[]).is_err(), "{wrong}");
    }
    // Cut off anywhere, and named twice.
    for end in 0..full.len() {
        assert!(read(&full[..end]).is_err(), "{end}");
    }
    assert!(State::restore(br#"{"functions":{"1":{"port":["a"],"port":["b"]}}}"#, &[]).is_err());
    assert_eq!((read("null").unwrap(), read("[]").unwrap()), (PortNames::default(), PortNames::default()));
}

proptest! {
    #[test]
    fn a_set_is_read_as_it_was_written(wanted in proptest::collection::btree_set(".{1,64}", 0..=PortNames::MAX)) {
        let set = PortNames::new(wanted.iter().cloned()).unwrap();
        let written = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(read(&written).unwrap(), set);
    }
}
