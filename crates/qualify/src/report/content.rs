//! What a report consists of, before it is HTML or Markdown: both render the same content. Texts
//! are as in the document; the renderers escape them. Pictures are finished SVG.

/// A report.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// Of the document, with its state.
    pub(super) title: String,
    /// Below the title: who, when, on what.
    pub(super) facts: Vec<(String, String)>,
    /// What has to be known before anything else.
    pub(super) banners: Vec<Banner>,
    /// The outcome in words.
    pub(super) verdict: Vec<String>,
    /// Behind each heading and on each printed page: that it is a quick or a partial run.
    pub(super) tags: Vec<String>,
    pub(super) sections: Vec<Section>,
}

/// A warning at the top.
#[derive(Debug)]
pub(super) struct Banner {
    pub(super) heading: String,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Section {
    /// Unique in the report; a word.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) blocks: Vec<Item>,
}

#[derive(Debug)]
pub(super) enum Item {
    Text(String),
    /// A heading within the section.
    Heading(String),
    Grid(Grid),
    /// Pictures beside each other. Markdown has only the tables.
    Figures(Vec<Figure>),
    /// A command line.
    Code {
        caption: String,
        text: String,
    },
    List(Vec<String>),
}

#[derive(Debug)]
pub(super) struct Figure {
    pub(super) caption: String,
    /// The lines and colours: index and name. Empty if the picture says it itself.
    pub(super) legend: Vec<(usize, String)>,
    /// For a narrow place, and maybe another one for a wide place.
    pub(super) narrow: String,
    pub(super) wide: Option<String>,
}

/// The first cell of each row is its heading.
#[derive(Debug, Default)]
pub(super) struct Grid {
    pub(super) caption: String,
    pub(super) head: Vec<Head>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) text: String,
    pub(super) is_number: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    /// It needs attention; the text says so, too.
    Bad,
}

impl Grid {
    /// The heads begin with `#` above numbers.
    pub(super) fn new(caption: impl Into<String>, head: &[&str]) -> Self {
        let head = head.iter().map(|text| match text.strip_prefix('#') {
            Some(text) => Head { text: text.to_owned(), is_number: true },
            None => Head { text: (*text).to_owned(), is_number: false },
        });
        Self { caption: caption.into(), head: head.collect(), rows: Vec::new() }
    }

    /// Of names and values.
    pub(super) fn facts(caption: impl Into<String>, facts: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut table = Self::new(caption, &["", "value"]);
        table.rows.extend(facts.into_iter().map(|(name, value)| vec![name.into(), value.into()]));
        table
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    pub(super) fn strong(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Strong }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Bad }
    }
}
