//! Pictures: what they show, apart from how they are drawn.
//!
//! A [`Figure`] has one or more panels side by side, of charts or of heat maps. It is drawn as SVG, once as a file of its own and once for the report,
//! where colours follow the page and values show under the pointer.

mod chart;
mod heat;
mod legend;
pub mod phases;
mod scale;
mod sheet;
mod style;
mod svg;

use crate::estimate::Estimate;
use attnlearn::linalg::Mat;
use serde::Serialize;
use style::Styles;
use svg::Drawing;

/// Width of a chart on a page, in units of the drawing: at this width, letters have their usual size.
const WIDTH: f64 = 360.0;

/// A picture with its caption.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Stem of its file: letters, digits and `-`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// What to see in it.
    pub caption: String,
    /// Side by side, or one below the other where there is no room.
    pub panels: Vec<Panel>,
}

/// A part of a figure.
#[derive(Clone, Debug)]
pub enum Panel {
    /// Numbers against numbers.
    Chart(Chart),
    /// A matrix.
    Heat(Heat),
}

/// Numbers against numbers.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Heading of the panel; may be empty where there is one.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Lines.
    pub series: Vec<Series>,
}

/// An axis; its ends are those of the data.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// How numbers are laid out.
    pub scale: Scale,
}

/// How numbers are laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far.
    Linear,
    /// Equal ratios are equally far; numbers that are not positive are left out.
    Log,
    /// `0, 1, 2, …` have names.
    Names(Vec<String>),
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// What it looks like.
    pub look: Look,
    /// From left to right.
    pub points: Vec<Point>,
}

/// What a series looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Measured: dots with error bars, joined.
    Line,
    /// Measured: dots with error bars.
    Dots,
    /// Not measured: a dashed line, what theory says.
    Theory,
}

/// A point of a chart.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much; ends that are not finite have no bar.
    pub y: Estimate,
    /// More to say under the pointer; may be empty.
    pub note: String,
}

/// A matrix as colours: blue below 0, red above, or the darker the larger.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Heading of the panel.
    pub title: String,
    /// Its entries.
    pub values: Mat<f64>,
    /// What rows are; may be empty.
    pub rows: String,
    /// What columns are; may be empty.
    pub columns: String,
    /// The entry that has the full colour; panels that are to be compared have the same.
    pub full: f64,
}

impl Axis {
    /// Equal differences are equally far.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// Equal ratios are equally far.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    /// Names at 0, 1, 2, ….
    pub fn names(label: impl Into<String>, names: &[impl AsRef<str>]) -> Self {
        Self { label: label.into(), scale: Scale::Names(names.iter().map(|name| name.as_ref().to_owned()).collect()) }
    }
}

impl Series {
    /// Measured numbers.
    pub fn new(label: impl Into<String>, points: impl IntoIterator<Item = (f64, Estimate)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, note: String::new() }).collect();
        Self { label: label.into(), look: Look::Line, points }
    }

    /// What theory says.
    pub fn theory(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let exact = |(x, y)| Point { x, y: Estimate::exact(y), note: String::new() };
        Self { label: label.into(), look: Look::Theory, points: points.into_iter().map(exact).collect() }
    }
}

impl Heat {
    /// A matrix whose largest entry has the full colour.
    pub fn new(title: impl Into<String>, values: Mat<f64>) -> Self {
        let full = largest(&values);
        Self { title: title.into(), values, rows: String::new(), columns: String::new(), full }
    }
}

/// The largest size of an entry that is finite.
fn largest(values: &Mat<f64>) -> f64 {
    let entries = values.col_iter().flat_map(|column| column.iter());
    entries.filter(|value| value.is_finite()).fold(0.0, |most, value| value.abs().max(most))
}

/// A figure for a page.
#[derive(Clone, Debug, Serialize)]
pub struct Inline {
    /// Its panels.
    pub panels: Vec<InlinePanel>,
    /// Legend of all panels, where they share one.
    pub legend: Vec<Entry>,
    /// Panels side by side where there is room for all.
    pub columns: usize,
    /// Whether all panels are heat maps, which are narrower.
    pub heat: bool,
}

/// A panel for a page.
#[derive(Clone, Debug, Serialize)]
pub struct InlinePanel {
    /// Heading; may be empty.
    pub title: String,
    /// The drawing.
    pub svg: String,
    /// Legend, where panels differ in it.
    pub legend: Vec<Entry>,
}

/// An entry of a legend.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Name of the series.
    pub label: String,
    /// Its mark, as a drawing.
    pub swatch: String,
}

impl Panel {
    /// The title, with what has to be said about it.
    fn heading(&self) -> String {
        match self {
            Self::Chart(chart) => chart.title.clone(),
            Self::Heat(heat) if heat::coarse(heat) => format!("{} (largest entries of blocks)", heat.title),
            Self::Heat(heat) => heat.title.clone(),
        }
    }

    /// What it shows, for those who do not see it.
    fn words(&self) -> String {
        match self {
            Self::Heat(heat) => format!("heat map of a {} by {} matrix", heat.values.nrows(), heat.values.ncols()),
            Self::Chart(chart) => {
                let labels: Vec<&str> =
                    chart.series.iter().map(|series| series.label.as_str()).filter(|label| !label.is_empty()).collect();
                let of = if labels.is_empty() { String::new() } else { format!(": {}", labels.join(", ")) };
                format!("{} against {}{of}", chart.y.label, chart.x.label)
            }
        }
    }

