//! Rooms depend one way: the modules right under `src` stand in an order, and each uses only those before it. Nor do two files of a room, or of a
//! folder within one, need one another, in however many steps.
//!
//! So what a file rests on can be read before the file, and none of it changes because of the file. The compiler does not care, so this reads the
//! sources. It sees paths that begin with `crate`, `super` or `self`, through re-exports, outside tests; it does not see methods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Every room, after all those that it may use.
const ROOMS: [&str; 21] = [
    "words",
    "error",
    "memory",
    "hash",
    "parallel",
    "linalg",
    "files",
    "data",
    "scores",
    "layer",
    "teacher",
    "convex",
    "certify",
    "degeneracy",
    "transformer",
    "features",
    "engine",
    "descend",
    "sculpt",
    "learn",
    "inspect",
];

/// The room that no other uses: no learner sees the teacher.
const UNSEEN: &str = "teacher";

/// A word or a sign of a source text.
#[derive(Clone, Copy)]
struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// How long what a text begins with is, and whether that is code: no space, no comment, no quotation.
fn piece(text: &str) -> (usize, bool) {
    let until = |text: &str, end: &str| text.find(end).map_or(text.len(), |at| at + end.len());
    if text.starts_with("//") {
        return (until(text, "\n"), false);
    }
    if text.starts_with("/*") {
        return (until(text, "*/"), false);
    }
    let raw = text.strip_prefix('b').unwrap_or(text);
    if let Some(raw) = raw.strip_prefix('r') {
        let quoted = raw.trim_start_matches('#');
        if quoted.starts_with('"') {
            let end = format!("\"{}", "#".repeat(raw.len() - quoted.len()));
            let start = text.len() - quoted.len() + 1;
            return (start + until(&text[start..], &end), false);
        }
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let mut escaped = false;
        let end = quoted.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return (end.map_or(text.len(), |at| at + 2), false);
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        // A lifetime is not closed.
        let end = match quoted.strip_prefix('\\') {
            Some(escape) => escape.char_indices().skip(1).find(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
            None => quoted.char_indices().nth(1).filter(|(_, c)| *c == '\'').map(|(at, _)| at),
        };
        return (end.map_or(1, |at| at + 2), false);
    }
    if text.starts_with("::") {
        return (2, true);
    }
    let word = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let first = text.chars().next().unwrap_or(' ');
    if word > 0 { (word, true) } else { (first.len_utf8(), !first.is_whitespace()) }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < text.len() {
        let (len, code) = piece(&text[at..]);
        let piece = &text[at..at + len];
        if code {
            found.push(Token { line, text: piece });
        }
        line += piece.matches('\n').count();
        at += len;
    }
    found
}

/// What is not compiled for tests alone, and which modules are.
fn without_tests<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(token) = tokens.get(at) {
        let marked = tokens.len() >= at + MARK.len() && tokens[at..].iter().zip(MARK).all(|(token, mark)| token.text == mark);
        if !marked {
            kept.push(*token);
            at += 1;
            continue;
        }
        at += MARK.len();
        let (first, mut depth) = (at, 0);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(token.text, ";" | "}") {
                break;
            }
        }
        let item = &tokens[first..at];
        modules.extend(item.windows(3).filter(|w| w[0].text == "mod" && w[2].text == ";").map(|w| w[1].text));
    }
    (kept, modules)
}

/// A path, and what it is called where it is used.
#[derive(Clone)]
struct Mention<'a> {
    line: usize,
    path: Vec<&'a str>,
    name: &'a str,
}

/// All paths of the tree that begins at a token, `a::{b, c::d}`; and where it ends.
fn tree<'a>(tokens: &[Token<'a>], mut at: usize, before: &[&'a str], found: &mut Vec<Mention<'a>>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let is_name = |text: &str| text == "*" || text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let (line, mut path) = (tokens[at].line, before.to_vec());
    path.push(text(at));
    at += 1;
    while text(at) == "::" {
        if text(at + 1) == "{" {
            at += 2;
            while !matches!(text(at), "}" | "") {
                at = if is_name(text(at)) { tree(tokens, at, &path, found) } else { at + 1 };
            }
            return at + 1;
        }
        if !is_name(text(at + 1)) {
            break;
        }
        path.push(text(at + 1));
        at += 2;
    }
    if path.last() == Some(&"self") && path.len() > 1 {
        path.pop();
    }
    let mut name = path.last().copied().unwrap_or_default();
    if text(at) == "as" {
        name = text(at + 1);
        at += 2;
    }
    found.push(Mention { line, path, name });
    at
}

/// Where a module is, from the top: `["data", "block"]`.
type Place = Vec<String>;

/// A path that a module mentions, from the top; none if it leads out of the library.
fn from_top(here: &Place, path: &[&str], modules: &BTreeSet<Place>) -> Option<Place> {
    let mut rest = path;
    let mut top = match rest.first() {
        Some(&"crate") => Vec::new(),
        Some(&("super" | "self")) => here.clone(),
        _ => {
            let child: Place = here.iter().cloned().chain(rest.first().map(ToString::to_string)).collect();
            return modules.contains(&child).then(|| here.iter().cloned().chain(path.iter().map(ToString::to_string)).collect());
        }
    };
    if rest.first() != Some(&"super") {
        rest = &rest[1..];
    }
    while rest.first() == Some(&"super") {
        top.pop();
        rest = &rest[1..];
    }
    top.extend(rest.iter().map(ToString::to_string));
    Some(top)
}

