//! What tells series apart: colour, shape and filling of the marks, and dashes.
//!
//! A series looks the same in every panel of a figure: its look belongs to its label. Panels that have no series in common begin anew. Colours are told apart by people who do not see some of them
//! (after Okabe and Ito, darkened to a contrast of 3 : 1 on white), and shapes say the same again. A line of theory whose label begins with that of a
//! measured series has its colour; any other is grey, with dashes of its own.

use super::svg::num;
use super::{Look, Panel, Series};
use std::collections::BTreeSet;

/// Colours, and as many shapes: with open marks there are twice as many looks.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#00815d", "#c2488f", "#8a6a00", "#26307a", "#5a5a5a", "#7a3010"];

/// Style sheet of a file: the same classes as in the report, on white.
pub fn sheet() -> String {
    let mut css = String::from(
        "text{fill:#222}.muted{fill:#555}.paper{fill:#fff}.grid{stroke:#e4e4e4}.axis{stroke:#777}.plain{stroke:#666;fill:none}\
         .pos{fill:#b2182b}.neg{fill:#2166ac}.seq{fill:#3b2e8c}.void{fill:#ddd}.frame{stroke:#777;fill:none}",
    );
    for (i, colour) in COLOURS.iter().enumerate() {
        css += &format!(
            ".l{i}{{stroke:{colour};fill:none}}.m{i}{{stroke:{colour};fill:{colour}}}.o{i}{{stroke:{colour};fill:#fff}}"
        );
    }
    css
}

/// The shapes of marks, in the order of the colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Circle,
    Square,
    Up,
    Diamond,
    Down,
    Cross,
    Plus,
    Pentagon,
}

const SHAPES: [Shape; 8] =
    [Shape::Circle, Shape::Square, Shape::Up, Shape::Diamond, Shape::Down, Shape::Cross, Shape::Plus, Shape::Pentagon];

/// Dashes of lines of theory.
const DASHES: [&str; 4] = ["6 4", "2 3", "9 3 2 3", "12 5"];

/// What a series looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// Which colour; grey if there is none.
    colour: Option<usize>,
    /// Whether marks are open.
    open: bool,
    shape: Shape,
    /// Dashes; none where it was measured.
    pub dashes: Option<&'static str>,
}

impl Appearance {
    /// Class of its lines.
    pub fn line(&self) -> String {
        self.colour.map_or_else(|| "plain".into(), |colour| format!("l{colour}"))
    }

    /// Class of its marks.
    pub fn mark(&self) -> String {
        let letter = if self.open { 'o' } else { 'm' };
        self.colour.map_or_else(|| "plain".into(), |colour| format!("{letter}{colour}"))
    }

    /// The outline of a mark of radius `r`, and how thick it is drawn.
    pub fn outline(&self, x: f64, y: f64, r: f64) -> (String, f64) {
        let corners = |points: &[(f64, f64)]| {
            let mut path = String::new();
            for (i, (dx, dy)) in points.iter().enumerate() {
                path += &format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, num(x + r * dx), num(y + r * dy));
            }
            path + "Z"
        };
        let strokes = |a: [(f64, f64); 4]| {
            let [a, b, c, d] = a.map(|(dx, dy)| format!("{} {}", num(x + r * dx), num(y + r * dy)));
            format!("M{a}L{b}M{c}L{d}")
        };
        let thin = if self.open { 1.4 } else { 0.6 };
        match self.shape {
            Shape::Circle => {
                let (left, y, r, across) = (num(x - r), num(y), num(r), num(2.0 * r));
                (format!("M{left} {y}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0 -{across} 0Z"), thin)
            }
            Shape::Square => (corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]), thin),
            Shape::Up => (corners(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]), thin),
            Shape::Down => (corners(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]), thin),
            Shape::Diamond => (corners(&[(0.0, -1.3), (1.15, 0.0), (0.0, 1.3), (-1.15, 0.0)]), thin),
            Shape::Pentagon => (corners(&[(0.0, -1.15), (1.09, -0.36), (0.68, 0.93), (-0.68, 0.93), (-1.09, -0.36)]), thin),
            Shape::Cross => (strokes([(-0.9, -0.9), (0.9, 0.9), (-0.9, 0.9), (0.9, -0.9)]), if self.open { 1.2 } else { 2.0 }),
            Shape::Plus => (strokes([(-1.15, 0.0), (1.15, 0.0), (0.0, -1.15), (0.0, 1.15)]), if self.open { 1.2 } else { 2.0 }),
        }
    }
}

