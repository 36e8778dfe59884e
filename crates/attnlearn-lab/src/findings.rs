//! The findings as a page of Markdown, for a repository: what is claimed, what was seen, where they differ, with the plots beside it as files.

use crate::experiment::{Finding, Stance, Table};
use crate::report::versions;
use crate::run::Finished;
use attnlearn_page::page::duration;
use std::fmt::Write as _;

/// A cell cannot hold what ends it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | "))
}

fn table(table: &Table) -> String {
    let rule: Vec<String> = table.columns.iter().map(|_| "---".into()).collect();
    let rows: String = table.rows.iter().map(|cells| row(cells)).collect();
    format!("{}\n\n{}{}{rows}\n", table.caption, row(&table.columns), row(&rule))
}

/// Where findings stand.
const HEADINGS: [(&str, Stance); 3] =
    [("Seen as claimed", Stance::Agrees), ("Seen otherwise", Stance::Differs), ("Seen", Stance::Open)];

/// How a finding stands to the claim, in a sign, and what it comes to.
fn marked(finding: &Finding) -> String {
    let mark = match finding.stance {
        Stance::Agrees => '✓',
        Stance::Differs => '✗',
        Stance::Open => '–',
    };
    format!("{mark} {}", finding.headline())
}

/// Text in which a star is one, and that stays within its item of a list.
fn plain(text: &str) -> String {
    text.replace('*', "\\*").replace('\n', "\n  ")
}

/// A finding as an item of a list: what it comes to, and after a colon what it is made up of.
fn item(finding: &Finding) -> String {
    match finding.text.split_once(": ") {
        Some((headline, rest)) => format!("- **{}**: {}\n", plain(headline), plain(rest)),
        None => format!("- **{}**\n", plain(&finding.text)),
    }
}

/// The page; plots are looked for in `folder`, relative to it, one folder an experiment.
pub fn markdown(finished: &[&Finished], folder: &str) -> String {
    let mut text = String::from("# Findings\n\n");
    let total: f64 = finished.iter().map(|finished| finished.seconds).sum();
    let _ = writeln!(
        text,
        "What the papers claim, what was seen, and where they differ. This page, its figures and every sentence about what was seen were computed from measurements by attnlearn {}; they took {} of measuring, added up over points. \
         Intervals have confidence 95 % and speak of the spread over seeds unless a sentence names another. Files that commands name are beside this page.\n",
        versions(finished),
        duration(total)
    );
    text.push_str("✓ as claimed · ✗ not as claimed · – nothing is claimed, or the data do not tell\n\n| experiment | what was found |\n|---|---|\n");
    for finished in finished {
        let link = format!("[{}](#{})", finished.title, anchor(finished.title));
        let found: Vec<String> = finished.summary.findings.iter().map(marked).collect();
        text.push_str(&row(&[link, found.join("<br>")]));
    }
    for finished in finished {
        let _ =
            writeln!(text, "\n## {}\n\n**Asked.** {}\n\n**Claimed.** {}\n", finished.title, finished.question, finished.claim);
        for (heading, stance) in HEADINGS {
            let of: String = finished.summary.findings.iter().filter(|one| one.stance == stance).map(item).collect();
            if !of.is_empty() {
                let _ = writeln!(text, "**{heading}.**\n\n{of}");
            }
        }
        for figure in &finished.summary.figures {
            let _ = writeln!(
                text,
                "![{}]({folder}/{}/{}.svg)\n\n*{}* {}\n",
                figure.title, finished.name, figure.name, figure.title, figure.caption
            );
        }
        finished.summary.tables.iter().for_each(|one| text.push_str(&table(one)));
        let _ = writeln!(
            text,
            "`{}`: {} points, {} rows, {}{}.{}",
            finished.command(folder),
            finished.points,
            finished.rows,
            duration(finished.seconds),
            if finished.together { ", several at a time" } else { "" },
            if finished.overtaken { " A later run has begun with another `config.toml`." } else { "" }
        );
    }
    text
}

/// Where a heading can be linked to.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Scale, Summary};

    #[test]
    fn a_page_has_what_was_seen() {
        let table = Table {
            caption: "Norms.".into(),
            columns: vec!["‖Θ‖".into(), "n".into()],
            rows: vec![vec!["a|b".into(), "2".into()]],
        };
        let summary = Summary {
            findings: vec![Finding::differs("Up: by two f*."), Finding::differs("So f* is."), Finding::open("Or not.")],
            tables: vec![table],
            figures: Vec::new(),
        };
        let finished = Finished {
            name: "ups",
            title: "Ups, and downs",
            question: "Which?",
            claim: "Down.",
            scale: Scale::Full,
            seed: 3,
            points: 2,
            rows: 4,
            seconds: 600.0,
            version: "1".into(),
            config: toml::Table::new(),
            by_default: true,
            together: false,
            overtaken: false,
            summary,
        };
        let page = markdown(&[&finished], "findings");
        for part in [
            "| [Ups, and downs](#ups-and-downs) | ✗ Up<br>✗ So f* is<br>– Or not |",
            "**Claimed.** Down.",
            "by attnlearn 1; they took 10 min 0 s of measuring, added up over points.",
            "**Seen otherwise.**\n\n- **Up**: by two f\\*.\n- **So f\\* is.**\n\n**Seen.**\n\n- **Or not.**\n\n",
            "| a\\|b | 2 |",
            "`attnlearn lab run ups --scale full --seed 3`: 2 points, 4 rows, 10 min 0 s.",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let page = markdown(&[&Finished { by_default: false, together: true, ..finished }], "findings");
        assert!(page.contains("--seed 3 --config findings/ups/config.toml`"), "{page}");
        assert!(page.contains("10 min 0 s, several at a time."), "{page}");
    }
}
