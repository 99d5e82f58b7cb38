//! The OpenAPI document (DSP0266, "OpenAPI"): every address with its methods. Types are references
//! to DMTF's and SNIA's schemas.

use std::fmt::Write as _;

use http::Method;

use super::published;
use crate::place::Place;
use crate::place::kinds::{KINDS, unversioned};

/// The document, as YAML.
pub(crate) fn openapi() -> String {
    let mut text = String::from(
        "openapi: 3.1.0\ninfo:\n  title: ebof, a Redfish service\n  version: '1.0'\n  description: |-\n    \
         The management of a target. Types are described at redfish.dmtf.org.\nservers:\n- url: /\npaths:\n",
    );
    for (pattern, place) in Place::patterns() {
        path(&mut text, &pattern, &place);
    }
    text.push_str(
        "components:\n  securitySchemes:\n    BasicAuth:\n      type: http\n      scheme: basic\n    SessionAuth:\n      \
         type: apiKey\n      in: header\n      name: X-Auth-Token\n",
    );
    text
}

fn path(text: &mut String, pattern: &str, place: &Place) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "  /redfish/v1/{pattern}:");
    for method in place.methods() {
        let _ = writeln!(text, "    {}:", method.as_str().to_lowercase());
        parameters(text, pattern);
        let security = match place.privilege(method) {
            Some(_) => "\n      - BasicAuth: []\n      - SessionAuth: []",
            None => " []",
        };
        let _ = writeln!(text, "      security:{security}");
        if *method == Method::POST || *method == Method::PATCH {
            text.push_str("      requestBody:\n        content:\n          application/json:\n            schema:\n              type: object\n");
        }
        text.push_str("      responses:\n");
        match schema(place.kind()).filter(|_| *method == Method::GET) {
            Some(uri) => {
                let _ = write!(
                    text,
                    "        '200':\n          description: The resource\n          content:\n            \
                     application/json:\n              schema:\n                $ref: {uri}\n"
                );
            }
            None => text.push_str("        '2XX':\n          description: It is done, or has begun\n"),
        }
        text.push_str("        default:\n          description: Why not\n");
    }
}

/// The parts of the path that are not fixed.
fn parameters(text: &mut String, pattern: &str) {
    let names: Vec<&str> = pattern.split('/').filter_map(|one| one.strip_prefix('{')?.strip_suffix('}')).collect();
    if names.is_empty() {
        return;
    }
    text.push_str("      parameters:\n");
    for name in names {
        let _ = write!(
            text,
            "      - in: path\n        name: {name}\n        required: true\n        schema:\n          type: string\n"
        );
    }
}

/// Where the schema of a type is, as YAML.
fn schema(entity: &str) -> Option<String> {
    let kind = KINDS.iter().find(|kind| unversioned(kind) == entity)?;
    let name = kind.replace('.', "_");
    Some(format!("{}{kind}.yaml#/components/schemas/{name}_{entity}", published(kind)))
}
