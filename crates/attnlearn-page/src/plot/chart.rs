//! A chart: axes with their ticks, what theory says, lines, error bars and marks. The label of the vertical axis stands above it, where it is read
//! without turning the head and may be long.

use super::scale::{Extent, Label, Ruler, Tick, label};
use super::style::{Appearance, Styles};
use super::svg::{Anchor, Drawing, cut, escape, line, num, text, width, wrap};
use super::{Chart, Look, Point, Scale, Series};
use crate::estimate::short;

/// Size of the letters at ticks.
const SMALL: f64 = 11.5;
/// Size of the letters of labels.
const LETTERS: f64 = 12.5;
/// From line to line.
const LEADING: f64 = 15.0;
/// Height of the area that is drawn in.
const HEIGHT: f64 = 205.0;
/// Least room to the right of the axes.
const RIGHT: f64 = 14.0;
/// Radius of a mark.
const MARK: f64 = 3.4;
/// Points from which on marks are small.
const MANY: usize = 40;

/// The area that is drawn in, and its axes.
struct Area<'a> {
    x: &'a Ruler,
    y: &'a Ruler,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Area<'_> {
    fn across(&self, at: f64) -> f64 {
        self.left + at * self.width
    }

    fn down(&self, at: f64) -> f64 {
        self.top + (1.0 - at) * self.height
    }
}

/// Draws it so wide.
pub fn draw(chart: &Chart, styles: &Styles, full: f64) -> Drawing {
    let (along, up) = extents(chart);
    let drawable = chart.series.iter().flat_map(|series| &series.points).any(|point| shown(chart, point));
    let rulers = Ruler::new(&chart.x.scale, &along).zip(Ruler::new(&chart.y.scale, &up)).filter(|_| drawable);
    let Some((x, y)) = rulers else { return nothing(full) };

    let y_ticks = y.ticks();
    let y_room = 0.38 * full;
    let widest = y_ticks.iter().map(|tick| tick.label.width(SMALL)).fold(0.0, f64::max).min(y_room);
    let above = wrap(&chart.y.label, LETTERS, full - 4.0);
    let left = widest + 9.0;
    let top = above.len() as f64 * LEADING + 9.0;
    let area = |right: f64| Area { x: &x, y: &y, left, top, width: full - left - right, height: HEIGHT };
    let area = area(RIGHT.max(beyond(&area(0.0), &along.values)));

    let mut body = String::new();
    for (i, words) in above.iter().enumerate() {
        body += &text("label", 2.0, 12.0 + i as f64 * LEADING, LETTERS, Anchor::Start, &escape(words));
    }
    for tick in &y_ticks {
        let Some(at) = y.place(tick.value) else { continue };
        let down = area.down(at);
        body += &line("grid", (left, down), (left + area.width, down), 1.0);
        let written = if y.named() {
            Label { base: cut(&tick.label.base, SMALL, y_room), ..tick.label.clone() }
        } else {
            tick.label.clone()
        };
        body += &written.draw("muted", left - 6.0, down + 4.0, SMALL, Anchor::End);
    }
    for value in y.small_ticks() {
        let down = area.down(y.place(value).unwrap_or(0.0));
        body += &line("axis", (left, down), (left + 3.0, down), 1.0);
    }
    let below = x_axis(&area, &x_ticks(&area, &along.values), &mut body);
    let mut bottom = area.top + HEIGHT + below + 14.0;
    for words in wrap(&chart.x.label, LETTERS, full - 4.0) {
        let middle =
            (left + 0.5 * area.width).max(0.5 * width(&words, LETTERS) + 2.0).min(full - 0.5 * width(&words, LETTERS) - 2.0);
        body += &text("label", middle, bottom, LETTERS, Anchor::Middle, &escape(&words));
        bottom += LEADING;
    }
    body += &line("axis", (left, top + HEIGHT), (left + area.width, top + HEIGHT), 1.0);
    body += &line("axis", (left, top), (left, top + HEIGHT), 1.0);

    let (theory, measured): (Vec<_>, Vec<_>) = chart.series.iter().partition(|series| series.look == Look::Theory);
    for series in theory {
        body += &curve(&area, series, styles.get(series), 0.0);
    }
    // Side by side where numbers are names: they would cover each other.
    let count = measured.len() as f64;
    let apart = if x.named() { (9.0_f64).min(0.7 * area.width / (x.ticks().len() as f64 * count)) } else { 0.0 };
    let shift = |i: usize| apart * (i as f64 - 0.5 * (count - 1.0));
    for (i, series) in measured.iter().enumerate().filter(|(_, series)| series.look == Look::Line) {
        body += &curve(&area, series, styles.get(series), shift(i));
    }
    for (i, series) in measured.iter().enumerate() {
        body += &marks(&area, chart, series, styles.get(series), shift(i));
    }
    Drawing { width: full, height: bottom - LEADING + 8.0, body }
}

