//! CSDL (OData 4.0), as far as tests compare resources with it.

use std::collections::BTreeMap;
use std::path::Path;

use roxmltree::{Document, Node};
use serde_json::{Map, Value};

/// The types of all namespaces, by their full name: `Drive.v1_22_0.Drive`.
#[derive(Default)]
pub(super) struct Csdl {
    types: BTreeMap<String, Type>,
    actions: BTreeMap<String, ()>,
}

#[derive(Default)]
struct Type {
    base: Option<String>,
    properties: BTreeMap<String, Property>,
    members: Option<Vec<String>>,
    underlying: Option<String>,
    is_open: bool,
}

struct Property {
    kind: String,
    is_nullable: bool,
    is_reference: bool,
    is_required: bool,
    is_writable: bool,
    /// A copy of some of a resource's properties.
    is_excerpt: bool,
}

impl Csdl {
    /// Adds the files of an archive.
    pub(super) fn add_archive(&mut self, archive: &Path) {
        let directory = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .arg("-C")
            .arg(directory.path())
            .status()
            .unwrap();
        assert!(status.success());
        self.add_directory(directory.path());
    }

    fn add_directory(&mut self, directory: &Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.add_directory(&path);
            } else if path.extension().is_some_and(|extension| extension == "xml") {
                self.add(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, text: &str) {
        let document = Document::parse(text).unwrap();
        for schema in document.descendants().filter(|node| node.tag_name().name() == "Schema") {
            let namespace = schema.attribute("Namespace").unwrap();
            for node in schema.children().filter(Node::is_element) {
                let name = format!("{namespace}.{}", node.attribute("Name").unwrap_or_default());
                match node.tag_name().name() {
                    "EntityType" | "ComplexType" | "EnumType" | "TypeDefinition" => {
                        self.types.insert(name, Type::from_node(&node));
                    }
                    "Action" => {
                        self.actions.insert(name, ());
                    }
                    _ => {}
                }
            }
        }
    }

    /// A property of a type or of what it is derived from.
    fn property(&self, kind: &str, name: &str) -> Option<&Property> {
        let own = self.types.get(kind)?;
        own.properties.get(name).or_else(|| self.property(own.base.as_ref()?, name))
    }

    fn all<'c>(&'c self, kind: &str, found: &mut BTreeMap<&'c str, &'c Property>) {
        let Some(own) = self.types.get(kind) else { return };
        if let Some(base) = &own.base {
            self.all(base, found);
        }
        found.extend(own.properties.iter().map(|(name, property)| (name.as_str(), property)));
    }

    fn is_open(&self, kind: &str) -> bool {
        let Some(own) = self.types.get(kind) else { return false };
        own.is_open || kind == "Resource.Oem"
    }

    /// What a type is in a resource of `within`: the latest version that is not later.
    fn effective(&self, kind: &str, within: &str) -> String {
        let (namespace, name) = kind.rsplit_once('.').unwrap_or(("", kind));
        let schema = namespace.split('.').next().unwrap_or_default();
        let limit = if within.split('.').next() == Some(schema) { version(within) } else { (u32::MAX, 0, 0) };
        let of = |(own, _): (&String, &Type)| {
            let (namespace, last) = own.rsplit_once('.')?;
            let is_it = last == name && namespace.split('.').next() == Some(schema) && namespace.contains(".v");
            (is_it && version(namespace) <= limit).then(|| (version(namespace), own.clone()))
        };
        // Only what is derived from has versions.
        let latest = self.types.iter().filter_map(of).max().map(|(_, own)| own);
        latest.unwrap_or_else(|| kind.to_owned())
    }

    /// Compares a resource with its type.
    pub(super) fn check(&self, uri: &str, resource: &Value, wrong: &mut Vec<String>) {
        let Some(kind) = resource["@odata.type"].as_str().map(|kind| kind.trim_start_matches('#')) else { return };
        if !self.types.contains_key(kind) {
            wrong.push(format!("{uri}: there is no type {kind}"));
            return;
        }
        if let Value::Object(object) = resource {
            self.object(uri, kind, object, wrong);
        }
    }

