//! Pictures: what they show, apart from how they are drawn.
//!
//! A [`Figure`] has one or more panels side by side, of charts or of heat maps. It is drawn as SVG, once as a file of its own and once for the report,
//! where colours follow the page and values show under the pointer.

use crate::stats::Estimate;
use attnlearn::linalg::Mat;

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

impl Figure {
    /// The figure as an SVG file.
    pub fn file(&self) -> String {
        String::new()
    }
}
