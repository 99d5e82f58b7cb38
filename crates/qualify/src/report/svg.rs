//! Pictures as SVG: elements with numbers that are always finite and texts that are always escaped,
//! the width of texts, and scales of axes with their ticks. What is drawn is the caller's.

use std::fmt::Write as _;

use super::text;

/// Colours, dashes and shapes of points, which repeat after so many.
pub(super) const LOOKS: usize = 8;

/// A picture that is being drawn. The unit is a CSS pixel at its natural size.
#[derive(Debug)]
pub(super) struct Svg {
    pub(super) width: f64,
    pub(super) height: f64,
    body: String,
    /// Where texts are: left, top, right, bottom.
    taken: Vec<[f64; 4]>,
}

/// Where a text stands at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The size of all texts.
pub(super) const FONT: f64 = 12.0;

impl Svg {
    pub(super) const fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new(), taken: Vec::new() }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (finite(from.0), finite(from.1), finite(to.0), finite(to.1));
        let _ = write!(self.body, r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#);
    }

    /// With a text that is shown under the pointer.
    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tip: &str) {
        let (x, y) = (finite(at.0), finite(at.1));
        let (width, height) = (finite(size.0.max(0.0)), finite(size.1.max(0.0)));
        let tip = text::html(tip);
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"><title>{tip}</title></rect>"#
        );
    }

    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let _ = write!(self.body, r#"<path class="{class}" d=""#);
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.body, "{}{} {}", if index == 0 { 'M' } else { 'L' }, finite(*x), finite(*y));
        }
        self.body.push_str("\"/>");
    }

    /// The point of a line, in the shape of its look; with a text that is shown under the pointer.
    pub(super) fn point(&mut self, look: usize, at: (f64, f64), tip: &str) {
        let (x, y) = (finite(at.0), finite(at.1));
        let tip = text::html(tip);
        let shape = shape(look);
        let look = look % LOOKS;
        let _ = write!(
            self.body,
            r#"<path class="point s{look}" transform="translate({x} {y})" d="{shape}"><title>{tip}</title></path>"#
        );
    }

    /// Its baseline is at `at`.
    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.taken.push(place(at, anchor, text));
        let (x, y) = (finite(at.0), finite(at.1));
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text::html(text);
        let _ = write!(self.body, r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#);
    }

    /// As [`text`](Self::text), if it covers no other and is within the picture. Whether it was
    /// drawn.
    pub(super) fn text_if_free(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) -> bool {
        let [left, top, right, bottom] = place(at, anchor, text);
        let is_inside = left >= 0.0 && right <= self.width && top >= 0.0 && bottom <= self.height;
        let is_free = self
            .taken
            .iter()
            .all(|other| right + 3.0 <= other[0] || left >= other[2] + 3.0 || bottom <= other[1] || top >= other[3]);
        if is_inside && is_free {
            self.text(class, at, anchor, text);
        }
        is_inside && is_free
    }

    /// The picture, with its name and its description for those who do not see it.
    pub(super) fn finish(self, name: &str, description: &str, class: &str) -> String {
        let (width, height) = (finite(self.width), finite(self.height));
        let (name, description) = (text::html(name), text::html(description));
        format!(
            r#"<svg class="chart {class}" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg"><title>{name}</title><desc>{description}</desc>{}</svg>"#,
            self.body
        )
    }
}

fn shape(look: usize) -> &'static str {
    const SHAPES: [&str; 4] = [
        "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z",
        "M-3-3h6v6h-6z",
        "M0-4L3.8 3h-7.6z",
        "M0-4.2L4.2 0L0 4.2L-4.2 0z",
    ];
    SHAPES[look % SHAPES.len()]
}

/// A piece of a line with its point, for a legend.
pub(super) fn swatch(look: usize) -> String {
    let (shape, look) = (shape(look), look % LOOKS);
    format!(
        r#"<svg class="swatch" width="28" height="12" viewBox="0 0 28 12" aria-hidden="true"><line class="curve s{look}" x1="1" y1="6" x2="27" y2="6"/><path class="point s{look}" transform="translate(14 6)" d="{shape}"/></svg>"#
    )
}

/// A coordinate with one digit: NaN and infinity are not drawn anywhere, but must not break the
/// picture.
fn finite(value: f64) -> f64 {
    if value.is_finite() { (value.clamp(-1e6, 1e6) * 10.0).round() / 10.0 + 0.0 } else { 0.0 }
}

/// Where a text will be.
fn place(at: (f64, f64), anchor: Anchor, text: &str) -> [f64; 4] {
    let width = text_width(text);
    let left = match anchor {
        Anchor::Start => at.0,
        Anchor::Middle => at.0 - width / 2.0,
        Anchor::End => at.0 - width,
    };
    [left, at.1 - FONT, left + width, at.1 + 3.0]
}

/// About the width of a text: rather more than less, as the font is that of the reader's system.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(char_width).sum::<f64>() * FONT
}

const fn char_width(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '!' => 0.36,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 1.0,
        'A'..='Z' => 0.76,
        other if other.is_ascii() => 0.63,
        '–' | 'µ' => 0.66,
        _ => 1.05,
    }
}

