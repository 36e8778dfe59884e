//! A matrix as coloured squares, with the scale of colours below. A colour is one hue, the fuller the larger the entry: it works on white and on black.

use super::Heat;
use super::scale::label;
use super::svg::{Anchor, Drawing, cut, escape, num, text, width};
use crate::estimate::short;

/// Width of the drawing.
pub const WIDTH: f64 = 200.0;
/// Size of the letters.
const LETTERS: f64 = 11.5;
/// Squares at most, either way: of larger matrices a square shows several entries.
const MOST: usize = 32;
/// Squares of the scale of colours.
const STEPS: usize = 24;

/// A square, and the entries that it stands for.
fn entry(heat: &Heat, block: usize, row: usize, column: usize) -> f64 {
    let (rows, columns) = (heat.values.nrows(), heat.values.ncols());
    let mut largest = f64::NAN;
    for i in block * row..(block * (row + 1)).min(rows) {
        for j in block * column..(block * (column + 1)).min(columns) {
            let value = heat.values[(i, j)];
            if value.is_finite() && (largest.is_nan() || value.abs() > largest.abs()) {
                largest = value;
            }
        }
    }
    largest
}

/// Class and strength of a value's colour.
fn colour(value: f64, full: f64, signed: bool) -> (&'static str, f64) {
    if !value.is_finite() {
        return ("void", 1.0);
    }
    let class = if !signed {
        "seq"
    } else if value < 0.0 {
        "neg"
    } else {
        "pos"
    };
    (class, (value.abs() / full).min(1.0))
}

/// Draws it. `signed`: whether there are entries below 0, here or in a panel that it is compared with.
pub fn draw(heat: &Heat, signed: bool) -> Drawing {
    let (rows, columns) = (heat.values.nrows(), heat.values.ncols());
    if rows == 0 || columns == 0 {
        let words = text("muted", 0.5 * WIDTH, 40.0, LETTERS, Anchor::Middle, "no data");
        return Drawing { width: WIDTH, height: 80.0, body: words };
    }
    let block = rows.max(columns).div_ceil(MOST);
    let (down, across) = (rows.div_ceil(block), columns.div_ceil(block));
    let (left, top) = (width(&rows.to_string(), LETTERS).max(14.0) + 6.0, 4.0);
    let wide = WIDTH - left - 6.0;
    let tall = (wide * down as f64 / across as f64).clamp(24.0, 1.5 * wide);
    let (cell_w, cell_h) = (wide / across as f64, tall / down as f64);
    let full = if heat.full.is_finite() && heat.full > 0.0 { heat.full } else { 1.0 };

    let (size_w, size_h) = (num(cell_w), num(cell_h));
    let mut body =
        format!("<rect class=\"paper\" x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{}\"/>", num(left), num(wide), num(tall));
    // Without soft edges, between which the paper would show.
    body += "<g shape-rendering=\"crispEdges\">";
    for i in 0..down {
        for j in 0..across {
            let value = entry(heat, block, i, j);
            let (class, strength) = colour(value, full, signed);
            let (x, y) = (num(left + j as f64 * cell_w), num(top + i as f64 * cell_h));
            let told = escape(&told(heat, block, i, j, value));
            body += &format!(
                "<rect class=\"v {class}\" x=\"{x}\" y=\"{y}\" width=\"{size_w}\" height=\"{size_h}\" fill-opacity=\"{}\"><title>{told}</title></rect>",
                num(strength)
            );
        }
    }
    body += "</g>";
    body += &format!("<rect class=\"frame\" x=\"{}\" y=\"{top}\" width=\"{}\" height=\"{}\"/>", num(left), num(wide), num(tall));
    // The first and the last of rows and columns, and what they are.
    let foot = top + tall;
    let side = |x: f64, y: f64, anchor, words: &str| {
        let (cx, cy) = (num(x), num(y));
        format!("<g transform=\"rotate(-90 {cx} {cy})\">{}</g>", text("muted", x, y, LETTERS, anchor, &escape(words)))
    };
    body += &text("muted", left - 4.0, top + 10.0, LETTERS, Anchor::End, "1");
    body += &text("muted", left + 1.0, foot + 13.0, LETTERS, Anchor::Start, "1");
    body += &text("muted", WIDTH - 6.0, foot + 13.0, LETTERS, Anchor::End, &columns.to_string());
    body += &text(
        "muted",
        left + 0.5 * wide,
        foot + 13.0,
        LETTERS,
        Anchor::Middle,
        &escape(&cut(&heat.columns, LETTERS, wide - 50.0)),
    );
    if tall > 60.0 {
        body += &text("muted", left - 4.0, foot, LETTERS, Anchor::End, &rows.to_string());
        body += &side(left - 6.0, top + 0.5 * tall, Anchor::Middle, &cut(&heat.rows, LETTERS, tall - 44.0));
    }
    let height = scale(&mut body, full, signed, (left, wide), foot + 22.0);
    Drawing { width: WIDTH, height, body }
}

