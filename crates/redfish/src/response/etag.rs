//! Entity tags: a resource has the same one as long as it says the same.

use http::HeaderValue;
use serde_json::Value;
use uuid::Uuid;

/// The tag of a resource: strong, since it is made of the whole representation.
pub(crate) fn compute(resource: &Value) -> String {
    let text = resource.to_string();
    format!("\"{}\"", Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple())
}

/// Whether a client names a tag. A weak tag names the same resource: some clients make them weak
/// (RFC 9110 would have `If-Match` fail).
pub(crate) fn matches(named: &str, tag: &str) -> bool {
    named.strip_prefix("W/").unwrap_or(named) == tag
}

/// Whether a list of tags (`If-Match`, `If-None-Match`) has one.
pub(crate) fn list_contains(list: &HeaderValue, tag: &str) -> bool {
    let Ok(list) = list.to_str() else { return false };
    list.split(',').map(str::trim).any(|one| one == "*" || matches(one, tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tag_is_that_of_its_content() {
        let tag = compute(&json!({ "a": 1 }));
        assert_eq!(tag, compute(&json!({ "a": 1 })));
        assert_ne!(tag, compute(&json!({ "a": 2 })));
        let list = |text: &str| HeaderValue::from_str(text).unwrap();
        assert!(list_contains(&list(&format!("\"x\", {tag}")), &tag));
        assert!(list_contains(&list(&format!("W/{tag}")), &tag));
        assert!(list_contains(&list("*"), &tag));
        assert!(!list_contains(&list("\"x\""), &tag));
    }
}
