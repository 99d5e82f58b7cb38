//! Makes edits in the JSON form of a configuration. Values are checked later, when it is read;
//! here only objects and keys have to exist.

use serde_json::{Map, Value, json};

use super::table::Kind;
use super::{Edit, Keys, Object};
use crate::config::Config;
use crate::diagnostic::nearest::nearest;
use crate::enclosure::{Mistake, MistakeKind};
use crate::listen::Listen;

/// A configuration in its JSON form.
pub(super) struct Tree(pub(super) Map<String, Value>);

type Found = Result<(), Vec<Mistake>>;

impl Tree {
    pub(super) fn from_config(config: &Config) -> Self {
        Self(config.to_tables())
    }

    pub(super) fn make(&mut self, edit: &Edit) -> Found {
        match edit {
            Edit::AddPort { keys, subsystems } => self.add_port(keys, subsystems.as_deref()),
            Edit::AddHost { keys, subsystems } => self.add_host(keys, subsystems),
            Edit::AddSubsystem { keys } => self.add_subsystem(keys),
            Edit::AddNamespace { subsystem, keys } => self.add_namespace(subsystem, keys),
            Edit::Remove { object } => self.remove(object),
            Edit::Set { object, keys, add, remove } => self.set(object, keys, add, remove),
            Edit::Enable { object } => self.enable(object, true),
            Edit::Disable { object } => self.enable(object, false),
            Edit::Resize { subsystem, nsid, size } => self.resize(subsystem, *nsid, size),
        }
    }

    fn add_port(&mut self, keys: &Keys, subsystems: Option<&[String]>) -> Found {
        let mut mistakes = unknown(Kind::Port, &format!("port {}", shown(keys.get("listen"))), keys);
        let mut new = set_keys(keys);
        let name = keys.get("name").and_then(Value::as_str).map_or_else(|| address(&new), str::to_owned);
        new.insert("name".to_owned(), json!(name));
        let new = Value::Object(new);
        let is_of_network = |port: &Value| !text(port, "listen").starts_with("vfio-user:");
        let serves = |port: &Value| is_of_network(port) && port.get("discovery_only") != Some(&Value::Bool(true));
        let chosen = match subsystems {
            Some(chosen) => chosen.to_vec(),
            None if !serves(&new) => Vec::new(),
            None => {
                let others: Vec<String> =
                    self.list("ports").iter().filter(|port| serves(port)).map(|port| text(port, "name")).collect();
                let is_at = |subsystem: &&Value| {
                    let ports = strings(subsystem.get("ports"));
                    if others.is_empty() { ports.is_empty() } else { others.iter().all(|other| ports.contains(other)) }
                };
                self.list("subsystems").iter().filter(is_at).map(|subsystem| text(subsystem, "nqn")).collect()
            }
        };
        self.list("ports").push(new);
        for nqn in &chosen {
            match self.object(&Object::Subsystem(nqn.clone())) {
                Ok(subsystem) => add_to_list(subsystem, "ports", json!(name)),
                Err(missing) => mistakes.push(*missing),
            }
        }
        all(mistakes)
    }

    fn add_host(&mut self, keys: &Keys, subsystems: &[String]) -> Found {
        let nqn = shown(keys.get("nqn"));
        let mut mistakes = unknown(Kind::Host, &format!("host {nqn}"), keys);
        self.list("hosts").push(Value::Object(set_keys(keys)));
        for subsystem in subsystems {
            match self.object(&Object::Subsystem(subsystem.clone())) {
                Ok(subsystem) => add_to_list(subsystem, "allowed_hosts", json!(nqn)),
                Err(missing) => mistakes.push(*missing),
            }
        }
        all(mistakes)
    }

    fn add_subsystem(&mut self, keys: &Keys) -> Found {
        let nqn = shown(keys.get("nqn"));
        let mut mistakes = unknown(Kind::Subsystem, &format!("subsystem {nqn}"), keys);
        let namespaces = keys.get("namespaces").and_then(Value::as_array).into_iter().flatten();
        for keys in namespaces.filter_map(Value::as_object) {
            mistakes.extend(unknown(Kind::Namespace, &format!("a namespace of {nqn}"), keys));
        }
        self.describe(&strings(keys.get("allowed_hosts")));
        let mut new = set_keys(keys);
        // Who adds one has not forgotten it, as a file that was cut short may have.
        new.entry("namespaces").or_insert_with(|| json!([]));
        self.list("subsystems").push(Value::Object(new));
        all(mistakes)
    }