/// The looks of all series of a panel.
#[derive(Clone)]
pub struct Styles {
    looks: Vec<(String, Appearance)>,
}

fn series(panels: &[Panel]) -> impl Iterator<Item = &Series> {
    panels.iter().flat_map(|panel| match panel {
        Panel::Chart(chart) => &chart.series[..],
        Panel::Heat(_) => &[],
    })
}

impl Styles {
    /// Those of every panel.
    pub fn of(panels: &[Panel]) -> Vec<Self> {
        let labels = |panel| series(std::slice::from_ref(panel)).map(|one| one.label.as_str()).collect::<BTreeSet<_>>();
        let all: Vec<BTreeSet<&str>> = panels.iter().map(labels).collect();
        if all.iter().enumerate().any(|(i, a)| all[..i].iter().any(|b| !a.is_disjoint(b))) {
            return vec![Self::together(panels); panels.len()];
        }
        panels.iter().map(|panel| Self::together(std::slice::from_ref(panel))).collect()
    }

    /// In the order in which labels appear.
    fn together(panels: &[Panel]) -> Self {
        let mut looks: Vec<(String, Appearance)> = Vec::new();
        for one in series(panels).filter(|one| one.look != Look::Theory) {
            if looks.iter().all(|(label, _)| *label != one.label) {
                let i = looks.len();
                let appearance =
                    Appearance { colour: Some(i % 8), open: (i / 8) % 2 == 1, shape: SHAPES[i % SHAPES.len()], dashes: None };
                looks.push((one.label.clone(), appearance));
            }
        }
        let measured = looks.clone();
        let mut own = 0;
        for one in series(panels).filter(|one| one.look == Look::Theory) {
            if looks[measured.len()..].iter().any(|(label, _)| *label == one.label) {
                continue;
            }
            let of = measured.iter().filter(|(label, _)| !label.is_empty() && one.label.starts_with(label.as_str()));
            let of = of.max_by_key(|(label, _)| label.len()).map(|(_, appearance)| *appearance);
            let dashes = DASHES[if of.is_some() { 0 } else { own % DASHES.len() }];
            own += usize::from(of.is_none());
            let plain = Appearance { colour: None, open: false, shape: Shape::Circle, dashes: None };
            looks.push((one.label.clone(), Appearance { dashes: Some(dashes), ..of.unwrap_or(plain) }));
        }
        Self { looks }
    }

    /// That of a series.
    pub fn get(&self, series: &Series) -> Appearance {
        let theory = series.look == Look::Theory;
        let own = self.looks.iter().find(|(label, look)| *label == series.label && look.dashes.is_some() == theory);
        own.map_or(Appearance { colour: None, open: false, shape: Shape::Circle, dashes: theory.then_some(DASHES[0]) }, |own| {
            own.1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::plot::{Axis, Chart};

    #[test]
    fn series_are_told_apart_and_keep_their_look() {
        let labels: Vec<String> = (0..16).map(|i| format!("model {}", char::from(b'a' + i))).collect();
        let one = |label: &String| Series::new(label.clone(), [(0.0, Estimate::exact(1.0))]);
        let theory = ["model b, theory", "n^-1", "n^-2"].map(|label| Series::theory(label, [(0.0, 1.0)]));
        let chart = |series| Panel::Chart(Chart { title: String::new(), x: Axis::linear("x"), y: Axis::linear("y"), series });
        let all: Vec<Series> = labels.iter().map(one).chain(theory.clone()).collect();
        let panels = [chart(vec![one(&labels[3])]), chart(all.clone())];
        let both = Styles::of(&panels);
        let styles = &both[1];
        assert_eq!(both[0].get(&all[3]), styles.get(&all[3]));
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                assert_ne!(styles.get(a), styles.get(b), "{} {}", a.label, b.label);
            }
        }
        assert_eq!(styles.get(&theory[0]).line(), styles.get(&all[1]).line());
        assert_eq!(styles.get(&theory[1]).line(), "plain");
        let apart = Styles::of(&[chart(vec![one(&labels[0])]), chart(vec![one(&labels[1])])]);
        assert_eq!(apart[0].get(&all[0]), apart[1].get(&all[1]));
    }
}
