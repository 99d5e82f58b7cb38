//! Addresses and queries that are almost right: GET answers or refuses them in words, and changes
//! nothing.

use super::addresses;
use super::mutation::Choices;
use super::populated::Populated;

const COUNT: usize = 10_000;

/// Pieces of queries, right and wrong.
const PIECES: &[&str] = &[
    "$select=",
    "$expand=",
    "$filter=",
    "$top=",
    "$skip=",
    "only",
    "$what",
    "excerpt",
    "=",
    "&",
    "Id",
    "Status/State",
    "Links/Endpoints/0",
    "*",
    ".",
    "~",
    "($levels=2)",
    "($levels=7)",
    "($levels=99999999999999999999)",
    "($levels=",
    "0",
    "2",
    "-1",
    "+1",
    "18446744073709551616",
    "1e999",
    "Name eq 'x'",
    " and ",
    " or not (",
    ")",
    "'",
    "''",
    "CapacityBytes gt 5",
    "null",
    "%27",
    "%00",
    "%ff",
    "%",
    "%zz",
    "%F0%9F%92%A9",
    "/",
    ",",
];

fn piece(choices: &Choices) -> String {
    match choices.below(30) {
        0 => "(".repeat(choices.pick(&[17, 300, 5000])),
        1 => "not%20".repeat(choices.pick(&[17, 300])),
        2 => "a,".repeat(choices.pick(&[100, 3000])),
        _ => choices.pick(PIECES).replace(' ', "%20"),
    }
}

/// An address with something changed.
fn address(choices: &Choices, all: &[String]) -> String {
    let mut path = choices.one(all).clone();
    if choices.rarely(3) {
        let at = choices.below(path.len()) + 1;
        match choices.below(5) {
            0 => path.insert_str(at, choices.pick(&["/", "//", "/..", "/.", "%2f", "%00", "x", "Members/", "-"])),
            1 => path.truncate(at),
            2 => path.make_ascii_uppercase(),
            3 => path += &"/x".repeat(choices.pick(&[1, 13, 600])),
            _ => path += choices.pick(&["/", "//", "/Members", "/Actions", "/Oem/Ebof"]),
        }
    }
    path
}

#[test]
fn queries_that_are_almost_right_are_answered_or_refused_in_words() {
    let (choices, box_) = (Choices::new(3), Populated::new());
    let all: Vec<String> = addresses(&box_).into_keys().collect();
    let before = box_.now();
    let mut refused = 0;
    for _ in 0..COUNT {
        let query: String = (0..=choices.below(6)).map(|_| piece(&choices)).collect();
        let uri = format!("{}?{query}", address(&choices, &all));
        let answer = box_.admin("GET", &uri, b"", &[]);
        let text = answer.body.to_string();
        match answer.status {
            200 | 202 | 204 => assert!(text.len() < 32 << 20, "{uri}: {} bytes", text.len()),
            400 | 404 | 405 | 414 | 501 => {
                refused += 1;
                let messages = answer.messages();
                assert!(!messages.is_empty(), "{uri}: {text}");
                let words = messages.iter().all(|(.., words)| !words.is_empty() && !words.contains(char::is_control));
                assert!(words && text.len() < 16 << 10, "{uri}: {text}");
                let resolution = answer.body["error"]["@Message.ExtendedInfo"][0]["Resolution"].as_str();
                assert!(resolution.is_some_and(|text| !text.is_empty()), "{uri}: {text}");
            }
            other => panic!("{uri}: {other} {text}"),
        }
    }
    assert!(refused > COUNT / 4 && refused < COUNT, "{refused}");
    assert_eq!(before, box_.now());
}