/// What there is if nothing can be drawn.
fn nothing(full: f64) -> Drawing {
    let height = 0.4 * full;
    let size = [num(full - 2.0), num(height - 2.0)];
    let frame =
        format!("<rect class=\"frame\" x=\"1\" y=\"1\" width=\"{}\" height=\"{}\" stroke-dasharray=\"4 4\"/>", size[0], size[1]);
    Drawing {
        width: full,
        height,
        body: frame + &text("muted", 0.5 * full, 0.5 * height + 4.0, LETTERS, Anchor::Middle, "no data"),
    }
}

/// Whether a point can be drawn.
fn shown(chart: &Chart, point: &Point) -> bool {
    let fits = |scale: &Scale, v: f64| match scale {
        Scale::Log => v.is_finite() && v > 0.0,
        Scale::Linear => v.is_finite(),
        Scale::Names(names) => v > -0.5 && v < names.len() as f64 - 0.5,
    };
    fits(&chart.x.scale, point.x) && fits(&chart.y.scale, point.y.value)
}

/// What both axes have to show.
fn extents(chart: &Chart) -> (Extent, Extent) {
    let (mut along, mut up) = (Extent::default(), Extent { from_nothing: true, ..Extent::default() });
    for series in &chart.series {
        for point in series.points.iter().filter(|point| shown(chart, point)) {
            if series.look == Look::Theory {
                along.theory.push(point.x);
                up.theory.push(point.y.value);
            } else {
                along.values.push(point.x);
                up.values.push(point.y.value);
                if point.y.low.is_finite() && point.y.high.is_finite() {
                    up.bars.push((point.y.low, point.y.high));
                }
            }
        }
    }
    (along, up)
}

/// Ticks that do not touch: where something was measured if these are few, else round numbers, and fewer of them until they fit.
fn x_ticks(area: &Area<'_>, values: &[f64]) -> Vec<Tick> {
    if area.x.named() {
        return area.x.ticks();
    }
    let fits = |ticks: &[Tick]| {
        let ends = |tick: &Tick| {
            let (middle, half) = (area.across(area.x.place(tick.value).unwrap_or(0.0)), 0.5 * tick.label.width(SMALL) + 3.0);
            (middle - half, middle + half)
        };
        ticks.windows(2).all(|pair| ends(&pair[0]).1 <= ends(&pair[1]).0)
    };
    if let Some(ticks) = area.x.ticks_at(values).filter(|ticks| fits(ticks)) {
        return ticks;
    }
    let mut ticks = area.x.ticks();
    while ticks.len() > 2 && !fits(&ticks) {
        let mut keep = false;
        ticks.retain(|_| {
            keep = !keep;
            keep
        });
    }
    ticks
}

/// How far labels of the horizontal axis reach beyond its right end.
fn beyond(area: &Area<'_>, values: &[f64]) -> f64 {
    if area.x.named() {
        return 0.0;
    }
    let reach = |tick: &Tick| Some(area.across(area.x.place(tick.value)?) + 0.5 * tick.label.width(SMALL));
    let farthest = x_ticks(area, values).iter().filter_map(reach).fold(0.0, f64::max);
    farthest + 2.0 - area.left - area.width
}

/// Draws ticks and grid of the horizontal axis; how much room they take below it.
fn x_axis(area: &Area<'_>, ticks: &[Tick], body: &mut String) -> f64 {
    let foot = area.top + area.height;
    for value in area.x.small_ticks() {
        let across = area.across(area.x.place(value).unwrap_or(0.0));
        *body += &line("axis", (across, foot), (across, foot - 3.0), 1.0);
    }
    let slot = area.width / ticks.len().max(1) as f64 - 4.0;
    // Names that do not fit side by side are broken between words, or else slanted.
    let slanted =
        area.x.named() && ticks.iter().any(|tick| tick.label.base.split_whitespace().any(|word| width(word, SMALL) > slot));
    let mut below = 17.0_f64;
    for tick in ticks {
        let Some(at) = area.x.place(tick.value) else { continue };
        let across = area.across(at);
        *body += &line("grid", (across, area.top), (across, foot), 1.0);
        if !area.x.named() {
            *body += &tick.label.draw("muted", across, foot + 15.0, SMALL, Anchor::Middle);
        } else if slanted {
            let name = cut(&tick.label.base, SMALL, 110.0);
            let (x, y) = (num(across + 4.0), num(foot + 12.0));
            let place = format!("<g transform=\"rotate(-35 {x} {y})\">");
            *body += &(place + &text("muted", across + 4.0, foot + 12.0, SMALL, Anchor::End, &escape(&name)) + "</g>");
            below = below.max(12.0 + 0.6 * width(&name, SMALL));
        } else {
            let lines = wrap(&tick.label.base, SMALL, slot);
            for (i, words) in lines.iter().enumerate() {
                *body += &text("muted", across, foot + 15.0 + 13.0 * i as f64, SMALL, Anchor::Middle, &escape(words));
            }
            below = below.max(4.0 + 13.0 * lines.len() as f64);
        }
    }
    below
}