/// The scale of colours; where it ends below.
fn scale(body: &mut String, full: f64, signed: bool, (left, wide): (f64, f64), top: f64) -> f64 {
    let low = if signed { -full } else { 0.0 };
    let step = wide / STEPS as f64;
    *body += &format!("<rect class=\"paper\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\"/>", num(left), num(top), num(wide));
    *body += "<g shape-rendering=\"crispEdges\">";
    for i in 0..STEPS {
        let value = low + (full - low) * (i as f64 + 0.5) / STEPS as f64;
        let (class, strength) = colour(value, full, signed);
        *body += &format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\" fill-opacity=\"{}\"/>",
            num(left + i as f64 * step),
            num(top),
            num(step),
            num(strength)
        );
    }
    *body += "</g>";
    *body += &format!("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\"/>", num(left), num(top), num(wide));
    let foot = top + 20.0;
    *body += &label(low).draw("muted", left, foot, LETTERS, Anchor::Start);
    *body += &label(full).draw("muted", left + wide, foot, LETTERS, Anchor::End);
    if signed {
        *body += &label(0.0).draw("muted", left + 0.5 * wide, foot, LETTERS, Anchor::Middle);
    }
    foot + 6.0
}

/// What is said under the pointer.
fn told(heat: &Heat, block: usize, i: usize, j: usize, value: f64) -> String {
    let value = if value.is_finite() { short(value) } else { "none".into() };
    if block == 1 {
        return format!("row {}, column {}: {value}", i + 1, j + 1);
    }
    let upto = |at: usize, end: usize| (block * (at + 1)).min(end);
    let (rows, columns) = (upto(i, heat.values.nrows()), upto(j, heat.values.ncols()));
    format!("largest of rows {} to {rows}, columns {} to {columns}: {value}", block * i + 1, block * j + 1)
}

/// Whether squares show several entries.
pub fn coarse(heat: &Heat) -> bool {
    heat.values.nrows().max(heat.values.ncols()) > MOST
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnlearn::linalg::Mat;

    fn heat(values: Mat<f64>) -> Heat {
        Heat { title: "t".into(), values, rows: "queries".into(), columns: "keys".into(), full: 2.0 }
    }

    #[test]
    fn colours_follow_the_entries() {
        let body = draw(&heat(Mat::from_fn(2, 2, |i, j| [[1.0, -2.0], [f64::NAN, 9.0]][i][j])), true).body;
        let cells: Vec<&str> = body.split("class=\"v ").skip(1).collect();
        for (cell, (class, strength, value)) in
            cells.iter().zip([("pos", "0.5", "1.00"), ("neg", "1", "−2.00"), ("void", "1", "none"), ("pos", "1", "9.00")])
        {
            assert!(cell.starts_with(class) && cell.contains(&format!("fill-opacity=\"{strength}\"")), "{cell}");
            assert!(cell.contains(&format!(": {value}</title>")), "{cell}");
        }
    }

    /// A large matrix is drawn with few squares, which show what is largest.
    #[test]
    fn large_matrices_are_gathered() {
        let mut values = Mat::zeros(70, 50);
        values[(69, 49)] = -5.0;
        values[(0, 1)] = 3.0;
        let heat = heat(values);
        let body = draw(&heat, true).body;
        assert_eq!(body.matches("class=\"v ").count(), 24 * 17);
        assert!(
            body.contains("largest of rows 70 to 70, columns 49 to 50: −5.00") && body.contains("columns 1 to 3: 3.00"),
            "{body}"
        );
        assert!(coarse(&heat) && draw(&self::heat(Mat::zeros(0, 3)), false).body.contains("no data"));
    }
}
