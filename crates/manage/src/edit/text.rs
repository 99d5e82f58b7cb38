//! Reads an edited configuration by the rules of configuration files. What is wrong with it is told
//! by object, and not by line: nobody has seen the text.

use serde_json::{Map, Value};

use super::make::Tree;
use super::{Edit, Edits, Object};
use crate::diagnostic::{Diagnostic, Severity};
use crate::enclosure::{Mistake, MistakeKind};
use crate::load::{FileFormat, Loaded, load_as};

/// What messages about the text call it.
const NAME: &str = "edits";

/// A text with an object to a line.
#[derive(Default)]
struct Lines {
    text: String,
    /// What each line is about.
    objects: Vec<Option<Object>>,
}

impl Lines {
    fn line(&mut self, object: Option<Object>, text: &str) {
        self.text += text;
        self.text.push('\n');
        self.objects.push(object);
    }

    /// `KEY: [`, a line for each of `elements`, `]`.
    fn list(&mut self, key: &str, elements: &[Value], mut line: impl FnMut(&mut Self, &Value, &str)) {
        self.line(None, &format!("\"{key}\": ["));
        for (at, element) in elements.iter().enumerate() {
            line(self, element, if at + 1 < elements.len() { "," } else { "" });
        }
        self.line(None, "],");
    }

    fn objects(&mut self, key: &str, elements: &[Value], object: impl Fn(&Value) -> Object) {
        self.list(key, elements, |lines, element, comma| {
            lines.line(Some(object(element)), &format!("{element}{comma}"));
        });
    }

    fn subsystems(&mut self, elements: &[Value]) {
        self.list("subsystems", elements, |lines, element, comma| {
            let nqn = name(element, "nqn");
            let mut keys = element.as_object().cloned().unwrap_or_default();
            let namespaces = match keys.get("namespaces") {
                Some(Value::Array(_)) => keys.remove("namespaces"),
                _ => None,
            };
            let object = Object::Subsystem(nqn.clone());
            let Some(Value::Array(namespaces)) = namespaces else {
                return lines.line(Some(object), &format!("{}{comma}", Value::Object(keys)));
            };
            let head = Value::Object(keys).to_string();
            let head = head.strip_suffix('}').unwrap_or(&head);
            let between = if head == "{" { "" } else { "," };
            lines.line(Some(object), &format!("{head}{between}\"namespaces\": ["));
            for (at, namespace) in namespaces.iter().enumerate() {
                let nsid = namespace.get("nsid").and_then(Value::as_u64).and_then(|nsid| u32::try_from(nsid).ok());
                let object = match nsid {
                    Some(nsid) => Object::Namespace { subsystem: nqn.clone(), nsid },
                    None => Object::Subsystem(nqn.clone()),
                };
                let comma = if at + 1 < namespaces.len() { "," } else { "" };
                lines.line(Some(object), &format!("{namespace}{comma}"));
            }
            lines.line(None, &format!("]}}{comma}"));
        });
    }
}

/// The configuration that a tree is.
pub(super) fn read(tree: Tree, edits: &Edits) -> Result<Loaded, Vec<Mistake>> {
    let Tree(tables) = tree;
    let lines = written(&tables);
    let loaded = load_as(FileFormat::Json, NAME, &lines.text);
    loaded.map(|loaded| of_edits(loaded, &lines, edits)).map_err(|diagnostics| {
        let errors = diagnostics.items.into_iter().filter(|item| item.severity == Severity::Error);
        errors.map(|item| mistake(&item, &lines, edits)).collect()
    })
}

fn written(tables: &Map<String, Value>) -> Lines {
    let mut lines = Lines::default();
    let list = |key: &str| tables.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    lines.line(None, "{");
    lines.objects("ports", list("ports"), |port| Object::Port(name(port, "name")));
    lines.objects("hosts", list("hosts"), |host| Object::Host(name(host, "nqn")));
    lines.objects("drives", list("drives"), |drive| Object::Drive(name(drive, "name")));
    lines.subsystems(list("subsystems"));
    let target = tables.get("target").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    lines.line(Some(Object::Target), &format!("\"target\": {target}"));
    lines.line(None, "}");
    lines
}

fn name(table: &Value, key: &str) -> String {
    table.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Keeps the remarks about what was edited, which name the edit instead of a place: the others were
/// there before.
fn of_edits(mut loaded: Loaded, lines: &Lines, edits: &Edits) -> Loaded {
    let remarks = std::mem::take(&mut loaded.remarks.items).into_iter().filter_map(|remark| {
        let object = lines.objects.get(remark.line.saturating_sub(1))?.as_ref()?;
        let at = edits.edits.iter().position(|edit| is_about(edit, object))?;
        let excerpt = edits.edits.get(at)?.to_string();
        Some(Diagnostic {
            line: at + 1,
            column: 1,
            message: format!("{object}: {}", remark.message),
            help: remark.help.as_deref().map(without_lines),
            mark: (0, excerpt.chars().count().max(1)),
            excerpt,
            ..remark
        })
    });
    loaded.remarks.items = remarks.collect();
    loaded
}

fn mistake(item: &Diagnostic, lines: &Lines, edits: &Edits) -> Mistake {
    let object = lines.objects.get(item.line.saturating_sub(1)).cloned().flatten();
    let change = object.as_ref().and_then(|object| edits.edits.iter().position(|edit| is_about(edit, object)));
    let object = object.map(|object| object.to_string()).unwrap_or_default();
    let advice = item.help.as_deref().map(without_lines).unwrap_or_default();
    Mistake { change, ..Mistake::new(MistakeKind::Value, &object, item.message.clone(), advice) }
}

/// `...; line 11 has it first` refers to a file, and there is none.
fn without_lines(help: &str) -> String {
    let rest = help.strip_prefix("line ").and_then(|rest| rest.split_once(" has it first; "));
    rest.map_or(help, |(_, rest)| rest).split("; line ").next().unwrap_or_default().to_owned()
}

/// Whether an edit adds or changes an object, which may have got its name by that.
fn is_about(edit: &Edit, object: &Object) -> bool {
    let has = |keys: &super::Keys, key: &str, value: &str| keys.get(key).and_then(Value::as_str) == Some(value);
    match (edit, object) {
        (Edit::AddPort { keys, .. }, Object::Port(name)) => has(keys, "name", name) || has(keys, "listen", name),
        (Edit::AddHost { keys, .. }, Object::Host(nqn)) => has(keys, "nqn", nqn),
        (Edit::AddSubsystem { keys }, Object::Subsystem(nqn) | Object::Namespace { subsystem: nqn, .. }) => {
            has(keys, "nqn", nqn)
        }
        (Edit::AddNamespace { subsystem, .. }, Object::Subsystem(nqn) | Object::Namespace { subsystem: nqn, .. }) => {
            subsystem == nqn
        }
        (Edit::Resize { subsystem, nsid, .. }, Object::Namespace { subsystem: nqn, nsid: other }) => {
            subsystem == nqn && nsid == other
        }
        (Edit::Set { object: changed, keys, .. }, object) => {
            changed == object
                || changed.kind() == object.kind()
                    && match object {
                        Object::Port(name) | Object::Drive(name) => has(keys, "name", name),
                        Object::Host(nqn) | Object::Subsystem(nqn) => has(keys, "nqn", nqn),
                        Object::Namespace { nsid, .. } => keys.get("nsid") == Some(&Value::from(*nsid)),
                        Object::Target => false,
                    }
        }
        (Edit::Enable { object: changed } | Edit::Disable { object: changed }, object) => changed == object,
        _ => false,
    }
}
