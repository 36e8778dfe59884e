//! Matrices as pictures: coloured blocks where there are colours, signed digits where there are none.

use attnlearn::linalg::Mat;

/// A matrix and what to call it.
pub struct Panel<'a> {
    /// Above it.
    pub title: &'a str,
    /// The matrix.
    pub matrix: &'a Mat<f64>,
}

/// Between two matrices.
const GAP: &str = "   ";

/// From the most negative through 0 to the most positive: blue, white, red.
const PALETTE: [[f64; 3]; 7] = [
    [33.0, 102.0, 172.0],
    [103.0, 169.0, 207.0],
    [209.0, 229.0, 240.0],
    [247.0, 247.0, 247.0],
    [253.0, 219.0, 199.0],
    [239.0, 138.0, 98.0],
    [178.0, 24.0, 43.0],
];

/// The largest entry of all panels in size; 1 if they are all 0.
pub fn scale<'a>(matrices: impl IntoIterator<Item = &'a Mat<f64>>) -> f64 {
    let largest = |m: &Mat<f64>| m.norm_max();
    let scale = matrices.into_iter().map(largest).fold(0.0, f64::max);
    if scale > 0.0 { scale } else { 1.0 }
}

/// The panels side by side, one line of text a row; entries in units of `scale`, cut off at ±1.
pub fn side_by_side(panels: &[Panel], scale: f64, colour: bool) -> Vec<String> {
    let cell_width = if colour { 2 } else { 3 };
    let width = |p: &Panel| (p.matrix.ncols() * cell_width).max(p.title.chars().count());
    let rows = panels.iter().map(|p| p.matrix.nrows()).max().unwrap_or(0);
    let titles: Vec<String> = panels.iter().map(|p| format!("{:<1$}", p.title, width(p))).collect();
    let mut lines = vec![titles.join(GAP).trim_end().to_owned()];
    for i in 0..rows {
        let parts: Vec<String> = panels
            .iter()
            .map(|p| {
                let columns = if i < p.matrix.nrows() { p.matrix.ncols() } else { 0 };
                let cells: String = (0..columns).map(|j| cell(p.matrix[(i, j)] / scale, colour)).collect();
                let reset = if colour && columns > 0 { "\x1b[0m" } else { "" };
                format!("{cells}{reset}{}", " ".repeat(width(p) - columns * cell_width))
            })
            .collect();
        lines.push(parts.join(GAP).trim_end().to_owned());
    }
    lines
}

/// What the cells mean.
pub fn legend(scale: f64, colour: bool) -> String {
    if !colour {
        return format!("entries in tenths of {scale:.3}");
    }
    let ramp: String = (-6..=6).map(|i| cell(f64::from(i) / 6.0, true)).collect();
    format!("{:.3} {ramp}\x1b[0m {scale:.3}", -scale)
}

/// One entry between −1 and 1.
fn cell(value: f64, colour: bool) -> String {
    let value = value.clamp(-1.0, 1.0);
    if colour {
        let [r, g, b] = mixed(value);
        return format!("\x1b[48;2;{r};{g};{b}m  ");
    }
    let tenths = (value.abs() * 10.0).round() as u32;
    let sign = if tenths == 0 {
        ' '
    } else if value < 0.0 {
        '-'
    } else {
        '+'
    };
    match tenths {
        0 => "  ·".into(),
        10 => format!(" {sign}X"),
        digit => format!(" {sign}{digit}"),
    }
}

/// The colour of a value, mixed of its neighbours in the palette.
fn mixed(value: f64) -> [u8; 3] {
    let last = PALETTE.len() - 1;
    let place = (value + 1.0) / 2.0 * last as f64;
    let below = (place.floor() as usize).min(last - 1);
    let share = place - below as f64;
    std::array::from_fn(|c| (PALETTE[below][c] * (1.0 - share) + PALETTE[below + 1][c] * share).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_palette_diverges_from_white() {
        assert_eq!(mixed(0.0), [247, 247, 247]);
        assert_eq!(mixed(-1.0), [33, 102, 172]);
        assert_eq!(mixed(1.0), [178, 24, 43]);
    }

    #[test]
    fn without_colours_there_are_signed_digits() {
        let matrix = Mat::from_fn(2, 2, |i, j| [[1.0, -0.52], [0.0, 0.31]][i][j]);
        let lines = side_by_side(&[Panel { title: "A", matrix: &matrix }, Panel { title: "B", matrix: &matrix }], 1.0, false);
        assert_eq!(lines, ["A        B", " +X -5    +X -5", "  · +3     · +3"]);
    }

    #[test]
    fn with_colours_every_row_is_reset() {
        let matrix = Mat::from_fn(3, 3, |i, j| i as f64 - j as f64);
        let lines = side_by_side(&[Panel { title: "A", matrix: &matrix }], 2.0, true);
        assert!(lines[1..].iter().all(|line| line.ends_with("\x1b[0m") && line.matches("\x1b[48;2;").count() == 3));
    }
}
