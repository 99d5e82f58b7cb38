//! The table of routes.

use super::route::Route;
use super::*;

/// Each row with addresses of it: with each value that its first parameter has.
fn rows() -> Vec<(&'static Route, Place)> {
    let mut all = Vec::new();
    for row in AREAS.iter().copied().flatten() {
        let values: Vec<Option<&str>> = match row.first_values() {
            [] => vec![None],
            values => values.iter().copied().map(Some).collect(),
        };
        all.extend(values.into_iter().map(|value| (row, row.example(value).1)));
    }
    all
}

/// Each pattern with its type, and the privilege of each method; those that it has are marked.
fn table() -> String {
    let mut text = String::new();
    for (pattern, place) in Place::patterns() {
        let kind = place.kind();
        text += &format!("/{pattern} {}\n", if kind.is_empty() { "-" } else { kind });
        for method in [Method::GET, Method::PATCH, Method::POST, Method::PUT, Method::DELETE] {
            let mark = if place.methods().contains(&method) { '*' } else { ' ' };
            let privilege = place.privilege(&method).map_or("-", Privilege::name);
            text += &format!("  {mark} {method} {privilege}\n");
        }
    }
    text
}

// @test redfish.addresses
#[test]
fn addresses_have_these_methods_and_privileges() {
    insta::assert_snapshot!(table());
}

// @test redfish.addresses
#[test]
fn what_is_printed_is_parsed() {
    for (row, place) in rows() {
        let path = place.to_string();
        assert_eq!(Place::parse(&path).as_ref(), Some(&place), "{path}");
        let with_slash = format!("{}/", path.trim_end_matches('/'));
        assert_eq!(Place::parse(&with_slash).as_ref(), Some(&place), "{with_slash}");
        assert_eq!(place.route().0.pattern, row.pattern, "{path} is printed by another row");
        assert!(path.ends_with(place.id()), "{path}");
        assert!(path.split('/').count() <= SEGMENTS_MAX + 3, "{path} is too long to be parsed");
    }
    let volume = Place::from(StoragePlace::Volume("a~b".to_owned(), "c".to_owned()));
    assert_eq!(volume.to_string(), "/redfish/v1/Storage/a~b/Volumes/c", "parameters are in their order");
    assert_eq!(Place::parse("/redfish/v1/Storage/a%7eb/Volumes/c/"), Some(volume));
    for path in
        ["/redfish/v1//", "/redfish/v1//redfish", "/redfish/v1/Nothing", "/redfish/v1/Fabrics/x", "/redfish/v2", "/"]
    {
        assert_eq!(Place::parse(path), None, "{path}");
    }
}

// @test redfish.addresses
#[test]
fn no_address_has_two_rows() {
    for (_, place) in rows() {
        let path = place.to_string();
        let segments: Vec<&str> = path.split('/').skip(3).collect();
        let fits: Vec<&str> = AREAS
            .iter()
            .copied()
            .flatten()
            .filter(|row| row.parse(&segments).is_some())
            .map(|row| row.pattern)
            .collect();
        let is_below = path.starts_with("/redfish/v1/");
        assert_eq!(fits.len(), usize::from(is_below), "{path}: {fits:?}");
    }
}

#[test]
fn actions_and_only_they_are_posted_to_without_being_read() {
    for (row, place) in rows() {
        let is_action = row.pattern.contains("/Actions/") || row.pattern.ends_with("/upload");
        assert_eq!(place.methods() == [Method::POST], is_action, "{place}");
        assert!(row.kind.is_empty() || place.methods().contains(&Method::GET), "{place}");
        let resource = place.conditional();
        assert!(resource.methods().contains(&Method::GET), "{place} has no resource with a tag");
        assert_eq!(resource == place, !is_action, "{place}");
    }
    // A drive may be called so.
    let volume = Place::from(StoragePlace::Volume("Actions".to_owned(), "ns1".to_owned()));
    assert_eq!(volume.conditional(), volume);
    let format = Place::from(StoragePlace::Format("Actions".to_owned(), "ns1".to_owned()));
    assert_eq!(format.conditional(), volume);
}