/// The part of a segment that is within the unit square.
fn clip(a: (f64, f64), b: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for (step, room) in [(-dx, a.0), (dx, 1.0 - a.0), (-dy, a.1), (dy, 1.0 - a.1)] {
        if step == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if step < 0.0 {
            from = from.max(room / step);
        } else {
            to = to.min(room / step);
        }
    }
    let at = |t: f64| (a.0 + t * dx, a.1 + t * dy);
    (from <= to).then(|| (at(from), at(to)))
}

/// A line through the points, broken where one is missing.
fn curve(area: &Area<'_>, series: &Series, look: Appearance, shift: f64) -> String {
    let places: Vec<Option<(f64, f64)>> =
        series.points.iter().map(|point| area.x.place(point.x).zip(area.y.place(point.y.value))).collect();
    let mut path = String::new();
    let mut pen: Option<(String, String)> = None;
    for pair in places.windows(2) {
        let (Some(a), Some(b)) = (pair[0], pair[1]) else {
            pen = None;
            continue;
        };
        let Some((from, to)) = clip(a, b) else { continue };
        let at = |p: (f64, f64)| (num(area.across(p.0) + shift), num(area.down(p.1)));
        let (from, to) = (at(from), at(to));
        if pen.as_ref() != Some(&from) {
            path += &format!("M{} {}", from.0, from.1);
        }
        path += &format!("L{} {}", to.0, to.1);
        pen = Some(to);
    }
    if path.is_empty() {
        return path;
    }
    let dashes = look.dashes.map_or_else(String::new, |dashes| format!(" stroke-dasharray=\"{dashes}\""));
    format!("<path class=\"{}\" d=\"{path}\" stroke-width=\"1.7\" stroke-linejoin=\"round\"{dashes}/>", look.line())
}

/// Error bars and marks.
fn marks(area: &Area<'_>, chart: &Chart, series: &Series, look: Appearance, shift: f64) -> String {
    let (mut bars, mut dots) = (String::new(), String::new());
    let r = if series.points.len() > MANY { 0.5 * MARK } else { MARK };
    for point in series.points.iter().filter(|point| shown(chart, point)) {
        let Some((x, y)) = area.x.place(point.x).zip(area.y.place(point.y.value)) else { continue };
        let (x, y) = (area.across(x) + shift, area.down(y));
        bars += &bar(area, point, x);
        let (path, thick) = look.outline(x, y, r);
        let told = escape(&told(chart, series, point));
        dots += &format!(
            "<path class=\"v {}\" d=\"{path}\" stroke-width=\"{}\"><title>{told}</title></path>",
            look.mark(),
            num(thick)
        );
    }
    if !bars.is_empty() {
        bars = format!("<path class=\"{}\" d=\"{bars}\" stroke-width=\"1.2\"/>", look.line());
    }
    bars + &dots
}

/// An error bar; an end that is beyond the axis has no cap.
fn bar(area: &Area<'_>, point: &Point, x: f64) -> String {
    let (low, high) = (point.y.low, point.y.high);
    if !(low.is_finite() && high.is_finite() && low < high) {
        return String::new();
    }
    // Below the lower end of a logarithmic axis.
    let (low, high) = (area.y.place(low).unwrap_or(-1.0), area.y.place(high).unwrap_or(-1.0));
    let (from, to) = (area.down(low.clamp(0.0, 1.0)), area.down(high.clamp(0.0, 1.0)));
    let mut path = format!("M{} {}V{}", num(x), num(from), num(to));
    for (at, place) in [(low, from), (high, to)] {
        if (0.0..=1.0).contains(&at) {
            path += &format!("M{} {}h5", num(x - 2.5), num(place));
        }
    }
    path
}

