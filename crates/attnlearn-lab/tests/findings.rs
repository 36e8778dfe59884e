//! The page of findings in the documentation is what the measurements beside it come to, whatever the order in which a configuration names its sizes.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use attnlearn_lab::{Entry, Finished, Plan, Scale, all, findings};
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// A copy of what an experiment has left, since a folder can be opened by one run at a time.
fn copied(to: &Path, entry: &dyn Entry, config: impl Fn(toml::Table) -> toml::Table) {
    let (from, to) = (docs().join("findings").join(entry.name()), to.join(entry.name()));
    std::fs::create_dir(&to).unwrap();
    std::fs::copy(from.join("points.jsonl"), to.join("points.jsonl")).unwrap();
    let kept: toml::Table = std::fs::read_to_string(from.join("config.toml")).unwrap().parse().unwrap();
    std::fs::write(to.join("config.toml"), config(kept).to_string()).unwrap();
}

fn finished(folder: &Path) -> Vec<Finished> {
    let (out, replaced) = (folder.into(), toml::Table::new());
    let plan = Plan { entries: Vec::new(), scale: Scale::Full, seed: 0, out, findings: None, replaced };
    all()
        .iter()
        .map(|entry| plan.earlier(*entry).unwrap().unwrap_or_else(|| panic!("points of {} are missing", entry.name())))
        .collect()
}

#[test]
fn the_page_is_what_the_measurements_come_to() {
    let folder = tempfile::tempdir().unwrap();
    all().iter().for_each(|entry| copied(folder.path(), *entry, |config| config));
    let finished = finished(folder.path());
    let page = findings::markdown(&finished.iter().collect::<Vec<_>>(), "findings");
    let kept = std::fs::read_to_string(docs().join("findings.md")).unwrap();
    for (number, (new, old)) in page.lines().zip(kept.lines()).enumerate() {
        assert_eq!(new, old, "line {} of findings.md: run the lab again on docs/findings (docs/lab.md)", number + 1);
    }
    assert_eq!(page.lines().count(), kept.lines().count());
    for figure in finished.iter().flat_map(|one| one.summary.figures.iter().map(move |figure| (one.name, figure))) {
        let path = docs().join("findings").join(figure.0).join(format!("{}.svg", figure.1.name));
        assert!(std::fs::read_to_string(&path).unwrap() == figure.1.file(), "{} is another picture", path.display());
    }
}

/// Numbers of every list from the last to the first, and the first of them twice.
fn shuffled(mut kept: toml::Table) -> toml::Table {
    for (name, value) in kept["config"].as_table_mut().unwrap() {
        // The base of `growth` is no list: its places mean something.
        if let toml::Value::Array(list) = value
            && !name.ends_with("_base")
            && list.iter().all(|one| !one.is_str())
        {
            list.reverse();
            list.extend(list.first().cloned());
        }
    }
    kept
}

#[test]
fn findings_do_not_depend_on_the_order_of_sizes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for entry in all() {
        copied(folders[0].path(), *entry, |config| config);
        copied(folders[1].path(), *entry, shuffled);
    }
    let [straight, shuffled] = folders.each_ref().map(|folder| finished(folder.path()));
    for (a, b) in straight.iter().zip(&shuffled) {
        assert_eq!((a.points, &a.summary.findings), (b.points, &b.summary.findings), "{}", a.name);
    }
}