    fn add_namespace(&mut self, nqn: &str, keys: &Keys) -> Found {
        let mut mistakes = unknown(Kind::Namespace, &format!("a new namespace of {nqn}"), keys);
        let new = Value::Object(set_keys(keys));
        match self.object(&Object::Subsystem(nqn.to_owned())) {
            Ok(subsystem) => match subsystem.get("drive").and_then(Value::as_str) {
                None => add_to_list(subsystem, "namespaces", new),
                Some(drive) => {
                    let message = format!("it has the namespaces of drive {drive}");
                    let advice = format!("add the namespace to the drive, {drive}");
                    let object = format!("subsystem {nqn}");
                    mistakes.push(Mistake::new(MistakeKind::Conflict, &object, message, advice));
                }
            },
            Err(missing) => mistakes.push(*missing),
        }
        all(mistakes)
    }

    fn remove(&mut self, object: &Object) -> Found {
        self.object(object).map_err(|missing| vec![*missing])?;
        let subsystems = |tree: &mut Self, key: &str, name: &str| {
            tree.list("subsystems").iter_mut().for_each(|subsystem| take_from_list(subsystem, key, &json!(name)));
        };
        match object {
            Object::Target => {
                let advice = "end it, or remove what it has";
                return Err(vec![Mistake::new(MistakeKind::Conflict, object, "it cannot be removed", advice)]);
            }
            Object::Drive(name) => {
                let advice = format!("`ebof target remove drive {name}` closes it in order");
                return Err(vec![Mistake::new(MistakeKind::Conflict, object, "its removal takes steps", advice)]);
            }
            Object::Port(name) => {
                self.list("ports").retain(|port| text(port, "name") != *name);
                subsystems(self, "ports", name);
            }
            Object::Host(nqn) => {
                self.list("hosts").retain(|host| text(host, "nqn") != *nqn);
                subsystems(self, "allowed_hosts", nqn);
            }
            Object::Subsystem(nqn) => self.list("subsystems").retain(|subsystem| text(subsystem, "nqn") != *nqn),
            Object::Namespace { subsystem, nsid } => {
                if let Ok(subsystem) = self.object(&Object::Subsystem(subsystem.clone())) {
                    list_of(subsystem, "namespaces").retain(|namespace| namespace.get("nsid") != Some(&json!(nsid)));
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, object: &Object, keys: &Keys, add: &Keys, remove: &Keys) -> Found {
        let mut mistakes = Vec::new();
        for keys in [keys, add, remove] {
            mistakes.extend(unknown(object.kind(), &object.to_string(), keys));
        }
        if object.kind() == Kind::Subsystem && [keys, add, remove].iter().any(|keys| keys.contains_key("namespaces")) {
            let advice = "namespaces are added and removed one by one";
            mistakes.push(Mistake::new(MistakeKind::Conflict, object, "`namespaces` is no value to set", advice));
        }
        for (key, _) in add.iter().chain(remove) {
            let form = object.kind().form_of(key);
            if form.is_some_and(|form| !form.starts_with("list") && !form.starts_with("table of")) {
                let advice = format!("set it: {key}=VALUE");
                mistakes.push(Mistake::new(MistakeKind::Value, object, format!("`{key}` is no list"), advice));
            }
        }
        self.object(object).map_err(|missing| {
            mistakes.push(*missing);
            mistakes.clone()
        })?;
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.describe(&strings(keys.get("allowed_hosts")));
        self.describe(&strings(add.get("allowed_hosts")));
        let table = self.object(object).expect("it was found above, and hosts have been added only since");
        let before = table.clone();
        let is_table = |key: &str| object.kind().form_of(key).is_some_and(|form| form.starts_with("table of"));
        for (key, value) in add {
            match value {
                Value::Object(entries) if is_table(key) => set_entries(table, key, entries),
                value => each(value).for_each(|value| add_to_list(table, key, value.clone())),
            }
        }
        for (key, value) in remove {
            if is_table(key) {
                each(value).filter_map(Value::as_str).for_each(|name| take_entry(table, key, name));
            } else {
                each(value).for_each(|value| take_from_list(table, key, value));
            }
        }
        let table = table.as_object_mut().expect("what is found by a name or a number that it has is a table");
        for (key, value) in keys {
            match value {
                Value::Null => drop(table.remove(key)),
                value => drop(table.insert(key.clone(), value.clone())),
            }
        }
        if let Object::Port(name) = object {
            let is_named_after = address_of(&before) == *name && !keys.contains_key("name");
            if is_named_after || keys.get("name") == Some(&Value::Null) {
                let name = address(table);
                table.insert("name".to_owned(), json!(name));
            }
        }
        let after = Value::Object(table.clone());
        self.follow(object, &after, keys);
        Ok(())
    }

    /// What referred to an object by its name does so by the one that it has now.
    fn follow(&mut self, object: &Object, now: &Value, keys: &Keys) {
        match object {
            Object::Port(name) => self.refer("ports", name, &text(now, "name")),
            Object::Host(nqn) => self.refer("allowed_hosts", nqn, &text(now, "nqn")),
            Object::Drive(name) => {
                for subsystem in self.list("subsystems").iter_mut().filter(|it| text(it, "drive") == *name) {
                    let table = subsystem.as_object_mut().expect("what has a drive is a table");
                    table.insert("drive".to_owned(), json!(text(now, "name")));
                    // The drive's are its subsystem's.
                    for key in ["serial", "model"].into_iter().filter(|key| keys.contains_key(*key)) {
                        table.remove(key);
                    }
                }
            }
            Object::Target | Object::Subsystem(_) | Object::Namespace { .. } => {}
        }
    }

    fn refer(&mut self, key: &str, from: &str, to: &str) {
        for subsystem in self.list("subsystems") {
            let names = list_of(subsystem, key).iter_mut();
            names.filter(|name| name.as_str() == Some(from)).for_each(|name| *name = json!(to));
        }
    }

    fn enable(&mut self, object: &Object, enabled: bool) -> Found {
        if !object.kind().can_be_disabled() {
            let message = format!("a {} cannot be enabled or disabled", object.kind());
            let advice = "ports, subsystems and namespaces can";
            return Err(vec![Mistake::new(MistakeKind::Conflict, object, message, advice)]);
        }
        let table = self.object(object).map_err(|missing| vec![*missing])?;
        if let Some(table) = table.as_object_mut() {
            table.insert("enabled".to_owned(), json!(enabled));
        }
        Ok(())
    }

    fn resize(&mut self, subsystem: &str, nsid: u32, size: &Value) -> Found {
        let object = Object::Namespace { subsystem: subsystem.to_owned(), nsid };
        let table = self.object(&object).map_err(|missing| vec![*missing])?;
        match table.get_mut("drive") {
            Some(Value::Object(file)) => drop(file.insert("size".to_owned(), size.clone())),
            _ => {
                let message = "memory and null drives keep the size that they were made with";
                let advice = "add another one of that size, have hosts copy what they need, and remove this one then: its \
                              data are lost by that";
                return Err(vec![Mistake::new(MistakeKind::Conflict, &object, message, advice)]);
            }
        }
        Ok(())
    }

    /// Adds hosts that are not described.
    fn describe(&mut self, nqns: &[String]) {
        for nqn in nqns {
            let hosts = self.list("hosts");
            if !hosts.iter().any(|host| text(host, "nqn") == *nqn) {
                hosts.push(json!({ "nqn": nqn }));
            }
        }
    }

    fn list(&mut self, key: &str) -> &mut Vec<Value> {
        let list = self.0.entry(key).or_insert_with(|| json!([]));
        if !list.is_array() {
            *list = json!([]);
        }
        list.as_array_mut().expect("it is an array")
    }

    /// An object's table.
    fn object(&mut self, object: &Object) -> Result<&mut Value, Box<Mistake>> {
        let (list, name) = match object {
            Object::Target => return Ok(self.0.entry("target").or_insert_with(|| json!({}))),
            Object::Namespace { subsystem, nsid } => {
                let subsystem = self.object(&Object::Subsystem(subsystem.clone()))?;
                let there: Vec<String> =
                    list_of(subsystem, "namespaces").iter().map(|it| shown(it.get("nsid"))).collect();
                let found = list_of(subsystem, "namespaces").iter_mut().find(|it| it.get("nsid") == Some(&json!(nsid)));
                return found.ok_or_else(|| Box::new(missing(object, &nsid.to_string(), &there)));
            }
            Object::Port(name) => (self.list("ports"), name),
            Object::Host(nqn) => (self.list("hosts"), nqn),
            Object::Drive(name) => (self.list("drives"), name),
            Object::Subsystem(nqn) => (self.list("subsystems"), nqn),
        };
        let key = object.kind().named_by();
        match list.iter().position(|it| text(it, key) == *name) {
            Some(at) => Ok(&mut list[at]),
            None => {
                let there: Vec<String> = list.iter().map(|it| text(it, key)).collect();
                Err(Box::new(missing(object, name, &there)))
            }
        }
    }
}

/// The most names that are listed, and that are compared with one that does not exist.
const NAMES_MAX: usize = 16;

fn missing(object: &Object, name: &str, there: &[String]) -> Mistake {
    let some: Vec<&str> = there.iter().map(String::as_str).take(NAMES_MAX).collect();
    let kind = object.kind();
    let advice = match nearest(name, &some) {
        Some(near) => format!("did you mean {near}?"),
        None if there.is_empty() => format!("there is no {kind} at all"),
        None if some.len() < there.len() => "`ebof config export` shows all".to_owned(),
        None => format!("there is {}", some.join(", ")),
    };
    Mistake::new(MistakeKind::NotFound, object, "there is no such thing", advice)
}

/// Keys that objects of this kind do not have.
fn unknown(kind: Kind, object: &str, keys: &Keys) -> Vec<Mistake> {
    let known: Vec<&str> = kind.keys().into_iter().map(|(key, _)| key).collect();
    let unknown = keys.keys().filter(|key| !known.contains(&key.as_str()));
    unknown
        .map(|key| {
            let message = format!("`{}` is not a key of a {kind}", key.escape_debug());
            let advice = match nearest(key, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("accepted: {}", known.join(", ")),
            };
            Mistake::new(MistakeKind::Value, object, message, advice)
        })
        .collect()
}

fn all(mistakes: Vec<Mistake>) -> Found {
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// Keys without those that are to have their default, and without those that nothing has.
fn set_keys(keys: &Keys) -> Keys {
    keys.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The address of a port as the configuration writes it, which is its name if it has none.
fn address(port: &Keys) -> String {
    let listen = port.get("listen").and_then(Value::as_str).unwrap_or_default();
    // One that is not understood is reported when it is read.
    listen.parse::<Listen>().map_or_else(|_| listen.to_owned(), |listen| listen.to_string())
}

fn address_of(port: &Value) -> String {
    port.as_object().map(address).unwrap_or_default()
}

fn text(table: &Value, key: &str) -> String {
    table.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A name for messages, whatever it is.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let one = |value: &Value| value.as_str().map(str::to_owned);
    value.map(|value| each(value).filter_map(one).collect()).unwrap_or_default()
}

/// The elements of a list, or the value.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice).iter()
}

fn list_of<'v>(table: &'v mut Value, key: &str) -> &'v mut Vec<Value> {
    if !table.get(key).is_some_and(Value::is_array)
        && let Some(table) = table.as_object_mut()
    {
        table.insert(key.to_owned(), json!([]));
    }
    table[key].as_array_mut().expect("it is an array of a table")
}

/// Sets entries of a table that is the value of `key`.
fn set_entries(table: &mut Value, key: &str, entries: &Keys) {
    let Some(table) = table.as_object_mut() else { return };
    let value = table.entry(key.to_owned()).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it is a table").extend(entries.clone());
}

fn take_entry(table: &mut Value, key: &str, name: &str) {
    if let Some(entries) = table.get_mut(key).and_then(Value::as_object_mut) {
        entries.remove(name);
    }
}

fn add_to_list(table: &mut Value, key: &str, value: Value) {
    let list = list_of(table, key);
    if !list.contains(&value) {
        list.push(value);
    }
}

fn take_from_list(table: &mut Value, key: &str, value: &Value) {
    list_of(table, key).retain(|other| other != value);
}
