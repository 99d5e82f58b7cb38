//! One or several documents, arranged for comparison: the sides (a column of a document) and the
//! steps (a phase that one or several documents have). Indices in a document are checked here.

use std::collections::HashMap;

use ebof_bench::corner::Unit;

use crate::document::{Column, ColumnResult, Document, Phase, PhaseResult, Purpose, Run};

/// The documents, their sides and their steps.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) sources: Vec<Source<'a>>,
    pub(super) sides: Vec<Pane<'a>>,
    pub(super) steps: Vec<ShownStep<'a>>,
}

/// A document, and what it is called beside others.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) document: &'a Document,
}

/// What has a bar or a line in the pictures.
#[derive(Debug)]
pub(super) struct Pane<'a> {
    pub(super) source: usize,
    pub(super) index: usize,
    pub(super) column: &'a Column,
    pub(super) label: String,
}

/// A phase, of each document that has it.
#[derive(Debug)]
pub(super) struct ShownStep<'a> {
    pub(super) phases: Vec<Option<&'a Phase>>,
    results: Vec<HashMap<usize, &'a ColumnResult>>,
    /// Of phases whose columns ran together.
    pub(super) together: Vec<Option<&'a PhaseResult>>,
}

impl<'a> View<'a> {
    pub(super) fn new(sources: Vec<Source<'a>>) -> Self {
        let sides = sources.iter().enumerate().flat_map(|(source, of)| {
            of.document.columns.iter().enumerate().map(move |(index, column)| {
                let label = of.name.map_or_else(|| column.label.clone(), |name| format!("{name}: {}", column.label));
                Pane { source, index, column, label }
            })
        });
        Self { sides: sides.collect(), steps: steps(&sources), sources }
    }

    pub(super) fn is_single(&self) -> bool {
        self.sources.len() == 1
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = &'a Document> + '_ {
        self.sources.iter().map(|source| source.document)
    }

    /// The steps that measure.
    pub(super) fn measured(&self) -> impl Iterator<Item = &ShownStep<'a>> {
        self.steps.iter().filter(|step| step.phase().purpose == Purpose::Measure)
    }

    /// The results of a step, with the index of their side.
    pub(super) fn results<'s>(
        &'s self,
        step: &'s ShownStep<'a>,
    ) -> impl Iterator<Item = (usize, &'s Pane<'a>, &'a ColumnResult)> + 's {
        let sides = self.sides.iter().enumerate();
        sides.filter_map(|(look, side)| Some((look, side, step.result(side)?)))
    }

    /// The side that the ratios of this one refer to.
    pub(super) fn base(&self, side: &Pane<'_>) -> Option<&Pane<'a>> {
        let base = side.column.base?;
        self.sides.iter().find(|other| other.source == side.source && other.index == base && base != side.index)
    }

    /// The name of a source in front of a text about it.
    pub(super) fn named(&self, source: usize, text: &str) -> String {
        match self.sources.get(source).and_then(|source| source.name) {
            Some(name) => format!("{name}: {text}"),
            None => text.to_owned(),
        }
    }

    /// The side of a run.
    pub(super) fn side(&self, source: usize, run: &Run) -> Option<(usize, &Pane<'a>)> {
        let sides = self.sides.iter().enumerate();
        sides.into_iter().find(|(_, side)| side.source == source && side.index == run.column)
    }
}

fn steps<'a>(sources: &[Source<'a>]) -> Vec<ShownStep<'a>> {
    let count = sources.len();
    let mut steps: Vec<ShownStep<'a>> = Vec::new();
    let mut known = HashMap::new();
    for (source, of) in sources.iter().enumerate() {
        let mut results: HashMap<&str, &PhaseResult> = HashMap::new();
        for result in &of.document.results {
            results.entry(&result.phase).or_insert(result);
        }
        for phase in &of.document.phases {
            let key = (phase.id.as_str(), phase.unit.name(), phase.file_system.as_deref());
            let place = known.get(&key).copied().filter(|place: &usize| steps[*place].phases[source].is_none());
            let place = place.unwrap_or_else(|| {
                steps.push(ShownStep::new(count));
                steps.len() - 1
            });
            known.insert(key, place);
            let result = results.get(phase.id.as_str()).copied();
            steps[place].add(source, phase, result);
        }
    }
    steps
}

impl<'a> ShownStep<'a> {
    fn new(sources: usize) -> Self {
        Self { phases: vec![None; sources], results: vec![HashMap::new(); sources], together: vec![None; sources] }
    }

    fn add(&mut self, source: usize, phase: &'a Phase, result: Option<&'a PhaseResult>) {
        self.phases[source] = Some(phase);
        for of in result.iter().flat_map(|result| &result.columns) {
            self.results[source].entry(of.column).or_insert(of);
        }
        self.together[source] = result.filter(|_| phase.together);
    }

    /// That of the first document that has it.
    pub(super) fn phase(&self) -> &'a Phase {
        self.phases.iter().flatten().next().expect("a step is made for a phase")
    }

    pub(super) fn unit(&self) -> Unit {
        self.phase().unit
    }

    pub(super) fn result(&self, side: &Pane<'_>) -> Option<&'a ColumnResult> {
        self.results.get(side.source)?.get(&side.index).copied()
    }

    /// Its title, with the file system that its file is on.
    pub(super) fn title(&self) -> String {
        title(self.phase())
    }

    /// Its runs, with the index of the document.
    pub(super) fn runs(&self) -> impl Iterator<Item = (usize, &'a Run)> + Clone + '_ {
        let phases = self.phases.iter().enumerate();
        phases.flat_map(|(source, phase)| {
            phase.iter().flat_map(move |phase| phase.runs.iter().map(move |run| (source, run)))
        })
    }
}

/// The title of a phase, with the file system that its file is on.
pub(super) fn title(phase: &Phase) -> String {
    let known = |name: &&String| !phase.title.contains(name.as_str());
    let system = phase.file_system.as_ref().filter(known);
    system.map_or_else(|| phase.title.clone(), |name| format!("{} on {name}", phase.title))
}