    fn draw(&self, styles: &Styles, width: f64, signed: bool) -> Drawing {
        match self {
            Self::Chart(chart) => chart::draw(chart, styles, width),
            Self::Heat(heat) => heat::draw(heat, signed),
        }
    }
}

impl Figure {
    /// The figure as an SVG file that needs nothing else.
    pub fn file(&self) -> String {
        sheet::draw(self)
    }

    /// The figure for a page: colours are those of the page's style sheet, and every mark has its value as its title.
    pub fn inline(&self) -> Inline {
        let styles = Styles::of(&self.panels);
        let shared = legend::shared(&self.panels, &styles);
        let entries = |keys: &[legend::Key]| {
            keys.iter().map(|key| Entry { label: key.label.clone(), swatch: key.swatch() }).collect::<Vec<_>>()
        };
        let panel = |(panel, styles): (&Panel, &Styles)| {
            let drawing = panel.draw(styles, WIDTH, self.signed());
            let title = panel.heading();
            let name: Vec<String> =
                [self.title.clone(), title.clone(), panel.words()].into_iter().filter(|w| !w.is_empty()).collect();
            let [w, h] = [drawing.width, drawing.height].map(svg::num);
            let svg = format!(
                "<svg class=\"panel\" viewBox=\"0 0 {w} {h}\" role=\"img\" tabindex=\"0\" aria-label=\"{}\">{}</svg>",
                svg::escape(&name.join(". ")),
                drawing.body
            );
            let legend = if shared.is_some() { Vec::new() } else { entries(&legend::keys(panel, styles)) };
            InlinePanel { title, svg, legend }
        };
        Inline {
            panels: self.panels.iter().zip(&styles).map(panel).collect(),
            legend: shared.as_deref().map(entries).unwrap_or_default(),
            columns: self.columns(),
            heat: self.all_heat(),
        }
    }

    fn all_heat(&self) -> bool {
        self.panels.iter().all(|panel| matches!(panel, Panel::Heat(_)))
    }

    /// Panels side by side where there is room.
    fn columns(&self) -> usize {
        match (self.panels.len(), self.all_heat()) {
            (n, true) => n.clamp(1, 4),
            (4, false) => 2,
            (n, false) => n.clamp(1, 3),
        }
    }

    /// Whether a heat map has entries below 0: then all have colours for both signs.
    fn signed(&self) -> bool {
        self.panels.iter().any(|panel| match panel {
            Panel::Heat(heat) => heat.values.col_iter().any(|column| column.iter().any(|value| *value < 0.0)),
            Panel::Chart(_) => false,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;

    /// Figures of every kind, with labels that could break the markup.
    fn figures() -> Vec<Figure> {
        let line = |label: &str| {
            let point =
                |i: i32| (10_f64.powi(i), Estimate { value: 0.5_f64.powi(i), low: 0.4_f64.powi(i), high: 0.7_f64.powi(i) });
            Series::new(label, (0..5).map(point))
        };
        let chart = |x: Axis, y: Axis| {
            let series = vec![line("a<b & \"c\""), line("ReLU, 'd'"), Series::theory("n⁻¹", [(1.0, 1.0), (1e4, 1e-4)])];
            Panel::Chart(Chart { title: "error <&\"> of W".into(), x, y, series })
        };
        let heat = |n: usize| Panel::Heat(Heat::new("Θ", Mat::from_fn(n, n, |i, j| i as f64 - j as f64)));
        let figure =
            |panels| Figure { name: "f".into(), title: "a < b & \"c\"".into(), caption: "see <that> & \"this\"".into(), panels };
        let names = Axis::names("model <&>", &["first", "a rather long name & more", "permutation-like-teachers-of-all-kinds"]);
        vec![
            figure(vec![chart(Axis::log("n"), Axis::log("error"))]),
            figure(vec![chart(Axis::linear("n"), Axis::linear("error")), chart(names, Axis::linear("error")), heat(3)]),
            figure((1..7).map(heat).collect()),
            figure(vec![]),
        ]
    }

    #[test]
    fn files_are_well_formed_and_say_what_they_show() {
        for figure in figures() {
            let file = figure.file();
            let document = roxmltree::Document::parse(&file).unwrap();
            let text: String = document.descendants().filter(roxmltree::Node::is_text).filter_map(|node| node.text()).collect();
            assert!(text.contains(&figure.title) && text.contains(&figure.caption));
            assert!(!file.contains("NaN") && !file.contains("href") && !file.contains("url("));
            assert_eq!(file.matches("http").count(), 1, "the name space alone");
            assert_eq!(file, figure.file());
        }
    }

    #[test]
    fn panels_on_a_page_are_well_formed_and_share_a_legend_where_they_can() {
        for figure in figures() {
            let inline = figure.inline();
            assert_eq!(inline.panels.len(), figure.panels.len());
            for panel in &inline.panels {
                let document = roxmltree::Document::parse(&panel.svg).unwrap();
                assert!(document.root_element().attribute("aria-label").unwrap().contains(&figure.title));
                assert!(panel.legend.is_empty());
            }
            let charts = figure.panels.iter().any(|panel| matches!(panel, Panel::Chart(_)));
            assert_eq!(inline.legend.len(), if charts { 3 } else { 0 });
        }
        let mut figure = figures().swap_remove(1);
        if let Panel::Chart(chart) = &mut figure.panels[0] {
            chart.series.pop();
        }
        let inline = figure.inline();
        assert_eq!((inline.legend.len(), inline.panels[0].legend.len(), inline.panels[1].legend.len()), (0, 2, 3));
    }
}
