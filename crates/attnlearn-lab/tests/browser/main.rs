//! The report in a real browser: it opens without errors or requests, its pictures are there, values show under the pointer, and nothing overflows.
//!
//! Set `ATTNLEARN_NO_BROWSER` to leave this out where there is no Chromium, and `ATTNLEARN_PICTURES` to a folder to look at the pages oneself.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod devtools;
mod samples;

use attnlearn_lab::report::{self, Rest};
use attnlearn_lab::{Finished, Plan, Scale, all};
use devtools::Browser;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a page must not do: complain, or ask for anything but itself.
fn check_events(browser: &Browser, page: &Path) {
    for event in &browser.events {
        let method = event["method"].as_str().unwrap_or_default();
        assert!(!["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"].contains(&method), "{event}");
        if method == "Network.requestWillBeSent" {
            let url = event["params"]["request"]["url"].as_str().unwrap();
            assert!(url.starts_with("data:") || url.split('#').next() == Some(&format!("file://{}", page.display())), "{event}");
        }
    }
}

/// Where to put pictures, if anybody wants to see them.
fn pictures() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("ATTNLEARN_PICTURES")?);
    std::fs::create_dir_all(&folder).unwrap();
    Some(folder)
}

fn number(browser: &mut Browser, expression: &str) -> f64 {
    browser.value(expression).as_f64().unwrap_or_else(|| panic!("{expression} is no number"))
}

fn text(browser: &mut Browser, expression: &str) -> String {
    browser.value(expression).as_str().unwrap_or_else(|| panic!("{expression} is no text")).to_owned()
}

/// Everything is within the window, apart from what scrolls in a box of its own.
fn check_widths(browser: &mut Browser, width: u32) {
    assert!(number(browser, "innerWidth") <= f64::from(width));
    assert!(number(browser, "document.documentElement.scrollWidth") <= f64::from(width));
    let beyond = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll > *, pre, #tip') && \
                  (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5)).map(e => e.outerHTML.slice(0, 120))";
    assert_eq!(browser.value(beyond), Value::Array(Vec::new()), "at {width}");
    // Letters of a drawing are within it, and large enough to be read.
    let cut = "[...document.querySelectorAll('svg.panel text')].filter(t => { const a = t.getBoundingClientRect(), b = \
               t.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1 \
               }).map(t => t.textContent)";
    assert_eq!(browser.value(cut), Value::Array(Vec::new()), "at {width}");
    let least = "Math.min(...[...document.querySelectorAll('svg.panel text')].map(t => parseFloat(t.getAttribute('font-size')) * \
                 t.closest('svg').getBoundingClientRect().width / t.closest('svg').viewBox.baseVal.width))";
    assert!(number(browser, least) >= 8.5, "letters of {} pixels at {width}", number(browser, least));
}

/// Labels of an axis that touch, of all drawings.
fn check_collisions(browser: &mut Browser) {
    let touching = "[...document.querySelectorAll('svg.panel')].flatMap(svg => { const all = [...svg.querySelectorAll('text')].filter(t => \
                    !t.closest('[transform]')).map(t => [t, t.getBoundingClientRect()]); return all.flatMap(([t, a], i) => all.slice(0, i).filter(([, b]) => \
                    a.left < b.right && b.left < a.right && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2).map(([u]) => \
                    t.textContent + ' | ' + u.textContent)) })";
    assert_eq!(browser.value(touching), Value::Array(Vec::new()));
}

fn check_hover(browser: &mut Browser, panel: &str, expected: &str) {
    browser.value(&format!("document.querySelector('{panel}').scrollIntoView({{block: 'center'}})"));
    browser.settle();
    let mark = format!("document.querySelector('{panel} .v').getBoundingClientRect()");
    let (x, y) =
        (number(browser, &format!("{mark}.x + {mark}.width / 2")), number(browser, &format!("{mark}.y + {mark}.height / 2")));
    browser.point(x, y);
    assert_eq!(browser.value("document.getElementById('tip').hidden"), Value::Bool(false));
    let told = text(browser, "document.getElementById('tip').innerText");
    assert!(told.contains(expected), "{told}");
    if let Some(folder) = pictures() {
        browser.window(&folder.join(format!("{}.png", panel.replace([' ', '#'], ""))));
    }
    browser.point(1.0, 1.0);
    assert_eq!(browser.value("document.getElementById('tip').hidden"), Value::Bool(true));
    // The same by the keyboard, and by touch.
    browser.value(&format!("document.querySelector('{panel}').focus()"));
    browser.press("ArrowRight");
    assert_eq!(browser.value("document.getElementById('tip').hidden"), Value::Bool(false));
    browser.press("Escape");
    assert_eq!(browser.value("document.getElementById('tip').hidden"), Value::Bool(true));
    let touch = serde_json::json!({"type": "touchStart", "touchPoints": [{"x": x, "y": y}]});
    browser.ask("Input.dispatchTouchEvent", touch);
    browser.ask("Input.dispatchTouchEvent", serde_json::json!({"type": "touchEnd", "touchPoints": []}));
    assert_eq!(browser.value("document.getElementById('tip').hidden"), Value::Bool(false));
    assert!(text(browser, "document.getElementById('tip').innerText").contains(expected));
    browser.press("Escape");
    assert_eq!(browser.value("document.getElementById('tip').hidden"), Value::Bool(true));
}

