//! The learner, from outside: `learn` and `demo`.

use crate::common::*;
use attnlearn::data::ExampleFile;
use attnlearn::engine::{Batch, Form, Student};
use attnlearn::layer::{AttentionLayer, Head, Mask, Rotation, Scores};
use attnlearn::linalg::Mat;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;

/// Fields that every report of the learner has.
const FIELDS: [&str; 15] = [
    "version",
    "command",
    "seed",
    "settings",
    "shape",
    "examples",
    "outcome",
    "outcome_text",
    "recovered",
    "before_polish",
    "after_polish",
    "certificate",
    "records",
    "seconds",
    "layer",
];

#[test]
fn learn_recovers_the_layer_behind_a_file() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 1e5 --d 5 --k 3 --heads 1 --norm 4 --layer-out t.safetensors --seed 1");
    let run = bench.good("learn e.npz --heads 1 -o l.safetensors --before-polish b.safetensors --json r.json");
    for part in
        ["crude sum of projections", "recovered", "before polish", "after polish", "with confidence", "wrote l.safetensors"]
    {
        assert!(run.out.contains(part), "{}", run.out);
    }
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    for field in FIELDS {
        assert!(report.get(field).is_some(), "{field}");
    }
    assert_eq!((report["outcome"]["kind"].as_str(), report["recovered"].as_bool()), (Some("recovered"), Some(true)));
    assert!(report["before_polish"]["nmse"].as_f64() > report["after_polish"]["nmse"].as_f64());
    let worst = |file: &str| {
        let json = bench.good(&format!("compare t.safetensors {file} --k 3 --quiet --json -")).json();
        json["worst_theta"].as_f64().expect("every head is there")
    };
    assert!(worst("l.safetensors") < 1e-8 && worst("b.safetensors") < 0.15);

    // Fresh examples confirm it.
    bench.good("generate -o fresh.npz --examples 2000 --k 3 --layer t.safetensors --seed 2");
    bench.good("verify l.safetensors fresh.npz --tolerance 1e-12");
    bench.good("inspect l.safetensors");
}

/// Heads as today's models have them: rotary, in groups, causal; told by flags, by a file of frequencies too, compared over the distances within a sequence.
#[test]
fn rotary_heads_in_groups_are_learned() {
    let bench = Workbench::new();
    let form = Form {
        d: 12,
        d_out: 12,
        heads: 2,
        rank: Some(4),
        value_rank: Some(4),
        groups: Some(1),
        key_bias: false,
        relative: None,
        bias: false,
        scores: Scores { rotation: Some(Rotation::of_base(1e4, 4)), ..Scores::of(Mask::Causal) },
    };
    let teacher = Student::<f64>::random(form, 2.0, &mut ChaCha8Rng::seed_from_u64(1)).expect("a valid form");
    let teacher = teacher.layer().expect("finite numbers").to_bytes(&BTreeMap::new()).expect("a layer");
    bench.write("t.safetensors", &teacher);
    bench.write("frequencies.txt", b"1 0.01\n");
    bench.good("generate -o e.npz --examples 300 --k 10 --layer t.safetensors --seed 2");
    let said = bench.good("inspect t.safetensors").out;
    assert!(said.contains("rotary positions of 2 pairs") && said.contains("1 key groups"), "{said}");
    let learn = "learn e.npz --heads 2 --rank 4 --value-rank 4 --kv-heads 1 --causal --biases no -o";
    bench.good(&format!("{learn} l.safetensors --rope 10000"));
    bench.good(&format!("{learn} again.safetensors --rope frequencies.txt"));
    assert_eq!(bench.read("l.safetensors"), bench.read("again.safetensors"));
    let json = bench.good("compare t.safetensors l.safetensors --k 10 --quiet --json -").json();
    assert!(json["worst_theta"].as_f64().expect("every head is there") < 1e-6, "{json}");
    // What has no room for a rotation says so, and leaves nothing behind.
    bench.refused("export l.safetensors --head-dim 4 -o model.safetensors", &["rotary positions"]);
    bench.refused("check l.safetensors", &["rotary positions"]);
    assert!(!bench.path("model.safetensors").exists());
}

#[test]
fn learning_gives_the_same_bits_on_any_number_of_threads() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 5e4 --d 4 --k 3 --heads 1 --norm 4 --seed 1");
    for threads in [1, 2] {
        bench.good(&format!("learn e.npz --heads 1 -o l{threads}.safetensors --threads {threads} --quiet"));
    }
    assert!(bench.read("l1.safetensors") == bench.read("l2.safetensors"));
}

