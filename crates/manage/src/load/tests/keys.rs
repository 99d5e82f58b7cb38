//! What is said of keys, and of what demands them; each at its place in the text.

use super::*;

/// Line and column of each remark, and its beginning.
fn places(text: &str) -> Vec<(usize, usize, String)> {
    let items = load("a.toml", text).unwrap().remarks.items;
    items.into_iter().map(|item| (item.line, item.column, item.message)).collect()
}

/// The one remark of a text is about this part of it, and begins so.
fn is_about(text: &str, part: &str, begins: &str) {
    let at = text.find(part).unwrap();
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |newline| newline + 1) + 1;
    let places = places(text);
    assert!(
        matches!(&places[..], [(l, c, message)] if (*l, *c) == (line, column) && message.starts_with(begins)),
        "{places:?}, and not {line}:{column} {begins}"
    );
}

const SUBSYSTEM: &str = "[[subsystems]]\nnqn = \"n\"\nallow_any_host = true\n";
const HOST: &str = "[[hosts]]\nnqn = \"h\"\n";

// @test output.configuration-errors
#[test]
fn remarks_about_tls_are_where_it_is_set() {
    let port = "[[ports]]\nname = \"t\"\nlisten = \"tcp://[::1]:0\"\n";
    let unnamed = "[[ports]]\nlisten = \"tcp://[::1]:4420\"\n";
    is_about(&format!("{port}{SUBSYSTEM}security = \"tls\"\n"), "\"tls\"\n", "n wants TLS, and none of its ports");
    is_about(&format!("{port}tls_records = \"kernel\"\n{SUBSYSTEM}"), "\"kernel\"", "port t has `tls_records`");
    is_about(&format!("{unnamed}tls = \"required\"\n{SUBSYSTEM}"), "\"required\"", "port tcp://[::1]:4420 has TLS");
    is_about(&format!("{port}{HOST}tls_psk = {{ file = \"/p\" }}\n{SUBSYSTEM}"), "{ file", "hosts have keys for TLS");
    let secret = format!("tls = \"allowed\"\n{HOST}dhchap_key = {{ file = \"/k\" }}\n{SUBSYSTEM}");
    let groups = format!("[target]\ndhchap_groups = [\"null\"]\n{port}{secret}");
    is_about(&groups, "[\"null\"]", "port t has TLS, and no host can get a key for it by authentication");
    let hashes = format!("[target]\ndhchap_hashes = [\"sha512\"]\n{port}{secret}");
    is_about(&hashes, "[\"sha512\"]", "port t has TLS, and no host can get a key for it by authentication");
    let direct = "[[ports]]\nname = \"d\"\nlisten = \"vfio-user:d\"\n";
    is_about(&format!("{direct}{port}{SUBSYSTEM}"), "\"vfio-user:d\"", "no subsystem has the direct port d");
    is_about(&format!("subsystems = []\n{port}"), "subsystems", "the configuration describes no subsystem");
}

#[test]
fn a_key_is_at_one_place() {
    let of = |place: &str| first_line(&format!("{HOST}dhchap_key = {place}\n{SUBSYSTEM}"));
    let of_two = of("{ file = \"/a\", credential = \"b\" }");
    assert!(of_two.ends_with("`dhchap_key` says that the key is at 2 places: `file` and `credential`"), "{of_two}");
    assert!(of("{}").ends_with("`dhchap_key` does not say where the key is"));
    // What is no place may be a key.
    let of_others = of("{ file = \"/a\", AAECAwQFBgcICQoL = 1 }");
    assert!(of_others.ends_with("`dhchap_key` has more than a place in it: `file`"), "{of_others}");
    assert!(!of("{ AAECAwQFBgcICQoL = 1, AAECAwQFBgcICQoM = 1 }").contains("AAEC"));
}

#[test]
fn hosts_that_lack_a_key_where_one_is_demanded_are_named_at_their_place() {
    let text = |security: &str, host: &str| {
        format!(
            "[[ports]]\nname = \"t\"\nlisten = \"tcp://[::1]:0\"\ntls = \"allowed\"\n\
             [[hosts]]\nnqn = \"other\"\ndhchap_key = {{ file = \"/k\" }}\ntls_psk = {{ file = \"/k\" }}\n{HOST}{host}\n\
             [[subsystems]]\nnqn = \"n\"\nallowed_hosts = [\"other\", \"h\"]\nsecurity = \"{security}\"\n"
        )
    };
    let remarks = |text: &str| load_with_keys("a.toml", text, &mut |_, _| None).unwrap().remarks.items;
    let (secret, psk) = ("dhchap_key = { file = \"/k\" }", "tls_psk = { file = \"/k\" }");
    for (security, host, lacks) in [
        ("authenticated", "", Some("`dhchap_key`")),
        ("authenticated", psk, Some("`dhchap_key`")),
        ("authenticated", secret, None),
        ("tls", "", Some("`tls_psk`")),
        ("tls", psk, None),
        // Secure channel concatenation.
        ("tls", secret, None),
        ("authenticated+tls", psk, Some("`dhchap_key`")),
        ("authenticated+tls", secret, None),
        ("anyone", "", None),
    ] {
        let text = text(security, host);
        let found = remarks(&text);
        assert_eq!(found.len(), usize::from(lacks.is_some()), "{security} {host}: {found:?}");
        let Some(lacks) = lacks else { continue };
        let begins = format!("h has no {lacks} here, and n demands one (security = \"{security}\")");
        assert!(found[0].message.starts_with(&begins), "{}", found[0].message);
        let line = text.lines().nth(found[0].line - 1).unwrap();
        assert!(line[found[0].column - 1..].starts_with("\"h\"]"), "{line}");
        // A target may have a key for it: nobody is told who does not ask.
        assert!(load("a.toml", &text).unwrap().remarks.is_empty());
    }
}

#[test]
fn what_is_found_where_keys_are_has_their_place() {
    let text =
        format!("{HOST}dhchap_key = {{ file = \"/a\" }}\ndhchap_ctrl_key = {{ credential = \"b\" }}\n{SUBSYSTEM}");
    let mut asked = Vec::new();
    let loaded = load_with_keys("a.toml", &text, &mut |key, place| {
        asked.push((key, place.clone()));
        matches!(place, KeyPlace::File(_)).then(|| KeyFinding {
            severity: Severity::Warning,
            message: "there is none".to_owned(),
            help: String::new(),
        })
    });
    let found = loaded.unwrap().remarks.items;
    assert_eq!(asked.len(), 2);
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a.toml:3:14: warning: there is none"]);
    let refused = load_with_keys("a.toml", &text, &mut |_, _| {
        Some(KeyFinding { severity: Severity::Error, message: "no key".to_owned(), help: String::new() })
    });
    assert_eq!(refused.unwrap_err().errors(), 2);
}