/// All modules, and what each of them calls by which name.
#[derive(Default)]
struct House {
    modules: BTreeSet<Place>,
    names: BTreeMap<Place, BTreeMap<String, Place>>,
}

impl House {
    /// The module that a path leads to, through at most so many re-exports.
    fn lead(&self, path: &[String], left: usize) -> Place {
        let mut here = Place::new();
        for (i, name) in path.iter().enumerate() {
            here.push(name.clone());
            if self.modules.contains(&here) {
                continue;
            }
            here.pop();
            let other = self.names.get(&here).and_then(|names| names.get(name)).filter(|_| left > 0);
            return other.map_or(here, |other| self.lead(&[other, &path[i + 1..]].concat(), left - 1));
        }
        here
    }
}

/// The module that a file is.
fn place_of(file: &str) -> Place {
    let parts = file.trim_end_matches(".rs").split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    parts.map(ToOwned::to_owned).collect()
}

/// Who needs whom beside itself in a folder, and where that is said.
type Needs = BTreeMap<Place, BTreeMap<(String, String), Vec<String>>>;

fn reaches(needs: &BTreeMap<(String, String), Vec<String>>, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(one) = open.pop() {
        if one == to {
            return true;
        }
        if seen.insert(one) {
            open.extend(needs.keys().filter(|(a, _)| a == one).map(|(_, b)| b.as_str()));
        }
    }
    false
}

/// What is wrong with the sources, each a path below `src` and a text.
fn faults(sources: &[(String, String)]) -> Vec<String> {
    let read: Vec<(Place, &str, Vec<Token<'_>>, Vec<&str>)> = sources
        .iter()
        .map(|(file, text)| {
            let (tokens, tests) = without_tests(&tokens(text));
            (place_of(file), file.as_str(), tokens, tests)
        })
        .collect();
    let tests: Vec<Place> = read
        .iter()
        .flat_map(|(place, _, _, tests)| tests.iter().map(move |test| [place.as_slice(), &[test.to_string()]].concat()))
        .collect();
    let read: Vec<_> = read.into_iter().filter(|(place, ..)| !tests.iter().any(|test| place.starts_with(test))).collect();

    let mut house = House { modules: read.iter().map(|(place, ..)| place.clone()).collect(), ..House::default() };
    for (place, _, tokens, _) in &read {
        let mut used = Vec::new();
        let at_use = (0..tokens.len()).filter(|at| tokens[*at].text == "use" && at + 1 < tokens.len());
        for at in at_use {
            tree(tokens, at + 1, &[], &mut used);
        }
        let named = used.iter().filter_map(|m| Some((m.name.to_owned(), from_top(place, &m.path, &house.modules)?)));
        house.names.insert(place.clone(), named.collect());
    }

    let (mut faults, mut needs) = (Vec::new(), Needs::new());
    for (place, file, tokens, _) in read.iter().filter(|(place, ..)| !place.is_empty()) {
        let mut mentions = Vec::new();
        for at in 0..tokens.len() {
            let begins = matches!(tokens[at].text, "crate" | "super" | "self") && (at == 0 || tokens[at - 1].text != "::");
            if begins && tokens.get(at + 1).is_some_and(|next| next.text == "::") {
                tree(tokens, at, &[], &mut mentions);
            }
        }
        for Mention { line, path, name } in mentions {
            let said = format!("{file}:{line}: {}", path.join("::"));
            if name == "*" {
                faults.push(format!("{said}: who is needed cannot be seen; name what is used"));
                continue;
            }
            let Some(there) = from_top(place, &path, &house.modules).map(|path| house.lead(&path, 8)) else { continue };
            let common = place.iter().zip(&there).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (place.get(common), there.get(common)) {
                let needs = needs.entry(place[..common].to_vec()).or_default();
                needs.entry((from.clone(), to.clone())).or_default().push(said);
            }
        }
    }
    let rank = |room: &str| ROOMS.iter().position(|other| *other == room);
    let rooms: BTreeSet<&String> = read.iter().filter_map(|(place, ..)| place.first()).collect();
    let homeless = rooms.into_iter().filter(|room| rank(room).is_none());
    faults.extend(homeless.map(|room| format!("{room}: the room has no place yet; put it into ROOMS, after all that it uses")));
    for ((from, to), said) in needs.remove(&Place::new()).iter().flatten() {
        let problem = if to == UNSEEN {
            "no room may see the teacher; take an ExampleSource".to_owned()
        } else if rank(from) <= rank(to) {
            format!(
                "{from} comes before {to} and may not use it; move what is needed to a room before both, or this to one after both"
            )
        } else {
            continue;
        };
        faults.extend(said.iter().map(|said| format!("{said}: {problem}")));
    }
    for (folder, needs) in &needs {
        for ((from, to), said) in needs.iter().filter(|((from, to), _)| reaches(needs, to, from)) {
            let folder = folder.join("/");
            let problem =
                format!("{from} and {to} in {folder} need one another; move what both need to a file that needs neither");
            faults.extend(said.iter().map(|said| format!("{said}: {problem}")));
        }
    }
    faults
}

/// All sources below a folder.
fn sources(folder: &Path, name: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let below = format!("{name}{}", entry.file_name().to_str().expect("a plain name"));
        if entry.path().is_dir() {
            sources(&entry.path(), &format!("{below}/"), found);
        } else if below.ends_with(".rs") {
            found.push((below, fs::read_to_string(entry.path()).expect("a source")));
        }
    }
}