#[test]
fn without_polish_there_is_no_error_after_it() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 5e4 --d 4 --k 3 --heads 1 --norm 4 --seed 1");
    let run = bench.run("learn e.npz --heads 1 --no-polish -o l.safetensors --quiet --json -");
    let report = run.json();
    assert!(report["after_polish"].is_null() && !report["before_polish"].is_null(), "{report}");
    // Heads that were found to a few digits were not recovered.
    assert_eq!(
        (run.code, report["recovered"].as_bool(), report["outcome"]["kind"].as_str()),
        (Some(1), Some(false), Some("approximated"))
    );
    assert!(
        report["outcome_text"].as_str().is_some_and(|text| text.starts_with("approximated, not polished: held-out NMSE")),
        "{report}"
    );
}

#[test]
fn noise_is_not_recovered() {
    let bench = Workbench::new();
    bench.write("noise.safetensors", &examples(1000, 3, 4, 4, noise, |i| noise(i + 77)));
    // Where nothing can be learned every start is tried: for minutes, if nobody ends it.
    let run = bench.run("learn noise.safetensors --heads 1 --time-limit 5s -o l.safetensors --json r.json");
    assert_eq!(run.code, Some(1), "{run:?}");
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    assert_eq!(report["recovered"], false);
    let text = report["outcome_text"].as_str().expect("text");
    assert!(run.out.contains(text), "{}", run.out);
    assert_eq!(report["layer"].is_null(), !bench.files().contains(&"l.safetensors".into()));
}

/// Learns without the polish, which must fail: the outcome in the JSON, told in the text too.
#[track_caller]
fn failed_outcome(bench: &Workbench, heads: usize) -> serde_json::Value {
    let run = bench.run(&format!("learn e.npz --heads {heads} --no-polish -o l.safetensors --json r.json"));
    assert_eq!((run.code, run.err.as_str()), (Some(1), ""), "{run:?}");
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    assert!(run.out.contains(report["outcome_text"].as_str().expect("text")), "{}", run.out);
    assert_eq!(report["layer"].is_null(), !bench.files().contains(&"l.safetensors".into()));
    report["outcome"].clone()
}

#[test]
fn too_few_examples_are_counted() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 2000 --d 6 --k 3 --heads 4 --norm 6");
    let outcome = failed_outcome(&bench, 4);
    assert_eq!((outcome["kind"].as_str(), outcome["needed"].as_u64()), (Some("not_enough_examples"), Some(54)));
    assert!(outcome["accepted"].as_u64().is_some_and(|accepted| accepted < 54), "{outcome}");
    assert!(!bench.files().contains(&"l.safetensors".into()));
}

#[test]
fn a_degenerate_layer_is_named_as_such() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 1 --d 6 --layer-out t.safetensors");
    let layer = AttentionLayer::load(&bench.path("t.safetensors")).expect("a layer");
    let (first, second) = (&layer.heads()[0], &layer.heads()[1]);
    let minus = Mat::from_fn(6, 6, |e, o| -first.w[(e, o)]);
    let heads = vec![first.clone(), Head::dense(second.theta.to_dense(), minus)];
    let layer = AttentionLayer::new(heads, None, Mask::None).expect("finite");
    layer.save(&bench.path("t.safetensors"), &Default::default()).expect("a writable folder");
    bench.good("generate -o e.npz --examples 5000 --k 3 --layer t.safetensors");
    let outcome = failed_outcome(&bench, 2);
    assert_eq!(outcome["kind"], "degenerate");
    assert!(outcome["condition"].as_str().is_some_and(|c| c.contains("Σ W_i vanishes")), "{outcome}");
}

#[test]
fn demo_recovers_its_teacher() {
    let bench = Workbench::new();
    let run = bench.good("demo --json r.json -o layer.safetensors");
    for part in
        ["Teacher: 2 heads", "Relative error of every head", "true", "after polish", "with confidence", "wrote layer.safetensors"]
    {
        assert!(run.out.contains(part), "{}", run.out);
    }
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    for field in FIELDS.into_iter().chain(["teacher", "inputs"]) {
        assert!(report.get(field).is_some(), "{field}");
    }
    assert!(report["before_polish"]["worst_theta"].as_f64().expect("a number") < 0.15, "{report}");
    assert!(report["after_polish"]["worst_theta"].as_f64().expect("a number") < 1e-8, "{report}");

    // The teacher of the demonstration is the one that generate draws from the same seed.
    bench.good("generate -o e.npz --examples 2000 --layer-out t.safetensors --seed 0 --quiet");
    let compared = bench.good("compare t.safetensors layer.safetensors --quiet --json -").json();
    assert!(compared["worst_theta"].as_f64().expect("every head is there") < 1e-8, "{compared}");
}