/// On paper: light, everything open, and nothing beyond the edge. What was closed is closed again after.
fn check_print(browser: &mut Browser) {
    let closed = "document.querySelectorAll('details:not([open])').length";
    let before = number(browser, closed);
    assert!(before > 0.5, "nothing to open");
    browser.resize(800, 1100);
    browser.value("document.documentElement.dataset.theme = 'dark'");
    browser.ask("Emulation.setEmulatedMedia", serde_json::json!({"media": "print"}));
    browser.value("dispatchEvent(new Event('beforeprint'))");
    browser.settle();
    assert!(number(browser, closed) < 0.5);
    assert_eq!(text(browser, "getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    check_widths(browser, 800);
    if let Some(folder) = pictures() {
        let name = text(browser, "location.pathname.split('/').pop()");
        browser.picture(&folder.join(format!("{name}-print.png")));
    }
    browser.value("dispatchEvent(new Event('afterprint'))");
    browser.ask("Emulation.setEmulatedMedia", serde_json::json!({"media": ""}));
    browser.value("document.documentElement.dataset.theme = 'light'");
    assert!((number(browser, closed) - before).abs() < 0.5);
}

/// The experiments whose measurements are in the documentation.
fn documented() -> Vec<Finished> {
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings");
    let plan = Plan { entries: Vec::new(), scale: Scale::Full, seed: 0, out, findings: None, replaced: toml::Table::new() };
    all().iter().filter_map(|entry| plan.earlier(*entry).unwrap()).collect()
}

fn check_page(browser: &mut Browser, page: &Path, panels: usize) {
    for width in [1440, 360] {
        browser.resize(width, 900);
        browser.open(page);
        let background = "getComputedStyle(document.body).backgroundColor";
        let before = text(browser, background);
        for theme in ["as it is", "the other"] {
            if let Some(folder) = pictures() {
                let stem = page.file_stem().unwrap().display();
                browser.picture(&folder.join(format!("{stem}-{width}-{theme}.png").replace(' ', "-")));
            }
            browser.value("document.querySelector('.theme').click()");
            let now = text(browser, background);
            assert_eq!(now == before, theme == "the other", "{before} {now}");
        }
        let sizes = "[...document.querySelectorAll('svg.panel')].map(e => e.getBoundingClientRect()).filter(r => r.width > 50 && r.height > 50).length";
        assert!((number(browser, sizes) - panels as f64).abs() < 0.5);
        check_widths(browser, width);
        check_collisions(browser);
        check_events(browser, page);
    }
}

#[test]
#[ignore = "slow: drives a browser; cargo xtask test --all"]
fn pages_hold_in_a_browser() {
    if std::env::var_os("ATTNLEARN_NO_BROWSER").is_some() {
        println!("skipped: ATTNLEARN_NO_BROWSER is set");
        return;
    }
    let Some(name) = devtools::find() else {
        panic!(
            "no Chromium was found; install it (Debian, Ubuntu: apt-get install chromium), or set ATTNLEARN_NO_BROWSER=1 to leave this test out"
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, html: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, &html).unwrap();
        if let Some(folder) = pictures() {
            std::fs::write(folder.join(name), &html).unwrap();
        }
        path
    };
    let hidden = vec!["parity: docs/findings/parity/points.jsonl, line 1: there is no end of it; remove this line".into()];
    let rest = Rest { waiting: vec!["Noise"], earlier: vec!["Means"], hidden };
    let experiments = samples::experiments();
    let count = |figures: &[attnlearn_page::plot::Figure]| figures.iter().map(|figure| figure.panels.len()).sum::<usize>();
    let panels = experiments.iter().map(|one| count(&one.summary.figures)).sum();
    let page = write("report.html", report::page(&experiments.iter().collect::<Vec<_>>(), &rest).unwrap());
    let mut browser = Browser::start(name);
    check_page(&mut browser, &page, panels);
    for width in [360, 1440] {
        browser.resize(width, 900);
        check_hover(&mut browser, "#learning-curves--learning-curves svg.panel", "training examples n: 100");
        check_hover(&mut browser, "#structures--matrices svg.panel", "row 1, column 1: 0");
    }
    check_print(&mut browser);
    check_events(&browser, &page);

    let run = samples::run();
    let panels = count(&run.figures);
    let page = write("run.html", run.html().unwrap());
    check_page(&mut browser, &page, panels);
    check_hover(&mut browser, "#phases-body svg.panel", "accepted rows: ");
    check_print(&mut browser);
    check_events(&browser, &page);

    // The real page.
    let finished = documented();
    assert!(!finished.is_empty(), "docs/findings has no experiment that can be shown");
    let panels = finished.iter().map(|one| count(&one.summary.figures)).sum();
    let page = write("documented.html", report::page(&finished.iter().collect::<Vec<_>>(), &Rest::default()).unwrap());
    check_page(&mut browser, &page, panels);
    check_print(&mut browser);
    check_events(&browser, &page);

    // Files of figures are pictures by themselves.
    for figure in experiments.iter().flat_map(|one| &one.summary.figures).chain(&run.figures) {
        let path = write(&format!("{}.svg", figure.name), figure.file());
        browser.open(&path);
        assert_eq!(text(&mut browser, "document.documentElement.tagName"), "svg");
        if let Some(folder) = pictures() {
            browser.resize(1440, 1200);
            browser.window(&folder.join(format!("{}-file.png", figure.name)));
        }
        check_events(&browser, &path);
    }
}