#[test]
fn rooms_depend_one_way() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut all);
    all.sort();
    for room in ROOMS {
        assert!(all.iter().any(|(file, _)| place_of(file) == [room]), "there is no room {room} any more; take it out of ROOMS");
    }
    let faults = faults(&all);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// What is said of made-up files.
fn said(files: &[(&str, &str)]) -> String {
    let owned: Vec<_> = files.iter().map(|(file, text)| (file.to_string(), text.to_string())).collect();
    faults(&owned).join("\n")
}

#[test]
fn a_room_that_uses_a_later_one_is_refused() {
    let later = ("descend/mod.rs", "mod batch;\npub use batch::Batch;");
    let batch = ("descend/batch.rs", "use crate::linalg::lanes::Real;");
    let lanes = ("linalg/lanes.rs", "pub trait Real {}");
    let linalg = ("linalg/mod.rs", "pub mod lanes;");
    let with = |text: &str| said(&[later, batch, lanes, linalg, ("data/mod.rs", "mod scan;"), ("data/scan.rs", text)]);
    let wrong = [
        "use crate::descend::Batch;",
        "\n\nuse crate::{linalg::lanes, descend::{self, Batch}};",
        "fn f(c: char) -> bool { c == '\"' || crate::descend::batch::is(c) }",
        "use super::super::descend::Batch;",
        "fn f<'a>(x: &'a str) { g(\"\\\"\", '\\'', r#\"\"\"#); crate::descend::f(x) }",
        "#[cfg(test)] mod tests { fn f() {} } use crate::descend::Batch;",
    ];
    for text in wrong {
        let said = with(text);
        let line = 1 + text.matches('\n').count();
        assert!(said.starts_with(&format!("data/scan.rs:{line}: ")), "{text}: {said}");
        assert!(said.contains("data comes before descend"), "{text}: {said}");
    }
    let right = [
        "use crate::linalg::lanes::Real;",
        "//! [`crate::descend`]\n/* crate::descend::f */ // crate::descend::f\nfn f() { g(\"crate::descend::f\", r\"\\\", 'c') }",
        "#[cfg(test)]\nmod tests {\n    use crate::descend::Batch;\n}",
        "#[cfg(test)] use crate::descend::{Batch, fit}; use crate::linalg::lanes::Real;",
    ];
    right.iter().for_each(|text| assert_eq!(with(text), "", "{text}"));
    assert!(said(&[("kitchen.rs", "")]).starts_with("kitchen: the room has no place yet"));
    assert!(said(&[("linalg/mod.rs", ""), ("data/mod.rs", "pub use crate::linalg::*;")]).contains("name what is used"));
}

#[test]
fn the_teacher_is_not_seen() {
    let teacher = ("teacher/mod.rs", "pub struct TeacherSpec;");
    let seen = said(&[teacher, ("learn/mod.rs", "use crate::teacher::TeacherSpec;")]);
    assert!(seen.starts_with("learn/mod.rs:1: crate::teacher::TeacherSpec: no room may see the teacher"), "{seen}");
    let tests = [("learn/mod.rs", "#[cfg(test)]\nmod tests;"), ("learn/tests.rs", "use crate::teacher::TeacherSpec;")];
    assert_eq!(said(&[&[teacher], &tests[..]].concat()), "");
}

#[test]
fn files_that_need_one_another_are_refused() {
    let room = ("learn/mod.rs", "mod a; mod b; mod c;\npub use b::{B as Bee};\nstruct Own;");
    let with = |a: &str, b: &str, c: &str| said(&[room, ("learn/a.rs", a), ("learn/b.rs", b), ("learn/c/mod.rs", c)]);
    // In two steps, through a re-export under another name, and in three.
    for (a, b, c) in [
        ("use super::b::B;", "use super::a::A;", ""),
        ("use super::Bee;", "use crate::learn::a::A;", ""),
        ("use super::b::B;", "fn f() { super::c::f() }", "use super::a::A;"),
    ] {
        let said = with(a, b, c);
        assert!(said.contains("learn/a.rs:1: ") && said.contains("learn/b.rs:1: "), "{said}");
        assert_eq!(said.contains("learn/c/mod.rs:1: "), !c.is_empty(), "{said}");
        assert!(said.contains("in learn need one another"), "{said}");
    }
    // Down is no harm, nor what stands in the room itself.
    assert_eq!(with("use super::{Own, b::B};", "use super::{Own, c};", "mod d; use super::Own;"), "");
}
