//! A figure as a file of its own: heading, panels side by side as long as there is room, legends below.

use super::style::{Styles, sheet};
use super::svg::{Anchor, Drawing, escape, num, text, wrap};
use super::{Figure, Panel, legend};

/// Room around everything.
const MARGIN: f64 = 16.0;
/// Room between panels.
const GAP: f64 = 26.0;
/// Pixels of a unit, where nobody says how large the picture is to be.
const ZOOM: f64 = 1.5;

/// Moves a drawing.
fn at(x: f64, y: f64, body: &str) -> String {
    format!("<g transform=\"translate({} {})\">{body}</g>", num(x), num(y))
}

/// Lines one below the other.
fn heading(words: &[String], size: f64, leading: f64) -> Drawing {
    let line = |(i, words): (usize, &String)| {
        let style = text("label", 0.0, size + i as f64 * leading, size, Anchor::Start, &escape(words));
        style.replacen("<text", "<text font-weight=\"600\"", 1)
    };
    Drawing { width: 0.0, height: words.len() as f64 * leading, body: words.iter().enumerate().map(line).collect() }
}

/// A panel with its heading, and its legend where it has one of its own.
fn block(panel: &Panel, drawing: Drawing, styles: &Styles, own_legend: bool) -> Drawing {
    let title = heading(&wrap(&panel.heading(), 13.0, drawing.width), 13.0, 16.0);
    let space = if title.height > 0.0 { title.height + 6.0 } else { 0.0 };
    let mut body = title.body + &at(0.0, space, &drawing.body);
    let mut height = space + drawing.height;
    if own_legend {
        let keys = legend::draw(&legend::keys(panel, styles), drawing.width);
        body += &at(0.0, height + 8.0, &keys.body);
        height += keys.height + 8.0;
    }
    Drawing { width: drawing.width, height, body }
}

/// The file.
pub fn draw(figure: &Figure) -> String {
    let styles = Styles::of(&figure.panels);
    let shared = legend::shared(&figure.panels, &styles);
    let columns = figure.columns();
    let blocks: Vec<Drawing> = figure
        .panels
        .iter()
        .zip(&styles)
        .map(|(panel, styles)| {
            let width = if figure.panels.len() == 1 { 480.0 } else { 360.0 };
            block(panel, panel.draw(styles, width, figure.signed()), styles, shared.is_none())
        })
        .collect();
    let rows: Vec<&[Drawing]> = blocks.chunks(columns).collect();
    let wide = |row: &[Drawing]| row.iter().map(|block| block.width + GAP).sum::<f64>() - GAP;
    let inner = rows.iter().map(|row| wide(row)).fold(240.0, f64::max);

    let title = heading(&wrap(&figure.title, 16.0, inner), 16.0, 20.0);
    let mut body = at(MARGIN, MARGIN, &title.body);
    let mut y = MARGIN + title.height + 12.0;
    for row in rows {
        let mut x = MARGIN;
        for block in row {
            body += &at(x, y, &block.body);
            x += block.width + GAP;
        }
        y += row.iter().map(|block| block.height).fold(0.0, f64::max) + 14.0;
    }
    let keys = legend::draw(&shared.unwrap_or_default(), inner);
    body += &at(MARGIN, y, &keys.body);
    let (width, height) = (inner + 2.0 * MARGIN, y + keys.height + MARGIN - 6.0);
    let [w, h, zoomed_w, zoomed_h] = [width, height, ZOOM * width, ZOOM * height].map(num);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{zoomed_w}\" height=\"{zoomed_h}\" role=\"img\" \
         font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n\
         <title>{}</title>\n<desc>{}</desc>\n<style>{}</style>\n<rect class=\"paper\" width=\"{w}\" height=\"{h}\"/>\n{body}\n</svg>\n",
        escape(&figure.title),
        escape(&figure.caption),
        sheet(),
    )
}