    /// Compares only what is of ebof's own types.
    pub(super) fn check_own(&self, uri: &str, value: &Value, wrong: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                let kind = object.get("@odata.type").and_then(Value::as_str).map(|kind| kind.trim_start_matches('#'));
                // Resources are derived from a type of DMTF's.
                if kind.is_some_and(|kind| kind.starts_with("Ebof") && !object.contains_key("@odata.id")) {
                    self.check(uri, value, wrong);
                }
                object.iter().for_each(|(name, inner)| self.check_own(&format!("{uri}/{name}"), inner, wrong));
            }
            Value::Array(list) => list.iter().for_each(|inner| self.check_own(uri, inner, wrong)),
            _ => {}
        }
    }

    /// Names of the properties of a resource that are read-only.
    pub(super) fn read_only(&self, resource: &Value) -> Vec<String> {
        let kind = resource["@odata.type"].as_str().unwrap_or_default().trim_start_matches('#');
        let Value::Object(object) = resource else { return Vec::new() };
        let is_fixed = |name: &&String| {
            let property = self.property(kind, name);
            // What is inside an object may be writable.
            property.is_some_and(|property| !property.is_writable) && !object[*name].is_object()
        };
        object.keys().filter(is_fixed).cloned().collect()
    }

    fn object(&self, at: &str, kind: &str, object: &Map<String, Value>, wrong: &mut Vec<String>) {
        for (name, value) in object {
            let at = format!("{at} {name}");
            if let Some(action) = name.strip_prefix('#') {
                if !self.actions.contains_key(action) {
                    wrong.push(format!("{at}: there is no such action"));
                }
                continue;
            }
            if name.contains('@') {
                continue;
            }
            match self.property(kind, name) {
                Some(property) => self.value(&at, kind, property, value, wrong),
                None if self.is_open(kind) => self.check(&at, value, wrong),
                None => wrong.push(format!("{at}: {kind} has no such property")),
            }
        }
        let mut all = BTreeMap::new();
        self.all(kind, &mut all);
        for (name, property) in all {
            if property.is_required && !object.contains_key(name) {
                wrong.push(format!("{at}: {kind} requires {name}"));
            }
        }
    }

    fn value(&self, at: &str, within: &str, property: &Property, value: &Value, wrong: &mut Vec<String>) {
        if value.is_null() {
            if !property.is_nullable {
                wrong.push(format!("{at}: it is null"));
            }
            return;
        }
        let list = property.kind.strip_prefix("Collection(").and_then(|kind| kind.strip_suffix(')'));
        match (list, value) {
            (Some(kind), Value::Array(list)) => {
                for one in list {
                    if property.is_excerpt {
                        self.excerpt(at, kind, one, wrong);
                        continue;
                    }
                    self.one(at, within, kind, property.is_reference, one, wrong);
                }
            }
            (Some(_), _) => wrong.push(format!("{at}: it is no list")),
            (None, _) if property.is_excerpt => self.excerpt(at, &property.kind, value, wrong),
            (None, _) => self.one(at, within, &property.kind, property.is_reference, value, wrong),
        }
    }

    fn one(&self, at: &str, within: &str, kind: &str, is_reference: bool, value: &Value, wrong: &mut Vec<String>) {
        if is_reference && value.get("@odata.id").is_some_and(|_| value.as_object().is_some_and(|it| it.len() == 1)) {
            return;
        }
        let is_it = match kind {
            "Edm.String" | "Edm.Guid" | "Edm.PrimitiveType" => value.is_string() || kind == "Edm.PrimitiveType",
            "Edm.Int64" | "Edm.Int32" | "Edm.Int16" => value.is_i64() || value.is_u64(),
            "Edm.Decimal" | "Edm.Double" | "Edm.Single" => value.is_number(),
            "Edm.Boolean" => value.is_boolean(),
            "Edm.DateTimeOffset" => value.as_str().is_some_and(|text| text.len() >= 20 && text.ends_with('Z')),
            "Edm.Duration" => value.as_str().is_some_and(|text| text.starts_with('P')),
            _ => return self.structured(at, within, kind, value, wrong),
        };
        if !is_it {
            wrong.push(format!("{at}: {value} is no {kind}"));
        }
    }

    /// A copy of a resource requires nothing, and has where it is from.
    fn excerpt(&self, at: &str, kind: &str, value: &Value, wrong: &mut Vec<String>) {
        let kind = self.effective(kind, "");
        let Value::Object(object) = value else { return wrong.push(format!("{at}: {value} is no object")) };
        for (name, value) in object {
            match self.property(&kind, name) {
                Some(property) => self.value(&format!("{at} {name}"), &kind, property, value, wrong),
                None => wrong.push(format!("{at} {name}: {kind} has no such property")),
            }
        }
    }

    fn structured(&self, at: &str, within: &str, kind: &str, value: &Value, wrong: &mut Vec<String>) {
        let own = value.get("@odata.type").and_then(Value::as_str).map(|kind| kind.trim_start_matches('#').to_owned());
        let kind = own.unwrap_or_else(|| self.effective(kind, within));
        let Some(known) = self.types.get(&kind) else {
            wrong.push(format!("{at}: there is no type {kind}"));
            return;
        };
        if let Some(members) = &known.members {
            if !value.as_str().is_some_and(|text| members.iter().any(|member| member == text)) {
                wrong.push(format!("{at}: {value} is none of {kind}"));
            }
        } else if let Some(underlying) = &known.underlying {
            self.one(at, within, underlying, false, value, wrong);
        } else if let Value::Object(object) = value {
            self.object(at, &kind, object, wrong);
        } else {
            wrong.push(format!("{at}: {value} is no object"));
        }
    }
}

