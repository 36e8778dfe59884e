//! Which mark belongs to which series: never over the data, always below it.

use super::style::{Appearance, Styles};
use super::svg::{Anchor, Drawing, cut, escape, num, text, width};
use super::{Look, Panel};

/// Size of the letters.
const LETTERS: f64 = 12.0;
/// Room of a mark.
const SWATCH: f64 = 28.0;

/// An entry of the legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Name of the series.
    pub label: String,
    look: Look,
    appearance: Appearance,
}

impl Key {
    /// Line and mark, around a point.
    fn sample(&self, x: f64, y: f64) -> String {
        let mut body = String::new();
        if self.look != Look::Dots {
            let dashes = self.appearance.dashes.map_or_else(String::new, |dashes| format!(" stroke-dasharray=\"{dashes}\""));
            let path = format!("M{} {}h24", num(x - 12.0), num(y));
            body += &format!("<path class=\"{}\" d=\"{path}\" stroke-width=\"1.7\"{dashes}/>", self.appearance.line());
        }
        if self.look != Look::Theory {
            let (path, thick) = self.appearance.outline(x, y, 3.6);
            body += &format!("<path class=\"{}\" d=\"{path}\" stroke-width=\"{}\"/>", self.appearance.mark(), num(thick));
        }
        body
    }

    /// The mark as a picture of its own.
    pub fn swatch(&self) -> String {
        format!(
            "<svg class=\"swatch\" viewBox=\"0 0 28 12\" width=\"28\" height=\"12\" aria-hidden=\"true\">{}</svg>",
            self.sample(14.0, 6.0)
        )
    }
}

/// The entries of a panel; a single series without a name needs none.
pub fn keys(panel: &Panel, styles: &Styles) -> Vec<Key> {
    let Panel::Chart(chart) = panel else { return Vec::new() };
    let mut keys: Vec<Key> = Vec::new();
    for series in &chart.series {
        let key = Key { label: series.label.clone(), look: series.look, appearance: styles.get(series) };
        if !series.label.is_empty() && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// The entries that all charts share, if they do.
pub fn shared(panels: &[Panel], styles: &[Styles]) -> Option<Vec<Key>> {
    let charts = panels.iter().zip(styles).filter(|(panel, _)| matches!(panel, Panel::Chart(_)));
    let mut all = charts.map(|(panel, styles)| keys(panel, styles));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// The legend drawn, in as many lines as it needs.
pub fn draw(keys: &[Key], full: f64) -> Drawing {
    let (mut x, mut y) = (0.0, 10.0);
    let mut body = String::new();
    for key in keys {
        let label = cut(&key.label, LETTERS, full - SWATCH - 6.0);
        let wide = SWATCH + 4.0 + width(&label, LETTERS) + 14.0;
        if x > 0.0 && x + wide > full + 14.0 {
            (x, y) = (0.0, y + 18.0);
        }
        body += &key.sample(x + 14.0, y - 4.0);
        body += &text("label", x + SWATCH + 4.0, y, LETTERS, Anchor::Start, &escape(&label));
        x += wide;
    }
    Drawing { width: full, height: if keys.is_empty() { 0.0 } else { y + 6.0 }, body }
}
