//! Bars: one line of text for each, with its value, and the bar below it, so that names of any
//! length have room. The documents' figures stand among ours, in another fill.

use super::svg::{Anchor, Axis, LOOKS, Scale, Svg, fit, float, round_up, text_width};
use super::text;

/// A bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    /// The value as text.
    pub(super) shown: String,
    pub(super) value: f64,
    /// The smallest and the largest run.
    pub(super) spread: Option<(f64, f64)>,
    /// Its colour; `None` is the figure of a document.
    pub(super) look: Option<usize>,
}

/// Bars on a common scale, which begins at 0.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
    /// A line across all bars, and what it means.
    pub(super) mark: Option<(f64, String)>,
    /// The labels of the axis.
    pub(super) format: fn(f64) -> String,
}

const WIDTH: f64 = 400.0;
const ROW: f64 = 34.0;
const BAR: f64 = 13.0;
/// Room for the text of the mark, and of the axis.
const TOP: f64 = 18.0;
const BOTTOM: f64 = 22.0;
/// Bars of a picture, at most.
pub(super) const BARS_MAX: usize = 16;

impl Bars {
    pub(super) fn draw(&self) -> String {
        let bars = &self.bars[..self.bars.len().min(BARS_MAX)];
        let top = if self.mark.is_some() { TOP } else { 2.0 };
        let bottom = top + ROW * float(bars.len().max(1));
        let mut svg = Svg::new(WIDTH, bottom + BOTTOM);
        let axis = Axis { scale: Scale::Linear, from: 0.0, to: self.end(), start: 1.0, end: WIDTH - 12.0 };
        self.axis(&mut svg, &axis, top, bottom);
        if let Some((at, what)) = self.mark.as_ref().filter(|(at, _)| axis.scale.has(*at)) {
            let x = axis.place(*at);
            svg.line("mark", (x, top - 4.0), (x, bottom));
            let anchor = if x > WIDTH / 2.0 { Anchor::End } else { Anchor::Start };
            svg.text("", (x, top - 7.0), anchor, &fit(what, WIDTH / 2.0));
        }
        for (index, bar) in bars.iter().enumerate() {
            bar.draw(&mut svg, &axis, top + ROW * float(index));
        }
        if bars.is_empty() {
            svg.text("", (1.0, top + 16.0), Anchor::Start, "nothing was measured");
        }
        svg.finish(&self.name, &self.description(), "bars")
    }

    fn end(&self) -> f64 {
        let spreads = self.bars.iter().filter_map(|bar| bar.spread).map(|(_, largest)| largest);
        let values = self.bars.iter().map(|bar| bar.value).chain(spreads).chain(self.mark.iter().map(|(at, _)| *at));
        round_up(values.filter(|value| value.is_finite()).fold(0.0, f64::max))
    }

    fn axis(&self, svg: &mut Svg, axis: &Axis, top: f64, bottom: f64) {
        for tick in axis.ticks(4) {
            let x = axis.place(tick);
            svg.line(if tick == 0.0 { "axis" } else { "grid" }, (x, top), (x, bottom));
            let anchor = if tick == 0.0 { Anchor::Start } else { Anchor::Middle };
            let label = (self.format)(tick);
            let x = if tick == 0.0 { 0.0 } else { x.min(WIDTH - text_width(&label) / 2.0) };
            svg.text_if_free("faint", (x, bottom + 15.0), anchor, &label);
        }
    }

    fn description(&self) -> String {
        let bars = self.bars.iter().take(BARS_MAX).map(|bar| format!("{}: {}", bar.label, bar.shown));
        bars.collect::<Vec<_>>().join("; ")
    }
}

impl Bar {
    fn draw(&self, svg: &mut Svg, axis: &Axis, y: f64) {
        let shown = fit(&self.shown, WIDTH / 2.0);
        let room = WIDTH - 12.0 - text_width(&shown) - 10.0;
        svg.text("", (1.0, y + 13.0), Anchor::Start, &fit(&self.label, room));
        svg.text("strong", (WIDTH - 12.0, y + 13.0), Anchor::End, &shown);
        let y = y + 18.0;
        if !axis.scale.has(self.value) {
            return;
        }
        let class = self.look.map_or_else(|| "bar reference".to_owned(), |look| format!("bar s{}", look % LOOKS));
        // A bar of nothing is still a bar.
        let length = (axis.place(self.value.max(0.0)) - axis.start).max(1.0);
        svg.rect(&class, (axis.start, y), (length, BAR), &format!("{}: {}", text::plain(&self.label), self.shown));
        let spread = self.spread.filter(|(least, most)| least.is_finite() && most.is_finite() && most > least);
        if let Some((least, most)) = spread {
            let middle = y + BAR / 2.0;
            let (left, right) = (axis.place(least.max(0.0)), axis.place(most.max(0.0)));
            for class in ["whisker halo", "whisker"] {
                svg.line(class, (left, middle), (right, middle));
                for x in [left, right] {
                    svg.line(class, (x, middle - 4.0), (x, middle + 4.0));
                }
            }
        }
    }
}