/// `v1_22_0`
fn version(namespace: &str) -> (u32, u32, u32) {
    let text = namespace.split('.').find_map(|part| part.strip_prefix('v')).unwrap_or_default();
    let mut numbers = text.split('_').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

impl Type {
    fn from_node(node: &Node<'_, '_>) -> Self {
        let children = |name: &'static str| node.children().filter(move |child| child.tag_name().name() == name);
        let named = |child: Node<'_, '_>| child.attribute("Name").unwrap_or_default().to_owned();
        let properties = children("Property").chain(children("NavigationProperty"));
        let members: Vec<String> = children("Member").map(named).collect();
        let is_open =
            annotation(node, "OData.AdditionalProperties").is_some_and(|it| it.attribute("Bool") == Some("true"));
        let has_patterns = annotation(node, "Redfish.DynamicPropertyPatterns").is_some();
        let is_definition = node.tag_name().name() == "TypeDefinition";
        // A definition may have its values in an annotation; a text is accepted.
        let underlying = is_definition.then(|| node.attribute("UnderlyingType").unwrap_or("Edm.String").to_owned());
        Self {
            base: node.attribute("BaseType").map(str::to_owned),
            properties: properties.map(|child| (named(child), Property::from_node(&child))).collect(),
            members: (node.tag_name().name() == "EnumType").then_some(members),
            underlying,
            is_open: is_open || has_patterns,
        }
    }
}

impl Property {
    fn from_node(node: &Node<'_, '_>) -> Self {
        let permissions = annotation(node, "OData.Permissions");
        let text = permissions.and_then(|it| it.attribute("EnumMember").map(str::to_owned));
        let inner = permissions.and_then(|it| {
            let member = it.children().find(|child| child.tag_name().name() == "EnumMember")?;
            member.text().map(str::to_owned)
        });
        Self {
            kind: node.attribute("Type").unwrap_or_default().to_owned(),
            is_nullable: node.attribute("Nullable") != Some("false"),
            is_reference: node.tag_name().name() == "NavigationProperty",
            is_required: annotation(node, "Redfish.Required").is_some(),
            is_excerpt: annotation(node, "Redfish.ExcerptCopy").is_some(),
            is_writable: text.or(inner).is_some_and(|text| text.contains("Write")),
        }
    }
}

fn annotation<'a, 'i>(node: &Node<'a, 'i>, term: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.tag_name().name() == "Annotation" && child.attribute("Term") == Some(term))
}