/// What is said under the pointer.
fn told(chart: &Chart, series: &Series, point: &Point) -> String {
    let x = match &chart.x.scale {
        Scale::Names(names) => names.get(point.x.round() as usize).cloned().unwrap_or_default(),
        _ => exact(point.x),
    };
    let y = match &chart.y.scale {
        Scale::Names(names) => names.get(point.y.value.round() as usize).cloned().unwrap_or_default(),
        _ if point.y.low.is_finite() && point.y.high.is_finite() && point.y.low < point.y.high => point.y.to_string(),
        _ => short(point.y.value),
    };
    let of = |label: &str, value: String| if label.is_empty() { value } else { format!("{label}: {value}") };
    let mut lines = vec![series.label.clone(), of(&chart.x.label, x), of(&chart.y.label, y), point.note.clone()];
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// A whole number as it is, any other in three digits.
fn exact(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e12 {
        return format!("{value:.0}").replace('-', "−");
    }
    let label = label(value);
    if label.raised.is_empty() { label.base } else { short(value) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::plot::{Axis, Panel};

    fn chart(x: Axis, y: Axis, series: Vec<Series>) -> Chart {
        Chart { title: "t".into(), x, y, series }
    }

    fn drawn(chart: &Chart) -> String {
        draw(chart, &Styles::of(&[Panel::Chart(chart.clone())])[0], 360.0).body
    }

    /// Heights of the marks, from their outlines.
    fn count(body: &str, what: &str) -> usize {
        body.matches(what).count()
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let bars = |low, high| Estimate { value: 2.0, low, high };
        let points = [
            (1.0, Estimate::exact(f64::NAN)),
            (2.0, Estimate::exact(f64::INFINITY)),
            (3.0, bars(1.0, 4.0)),
            (4.0, bars(f64::NEG_INFINITY, f64::INFINITY)),
            (-1.0, bars(1.0, 4.0)),
            (5.0, bars(-1.0, 4.0)),
        ];
        let body = drawn(&chart(Axis::log("x"), Axis::log("y"), vec![Series::new("s", points)]));
        assert_eq!(count(&body, "<title>"), 3);
        // One bar has both caps, one reaches below the axis.
        assert_eq!(count(&body, "h5"), 3);
        assert!(!body.contains("NaN") && !body.contains("inf"), "{body}");
        let body = drawn(&chart(Axis::log("x"), Axis::log("y"), vec![Series::new("s", points[..2].to_vec())]));
        assert!(body.contains("no data"), "{body}");
        assert!(drawn(&chart(Axis::names("x", &["a"]), Axis::linear("y"), Vec::new())).contains("no data"));
    }

    #[test]
    fn lines_stay_within_the_axes() {
        let inside = |p: (f64, f64)| (-1e-12..=1.0 + 1e-12).contains(&p.0) && (-1e-12..=1.0 + 1e-12).contains(&p.1);
        for i in 0..40 {
            for j in 0..40 {
                let at = |k: i32| (f64::from(k % 7) * 0.5 - 1.0, f64::from(k % 11) * 0.3 - 1.0);
                if let Some((a, b)) = clip(at(i), at(j)) {
                    assert!(inside(a) && inside(b), "{i} {j}");
                } else {
                    assert!(!inside(at(i)) && !inside(at(j)));
                }
            }
        }
        assert_eq!(clip((-1.0, 0.5), (2.0, 0.5)), Some(((0.0, 0.5), (1.0, 0.5))));
    }

    /// The value under the pointer is the one that was given, and is higher the larger it is.
    #[test]
    fn marks_are_where_and_what_they_should_be() {
        let points = [
            (1.0, Estimate { value: 10.0, low: 8.0, high: 12.5 }),
            (2.0, Estimate::exact(100.0)),
            (3.0, Estimate::exact(1000.0)),
        ];
        let body = drawn(&chart(Axis::linear("n"), Axis::log("error (%)"), vec![Series::new("a & b", points)]));
        assert!(body.contains("<title>a &amp; b\nn: 1\nerror (%): 10.0 (8.00 to 12.5)</title>"), "{body}");
        let heights: Vec<f64> = body
            .split("class=\"v ")
            .skip(1)
            .map(|mark| mark.split("d=\"M").nth(1).unwrap().split(['a', ' ']).nth(1).unwrap().parse().unwrap())
            .collect();
        assert!((heights[0] - heights[1] - (heights[1] - heights[2])).abs() < 0.02 && heights[0] > heights[1], "{heights:?}");
    }

    /// Many numbers, and numbers that lie close: labels never touch.
    #[test]
    fn labels_do_not_collide() {
        let sets: [&[f64]; 5] = [
            &[1.0, 2.0, 3.0, 100.0],
            &[16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0],
            &[1e-7, 3e3],
            &[1e5, 1.1e5, 1.2e5],
            &[1000.1, 1000.2],
        ];
        for values in sets {
            for axis in [Scale::Linear, Scale::Log] {
                let ruler = Ruler::new(&axis, &Extent { values: values.to_vec(), ..Extent::default() }).unwrap();
                let area = Area { x: &ruler, y: &ruler, left: 30.0, top: 0.0, width: 300.0, height: 200.0 };
                let ticks = x_ticks(&area, values);
                assert!(ticks.len() >= 2, "{values:?} {axis:?}");
                let mut end = f64::NEG_INFINITY;
                for tick in ticks {
                    let (at, half) = (area.across(ruler.place(tick.value).unwrap()), 0.5 * tick.label.width(SMALL));
                    assert!(at - half > end, "{values:?} {axis:?} {}", tick.value);
                    end = at + half;
                }
            }
        }
    }
}