/// As much of a text as fits into a width.
pub(super) fn fit(text: &str, width: f64) -> String {
    let text = text::plain(text);
    if text_width(&text) <= width {
        return text;
    }
    let mut rest = width / FONT - char_width('…');
    let kept: String = text
        .chars()
        .take_while(|character| {
            rest -= char_width(*character);
            rest >= 0.0
        })
        .collect();
    format!("{}…", kept.trim_end())
}

/// How values become places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
    /// Percentiles: each nine takes the same room.
    Nines,
}

impl Scale {
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.max(f64::MIN_POSITIVE).log10(),
            Self::Nines => -(1.0 - value.clamp(0.0, 99.999_999) / 100.0).log10(),
        }
    }

    /// Whether it has a place for a value.
    pub(super) fn has(self, value: f64) -> bool {
        match self {
            Self::Linear => value.is_finite(),
            Self::Log => value.is_finite() && value > 0.0,
            Self::Nines => (0.0..100.0).contains(&value),
        }
    }
}

/// An axis from a smallest to a largest value, at two places of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) start: f64,
    pub(super) end: f64,
}

impl Axis {
    pub(super) fn place(&self, value: f64) -> f64 {
        let (from, to) = (self.scale.position(self.from), self.scale.position(self.to));
        let part = (self.scale.position(value) - from) / (to - from);
        self.start + part * (self.end - self.start)
    }

    /// The values that are marked, `count` at most and at least one.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        match self.scale {
            Scale::Linear => linear_ticks(self.from, self.to, count),
            Scale::Log => log_ticks(self.from, self.to, count),
            Scale::Nines => NINES.into_iter().filter(|nine| (self.from..=self.to).contains(nine)).collect(),
        }
    }
}

const NINES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let step = step(to - from, count);
    let first = (from / step).ceil();
    let ticks = (0..=count * 3).map(|index| (first + float(index)) * step);
    ticks.take_while(|tick| *tick <= to + step * 1e-6).collect()
}

/// The distance of ticks.
fn step(span: f64, count: usize) -> f64 {
    let rough = (span / float(count.max(1))).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    factor * power
}

/// The end of a linear axis that begins at 0.
pub(super) fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let step = step(value, 4);
    ((value / step).ceil() * step).min(f64::MAX)
}

/// Powers of ten; between them 2 and 5 if there is room.
fn log_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let (low, high) = (from.log10().floor(), to.log10().ceil());
    let decades = (high - low).clamp(1.0, 640.0);
    // What is seen of the decades decides how much room there is.
    let factors: &[f64] =
        if (to.log10() - from.log10()) * 3.0 <= float(count) * 1.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let stride = (decades / float(count.max(1))).ceil().max(1.0);
    let mut ticks = Vec::new();
    let mut power = low;
    while power <= high {
        let values = factors.iter().map(|factor| factor * 10_f64.powf(power));
        ticks.extend(values.filter(|tick| *tick >= from * 0.999 && *tick <= to * 1.001));
        power += stride;
    }
    ticks
}

#[expect(clippy::cast_precision_loss, reason = "counts of ticks and points are small")]
pub(super) const fn float(value: usize) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(linear_ticks(0.0, 2717.0, 5), [0.0, 1000.0, 2000.0]);
        assert_eq!(linear_ticks(0.0, 1.0, 4), [0.0, 0.5, 1.0]);
        assert_eq!(log_ticks(3.0, 300.0, 6), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(log_ticks(1.0, 1e6, 4), [1.0, 100.0, 10_000.0, 1e6]);
        assert_eq!([0.0, 0.93, 2717.0, f64::NAN].map(round_up), [1.0, 1.0, 3000.0, 1.0]);
    }

    #[test]
    fn each_nine_takes_the_same_room() {
        let axis = Axis { scale: Scale::Nines, from: 90.0, to: 99.999, start: 0.0, end: 400.0 };
        let places: Vec<_> = [90.0, 99.0, 99.9, 99.999].into_iter().map(|at| axis.place(at).round()).collect();
        assert_eq!(places, [0.0, 100.0, 200.0, 400.0]);
        assert_eq!(axis.ticks(6), [90.0, 99.0, 99.9, 99.99, 99.999]);
    }

    #[test]
    fn long_texts_are_cut_and_covered_ones_left_out() {
        assert_eq!(fit("short", 100.0), "short");
        let cut = fit("a name that is much too long", 60.0);
        assert!(cut.ends_with('…') && text_width(&cut) <= 60.0, "{cut}");
        let mut svg = Svg::new(100.0, 40.0);
        assert!(svg.text_if_free("", (10.0, 20.0), Anchor::Start, "one"));
        assert!(!svg.text_if_free("", (20.0, 20.0), Anchor::Start, "two"));
        assert!(svg.text_if_free("", (10.0, 36.0), Anchor::Start, "two"));
        assert!(!svg.text_if_free("", (90.0, 20.0), Anchor::Start, "outside"));
        assert!(svg.finish("<", "\"", "").contains("<title>&lt;</title><desc>&quot;</desc>"));
    }
}