/// Two heads with biases from few examples, without being told how many there are; stopped by nothing, nothing is left behind but the layer.
#[test]
fn descent_recovers_a_layer_from_few_examples() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 600 --d 6 --k 4 --heads 2 --norm 3 --layer-out t.safetensors --seed 1");
    let run = bench.good("learn e.npz --method descend -o l.safetensors --json r.json");
    for part in ["recovered", "2 heads", "with confidence", "wrote l.safetensors"] {
        assert!(run.out.contains(part), "{}", run.out);
    }
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    assert_eq!((report["method"].as_str(), report["recovered"].as_bool()), (Some("descend"), Some(true)));
    let compared = bench.good("compare t.safetensors l.safetensors --k 4 --quiet --json -").json();
    assert!(compared["worst_theta"].as_f64().expect("every head is there") < 1e-8, "{compared}");
    assert!(!bench.files().iter().any(|file| file.contains("checkpoint")), "{:?}", bench.files());
    for threads in [1, 2] {
        bench.good(&format!("learn e.npz --method descend --heads 2 -o l{threads}.safetensors --threads {threads} --quiet"));
    }
    assert!(bench.read("l1.safetensors") == bench.read("l2.safetensors"));
}

#[test]
fn flags_of_the_other_method_are_refused() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 3000 --d 4 --k 3 --heads 1");
    for (flags, said) in [
        ("--method sculpt --rank 2", "--method descend"),
        ("--method sculpt --causal", "--method descend"),
        ("--no-polish --resume", "--method descend"),
        ("--no-polish --heads 1..2", "--method descend"),
        ("--heads 3..2", "the range is empty"),
        ("--method descend --no-polish", "--method sculpt"),
        ("--method descend --resume", "no search to continue"),
        ("--method descend --rank 5", "from 1 to d"),
        ("--method descend --heads 0", "at least one"),
    ] {
        let run = bench.run(&format!("learn e.npz -o l.safetensors {flags}"));
        assert_eq!(run.code, Some(2), "{flags}: {run:?}");
        assert!(run.err.contains(said), "{flags}: {}", run.err);
    }
    assert_eq!(bench.files(), ["e.npz"]);
    // A checkpoint that is no checkpoint.
    bench.write("l.safetensors.checkpoint", b"something else");
    let run = bench.run("learn e.npz -o l.safetensors --method descend");
    assert!(run.code == Some(2) && run.err.contains("is there already and no search that was kept"), "{run:?}");
    let run = bench.run("learn e.npz -o l.safetensors --method descend --resume");
    assert!(run.code == Some(2) && run.err.contains("no checkpoint of a search"), "{run:?}");
}

/// The error falls with every head until there are as many as the teacher has; there the curve ends.
#[test]
fn error_against_size_is_told() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 600 --d 5 --k 4 --heads 2 --norm 3 --seed 3");
    let run = bench.good("learn e.npz --heads 1..3 --biases no -o l.safetensors --json r.json");
    assert!(
        run.out.contains("Error against size")
            && run.out.matches("NMSE, choosing").count() == 1
            && run.out.matches("held-out NMSE").count() == 1,
        "{}",
        run.out
    );
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    let tries = report["tries"].as_array().expect("an array");
    let errors: Vec<f64> = tries.iter().map(|t| t["held_out_nmse"].as_f64().expect("a number")).collect();
    assert!(errors.len() == 2 && errors[0] > 1e-4 && errors[1] < 1e-20, "{errors:?}");
    assert_eq!(report["chosen"], 1);
    // Every try is told when it is over, the last one too.
    assert!(run.out.contains("  1 head: NMSE") && run.out.contains("  2 heads: NMSE"), "{}", run.out);
}

