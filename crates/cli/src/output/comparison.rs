//! The view of a comparison of two targets.

use ebof_manage::api::compare::{Finding, Grade, TargetComparison};

use super::View;
use super::json::Object;
use super::text::safe;

/// What two targets contradict each other in.
pub(crate) struct ShownComparison {
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) found: TargetComparison,
}

impl View for ShownComparison {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("A: {}\nB: {}\n", safe(&self.a), safe(&self.b));
        for subsystem in &self.found.subsystems {
            let own: Vec<_> = self.found.findings.iter().filter(|finding| finding.subsystem == *subsystem).collect();
            let nothing = if own.is_empty() { ": nothing to say" } else { "" };
            text += &format!("\n{}{nothing}\n", safe(subsystem));
            own.into_iter().for_each(|finding| text += &lines(finding));
        }
        let counts = Grade::ALL.map(|grade| (grade, self.found.count(grade)));
        let words = counts.map(|(grade, count)| match (grade, count) {
            (Grade::Contradiction, 1) => "1 contradiction".to_owned(),
            (Grade::Contradiction, _) => format!("{count} contradictions"),
            (Grade::Unknown, _) => format!("{count} to be looked at"),
            (Grade::Note, 1) => "1 note".to_owned(),
            (Grade::Note, _) => format!("{count} notes"),
        });
        text + &format!("\n{}\n", words.join(", "))
    }

    fn json(&self, _verbose: bool) -> Object {
        let counts = Grade::ALL
            .into_iter()
            .fold(Object::new(), |object, grade| object.with(grade.name(), self.found.count(grade) as u64));
        Object::document("target-compare", 1)
            .with("a", self.a.as_str())
            .with("b", self.b.as_str())
            .with("subsystems", serde_json::to_value(&self.found.subsystems).unwrap_or_default())
            .with("findings", serde_json::to_value(&self.found.findings).unwrap_or_default())
            .with("counts", counts)
    }
}

fn lines(finding: &Finding) -> String {
    let Finding { grade, object, message, a, b, advice, .. } = finding;
    let object = if object.is_empty() { String::new() } else { format!("{}: ", safe(object)) };
    let mut text = format!("  {grade}: {object}{}\n", safe(message));
    if a.is_some() || b.is_some() {
        let value = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), safe);
        text += &format!("    A: {}\n    B: {}\n", value(a), value(b));
    }
    text + &format!("    to do: {}\n", safe(advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_both_values_and_what_to_do() {
        let finding = Finding {
            kind: "serial",
            grade: Grade::Contradiction,
            subsystem: "nqn.2014-08.org.example:disks".to_owned(),
            object: String::new(),
            message: "the serial numbers differ".to_owned(),
            a: Some("ONE\u{1b}".to_owned()),
            b: None,
            advice: "set `serial`".to_owned(),
        };
        let nqns = ["nqn.2014-08.org.example:disks", "nqn.2014-08.org.example:more"].map(str::to_owned).to_vec();
        let found = TargetComparison { subsystems: nqns, findings: vec![finding] };
        let shown = ShownComparison { a: "a.toml".to_owned(), b: "b.toml".to_owned(), found };
        let text = shown.text(false);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("contradiction: the serial numbers differ\n    A: ONE") && text.contains("    B: -\n"));
        assert!(text.contains("example:more: nothing to say"), "{text}");
        assert!(text.ends_with("\n1 contradiction, 0 to be looked at, 0 notes\n"), "{text}");
        let json = shown.json(false).to_text().unwrap();
        assert!(json.contains("\"schema\": \"ebof/target-compare/1\"") && json.contains("\"b\": null"), "{json}");
    }
}
