//! Lines between two axes: percentiles, curves, and what happened over time.

use super::svg::{Anchor, Axis, LOOKS, Scale, Svg, fit, float, round_up, text_width};
use super::text;

/// A picture of lines.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) name: String,
    pub(super) x: Scaled,
    pub(super) y: Scaled,
    pub(super) lines: Vec<Line>,
    /// Upright lines with their meaning.
    pub(super) marks: Vec<(f64, String)>,
    /// Each point is drawn, not only the line between them.
    pub(super) has_points: bool,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    pub(super) label: String,
    pub(super) scale: Scale,
    pub(super) format: fn(f64) -> String,
}

/// A line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) look: usize,
    /// It does not count, and is paler.
    pub(super) is_faint: bool,
    pub(super) points: Vec<Dot>,
}

/// A point of a line.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Beside it, if there is room.
    pub(super) label: String,
}

/// Lines of a picture, at most.
pub(super) const LINES_MAX: usize = 24;

const LEFT: f64 = 54.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 40.0;

impl Plot {
    pub(super) fn draw(&self, width: f64, height: f64, class: &str) -> String {
        let mut svg = Svg::new(width, height);
        svg.text("faint", (2.0, 13.0), Anchor::Start, &fit(&self.y.label, width / 2.0));
        let (x, y) = self.axes(width, height);
        self.draw_axes(&mut svg, &x, &y);
        self.draw_marks(&mut svg, &x, height);
        let lines = &self.lines[..self.lines.len().min(LINES_MAX)];
        for line in lines {
            line.draw(&mut svg, &x, &y);
        }
        if self.has_points {
            for line in lines {
                line.draw_points(&mut svg, self, &x, &y);
            }
        }
        if self.dots().next().is_none() {
            svg.text("", (width / 2.0, height / 2.0), Anchor::Middle, "nothing was measured");
        }
        svg.finish(&self.name, &self.description(), class)
    }

    /// The points that have a place.
    fn dots(&self) -> impl Iterator<Item = &Dot> + Clone {
        let dots = self.lines.iter().take(LINES_MAX).flat_map(|line| &line.points);
        dots.filter(|dot| self.x.scale.has(dot.x) && self.y.scale.has(dot.y))
    }

    fn axes(&self, width: f64, height: f64) -> (Axis, Axis) {
        let (from, to) = self.x.range(self.dots().map(|dot| dot.x));
        let x = Axis { scale: self.x.scale, from, to, start: LEFT, end: width - RIGHT };
        let (from, to) = self.y.range(self.dots().map(|dot| dot.y));
        let y = Axis { scale: self.y.scale, from, to, start: height - BOTTOM, end: TOP };
        (x, y)
    }

    fn draw_axes(&self, svg: &mut Svg, x: &Axis, y: &Axis) {
        for tick in y.ticks(5) {
            let at = y.place(tick);
            svg.line("grid", (x.start, at), (x.end, at));
            svg.text_if_free("faint", (x.start - 6.0, at + 4.0), Anchor::End, &(self.y.format)(tick));
        }
        svg.text("faint", ((x.start + x.end) / 2.0, svg.height - 5.0), Anchor::Middle, &self.x.label);
        let count = if x.end - x.start > 500.0 { 9 } else { 5 };
        for tick in x.ticks(count) {
            let at = x.place(tick);
            svg.line("grid", (at, y.start), (at, y.end));
            let label = (self.x.format)(tick);
            // The last one must not leave the picture.
            let middle = at.min(svg.width - text_width(&label) / 2.0);
            svg.text_if_free("faint", (middle, y.start + 16.0), Anchor::Middle, &label);
        }
        svg.line("axis", (x.start, y.start), (x.end, y.start));
        svg.line("axis", (x.start, y.start), (x.start, y.end));
    }

    fn draw_marks(&self, svg: &mut Svg, x: &Axis, height: f64) {
        for (at, what) in self.marks.iter().filter(|(at, _)| x.scale.has(*at) && *at >= x.from && *at <= x.to) {
            let at = x.place(*at);
            svg.line("mark", (at, TOP - 4.0), (at, height - BOTTOM));
            let anchor = if at > svg.width / 2.0 { Anchor::End } else { Anchor::Start };
            svg.text_if_free("", (at, TOP - 8.0), anchor, &fit(what, svg.width / 2.0 - 10.0));
        }
    }

    fn description(&self) -> String {
        let lines = self.lines.iter().take(LINES_MAX).map(|line| {
            let ends = line.points.first().zip(line.points.last());
            let ends = ends.map_or_else(String::new, |(first, last)| {
                let dot = |dot: &Dot| format!("{} at {}", (self.y.format)(dot.y), (self.x.format)(dot.x));
                format!(" from {} to {}", dot(first), dot(last))
            });
            format!("{}: {} points{ends}", line.name, line.points.len())
        });
        format!("{} over {}. {}", self.y.label, self.x.label, lines.collect::<Vec<_>>().join("; "))
    }
}

impl Scaled {
    /// From where to where an axis goes that shows these values.
    fn range(&self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let least = values.fold(f64::INFINITY, f64::min);
        match self.scale {
            Scale::Linear => (0.0, round_up(most)),
            Scale::Nines => (50.0, if most > 99.99 { 99.999 } else { 99.99 }),
            Scale::Log if least > most => (1.0, 10.0),
            // Some room, and never an empty range.
            Scale::Log => ((least / 1.25).max(f64::MIN_POSITIVE), (most * 1.25).min(f64::MAX)),
        }
    }
}

impl Line {
    fn class(&self) -> String {
        let faint = if self.is_faint { " pale" } else { "" };
        format!("curve s{}{faint}", self.look % LOOKS)
    }

    fn draw(&self, svg: &mut Svg, x: &Axis, y: &Axis) {
        let dots = self.points.iter().filter(|dot| x.scale.has(dot.x) && y.scale.has(dot.y));
        let points: Vec<_> = dots.filter(|dot| dot.x >= x.from).map(|dot| (x.place(dot.x), y.place(dot.y))).collect();
        match points.as_slice() {
            [] => {}
            // A line of one point is not seen.
            [(at, height)] => svg.path(&self.class(), &[(at - 2.0, *height), (at + 2.0, *height)]),
            points => svg.path(&self.class(), points),
        }
    }

    fn draw_points(&self, svg: &mut Svg, plot: &Plot, x: &Axis, y: &Axis) {
        let dots = self.points.iter().filter(|dot| x.scale.has(dot.x) && y.scale.has(dot.y) && dot.x >= x.from);
        for dot in dots {
            let at = (x.place(dot.x), y.place(dot.y));
            let tip = format!("{} {}: {}, {}", self.name, dot.label, (plot.x.format)(dot.x), (plot.y.format)(dot.y));
            svg.point(self.look, at, &text::plain(&tip));
            if !dot.label.is_empty() {
                let places = [(6.0, 14.0, Anchor::Start), (0.0, -8.0, Anchor::Middle), (-6.0, -6.0, Anchor::End)];
                let _ = places.into_iter().any(|(right, down, anchor)| {
                    svg.text_if_free("faint", (at.0 + right, at.1 + down), anchor, &dot.label)
                });
            }
        }
    }
}

/// At most `count` points of a long line: the means of neighbours.
pub(super) fn thinned(points: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(count.max(1)).max(1);
    let mean = |part: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| part.iter().map(of).sum::<f64>() / float(part.len());
    points.chunks(each).map(|part| (mean(part, |point| point.0), mean(part, |point| point.1))).collect()
}