/// Outputs with noise of a tenth of their size: with `--noise` that is found and is a success, without it is not.
#[test]
fn noise_is_measured_where_it_is_expected() {
    let bench = Workbench::new();
    bench.good("generate -o plain.npz --examples 2000 --d 4 --k 3 --heads 1 --norm 3 --layer-out t.safetensors --seed 5");
    let file = ExampleFile::open(&bench.path("plain.npz")).expect("examples");
    let mut batch = Batch::<f64>::read(&file, 0..8, 2000).expect("examples");
    let size = (batch.variance().expect("not constant") / batch.y.len() as f64).sqrt();
    // Uniform between −√3 and √3: variance 1.
    batch.y.iter_mut().enumerate().for_each(|(i, y)| *y += 0.1 * size * 3.0_f64.sqrt() * noise(i + 9));
    let (x, y) = (batch.x, batch.y);
    bench.write("e.safetensors", &examples(2000, 3, 4, 4, |i| x[i], |i| y[i]));
    let run = bench.good("learn e.safetensors --heads 1 --noise -o l.safetensors --json r.json");
    assert!(run.out.contains("recovered up to noise"), "{}", run.out);
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    let relative = report["noise"]["relative"].as_f64().expect("a number");
    assert!((relative / 0.1 - 1.0).abs() < 0.1, "{relative}");
    let compared = bench.good("compare t.safetensors l.safetensors --k 3 --quiet --json -").json();
    assert!(compared["worst_theta"].as_f64().expect("every head is there") < 0.1, "{compared}");
    let run = bench.run("learn e.safetensors --heads 1 --method descend -o other.safetensors");
    assert!(run.code == Some(1) && run.out.contains("several starts end at NMSE"), "{run:?}");
    assert!(run.out.contains("what is left looks like noise, and --noise would accept it"), "{run:?}");
    assert_eq!(report["lack_of_fit"]["verdict"], "noise");
    // The greatest of all tokens is no attention layer, whatever is said of noise.
    let most = |i: usize| {
        (0..3).map(|b| x[i / 12 * 12 + b * 4 + i % 4] + 0.3 * noise(i / 12 * 12 + b * 4 + i % 4)).fold(f64::MIN, f64::max)
    };
    let token = |i: usize| x[i] + 0.3 * noise(i);
    bench.write("most.safetensors", &examples(400, 3, 4, 4, token, most));
    for flag in ["--noise", ""] {
        let run = bench.run(&format!(
            "learn most.safetensors --heads 1 {flag} --method descend -o most-{}.safetensors --json r.json",
            flag.len()
        ));
        let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
        assert_eq!((run.code, report["lack_of_fit"]["verdict"].as_str()), (Some(1), Some("another_function")), "{run:?}");
        assert!(run.out.contains("another function: inputs explain") && !run.out.contains("--noise"), "{run:?}");
    }
}

/// A search without time ends at once with the best so far, a certificate and the search to continue, which then ends like one that had all the time.
#[test]
fn a_limit_of_time_keeps_the_best_so_far() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 600 --d 5 --k 4 --heads 2 --norm 3 --seed 3");
    let learn = "learn e.npz --heads 2 --method descend -o l.safetensors";
    let run = bench.run(&format!("{learn} --time-limit 0.000001s --json r.json"));
    assert_eq!((run.code, run.err.as_str()), (Some(1), ""), "{run:?}");
    assert!(run.out.contains("stopped by the limit of time") && run.out.contains("continue with --resume"), "{run:?}");
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    assert!(report["out_of_time"] == true && report["recovered"] == false, "{report}");
    // A few of these sequences have the tokens of another, and do not count.
    let certified = &report["certificate"]["n"];
    assert!(*certified == report["split"]["certify"] && (110..=120).contains(&certified.as_u64().unwrap_or(0)), "{report}");
    assert!(bench.files().contains(&"l.safetensors".into()) && bench.files().contains(&"l.safetensors.checkpoint".into()));
    let resumed = bench.good(&format!("{learn} --resume"));
    assert!(resumed.out.contains("recovered") && !bench.files().contains(&"l.safetensors.checkpoint".into()), "{resumed:?}");
    bench.good("learn e.npz --heads 2 --method descend -o whole.safetensors --time-limit 2h");
    assert!(bench.read("whole.safetensors") == bench.read("l.safetensors"));
    for limit in ["0", "-3s", "soon", "10x"] {
        bench.refused(&format!("{learn} --time-limit={limit}"), &["time"]);
    }
    bench
        .refused("learn e.npz --heads 2 --method sculpt -o s.safetensors --time-limit 1m", &["--time-limit", "--method descend"]);
}

