//! The registry of ebof's own messages.

use ebof_manage::events::{EventKind, EventSeverity};
use serde_json::{Map, Value, json};

use crate::response::message::camel;
use crate::response::message::own::{OWN, RESOLUTION};

/// `MessageRegistry`, of a version before the one with another property for the severity: since
/// then it has two, and the one that is required is deprecated.
pub(super) fn registry() -> Value {
    let message = |severity: &str, description: &str, resolution: &str| {
        json!({
            "Description": description, "LongDescription": description, "Message": "%1", "Severity": severity,
            "NumberOfArgs": 1, "ParamTypes": ["string"],
            "ArgDescriptions": ["A sentence"], "Resolution": resolution,
        })
    };
    let mut messages = Map::new();
    for (id, severity, description, resolution) in OWN {
        messages.insert((*id).to_owned(), message(severity, description, resolution));
    }
    for kind in EventKind::ALL {
        let severity = match kind.severity() {
            EventSeverity::Ok => "OK",
            EventSeverity::Warning => "Warning",
            EventSeverity::Critical => "Critical",
        };
        let description = format!("An event of the kind {}.", kind.name().replace('-', " "));
        messages.insert(camel(kind.name()), message(severity, &description, RESOLUTION));
    }
    json!({
        "@odata.type": "#MessageRegistry.v1_3_5.MessageRegistry", "Id": "Ebof.1.0.0", "Name": "Messages of ebof",
        "Language": "en", "Description": "Messages that only ebof sends", "RegistryPrefix": "Ebof",
        "RegistryVersion": "1.0.0", "OwningEntity": "ebof", "Messages": messages,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::response::message::own::is_own;

    /// Identifiers behind `word` in all files below a directory.
    fn identifiers(directory: &Path, words: &[&str], found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                identifiers(&path, words, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Tests may name messages that there are not.
            let text = text.split("#[cfg(test)]").next().unwrap();
            for word in words {
                for rest in text.split(word).skip(1) {
                    let id =
                        rest.trim_start().trim_start_matches('"').split(|c: char| !c.is_ascii_alphanumeric()).next();
                    found.extend(id.filter(|id| id.starts_with(|c: char| c.is_ascii_uppercase())).map(str::to_owned));
                }
            }
        }
    }

    // @test redfish.messages
    #[test]
    fn the_registry_has_what_the_code_sends() {
        let mut sent = BTreeSet::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        identifiers(&source, &["own(", "{OWN}.", "progress("], &mut sent);
        // `Message::mistake` chooses among these.
        for id in ["ObjectNotFound", "ObjectBusy", "ChangeConflicts", "ChangeOutdated", "ChangeRefused"] {
            let text = std::fs::read_to_string(source.join("response/message.rs")).unwrap();
            assert!(text.contains(&format!("\"{id}\"")), "{id}");
            sent.insert(id.to_owned());
        }
        let unknown: Vec<_> = sent.iter().filter(|id| !is_own(id)).collect();
        assert!(unknown.is_empty(), "sent, and not in the registry: {unknown:?}");
        let never: Vec<_> = OWN.iter().map(|(id, ..)| *id).filter(|id| !sent.contains(*id)).collect();
        assert!(never.is_empty(), "in the registry, and never sent: {never:?}");
        assert_eq!(registry()["Messages"]["TaskFailed"]["Severity"], "Warning");
    }
}
