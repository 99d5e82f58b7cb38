//! The table of routes.

use super::*;

/// Each pattern with its type, and the privilege of each method; those that it has are marked.
fn table() -> String {
    let mut text = String::new();
    for (kind, pattern) in Place::patterns() {
        let place = Place::of_pattern(pattern).unwrap_or_else(|| panic!("{pattern} is no address"));
        text += &format!("/{pattern} {}\n", if kind.is_empty() { "-" } else { kind });
        for method in [Method::GET, Method::PATCH, Method::POST, Method::PUT, Method::DELETE] {
            let mark = if place.methods().contains(&method) { '*' } else { ' ' };
            let privilege = place.privilege(&method).map_or("-", Privilege::name);
            text += &format!("  {mark} {method} {privilege}\n");
        }
    }
    text
}

#[test]
fn addresses_have_these_methods_and_privileges() {
    insta::assert_snapshot!(table());
}