/// What squares of double precision do not hold is refused by its name, with the way out.
#[test]
fn sizes_beyond_squares_are_refused_by_name() {
    let bench = Workbench::new();
    for (x, y, remedy) in [
        (1.0, 1e160, "scale the outputs down"),
        (1.0, 1e-160, "scale the outputs up"),
        (1e160, 1.0, "scale the inputs down"),
        (1e-160, 1.0, "scale the inputs up"),
    ] {
        bench.write("e.safetensors", &examples(300, 3, 4, 4, |i| x * noise(i), |i| y * noise(i + 77)));
        bench.refused("learn e.safetensors --heads 1 --method descend -o l.safetensors", &[remedy]);
    }
}

/// A search that is interrupted leaves its checkpoint and a layer; continued, it ends with the bits of one that ran through.
#[cfg(unix)]
#[test]
fn an_interrupted_search_is_continued() {
    let bench = Workbench::new();
    bench.write("e.safetensors", &examples(300, 3, 8, 8, |i| noise(i).signum(), |i| noise(i + 77)));
    let learn = |output: &str| format!("learn e.safetensors --heads 5 --biases no --method descend -o {output} --quiet");
    assert_eq!(bench.run(&learn("whole.safetensors")).code, Some(1));
    // On a busy machine it takes a while until it listens and has read the examples; before that there is nothing to keep.
    let interrupted = [100, 200, 400, 800, 1600].into_iter().any(|milliseconds| {
        let child = bench.command(&learn("parts.safetensors")).stderr(std::process::Stdio::piped()).spawn().expect("starts");
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        let run: Run = child.wait_with_output().expect("ends").into();
        assert!(run.code.is_none() || (run.code == Some(130) && run.err == "attnlearn: interrupted\n"), "{killed} {run:?}");
        bench.files().contains(&"parts.safetensors.checkpoint".into())
    });
    assert!(interrupted, "{:?}", bench.files());
    bench.good("inspect parts.safetensors");
    // Not by accident from the beginning.
    let run = bench.run(&learn("parts.safetensors"));
    assert!(run.code == Some(2) && run.err.contains("continue it with --resume"), "{run:?}");
    assert_eq!(bench.run(&format!("{} --resume", learn("parts.safetensors"))).code, Some(1));
    assert!(bench.read("whole.safetensors") == bench.read("parts.safetensors"));
    assert!(!bench.files().iter().any(|file| file.contains("checkpoint")), "{:?}", bench.files());
}

/// Thirty examples of no attention layer, each twice: that is said, what is learned from them explains no others, and copies of eight are too few.
#[test]
fn copies_are_told_and_not_counted() {
    let bench = Workbench::new();
    let file = |distinct: usize| {
        let x = move |i: usize| 2.0 * noise((i % (distinct * 12)).pow(2) * 31 + 7);
        let token = |i: usize| i / 4 * 4;
        let y = move |i: usize| (x(token(i)) - x(token(i) + 1)).tanh() + (x(token(i) + 2) * x(token(i) + 3)).max(0.0);
        examples(60, 3, 4, 4, x, y)
    };
    bench.write("e.safetensors", &file(30));
    let run = bench.run("learn e.safetensors --heads 8 -o l.safetensors --json r.json");
    assert_eq!(run.code, Some(1), "{run:?}");
    for part in ["30 of 60 repeat the input of another", "not recovered", "(6 held-out examples)"] {
        assert!(run.out.contains(part), "{}", run.out);
    }
    let report: serde_json::Value = serde_json::from_slice(&bench.read("r.json")).expect("JSON");
    assert_eq!((report["split"]["repeats"].as_u64(), report["certificate"]["n"].as_u64()), (Some(30), Some(6)));
    bench.write("few.safetensors", &file(8));
    for method in ["auto", "descend"] {
        bench
            .refused(&format!("learn few.safetensors --method {method} -o f.safetensors"), &["only 8 different inputs among 60"]);
    }
    assert!(!bench.files().contains(&"f.safetensors".into()));
}

/// What does not fit in the memory allowed is left out, and said.
#[test]
fn examples_beyond_memory_are_left_out_and_said() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 9000 --inputs gaussian --d 4 --k 3 --heads 1 --norm 3 --seed 5");
    let run = bench.good("learn e.npz --heads 1 --memory 0.003 -o l.safetensors --report l.html");
    let said = "of 9 000, drawn at random, do not fit in memory and are left out: allow more with --memory";
    assert!(run.out.contains(said) && String::from_utf8_lossy(&bench.read("l.html")).contains(said), "{}", run.out);
    bench
        .refused("learn e.npz --heads 1 --memory 1e-6 -o m.safetensors", &["memory: ", "may be taken; allow more with --memory"]);
}
