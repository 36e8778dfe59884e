//! Layers of every kind, from outside: groups, rotary positions, norms, windows, relative biases.

use attnlearn::engine::{Form, Student};
use attnlearn::layer::{AttentionLayer, Head, Mask, Relative, Rotation, Scores, Terms, Theta};
use attnlearn::linalg::{Mat, frobenius};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::collections::BTreeMap;

fn rotary(mask: Mask, base: f64) -> Scores {
    Scores { rotation: Some(Rotation::of_base(base, 4)), ..Scores::of(mask) }
}

/// A layer of every kind, with random numbers everywhere.
fn layers(seed: u64) -> Vec<AttentionLayer> {
    let base = Form {
        d: 6,
        d_out: 4,
        heads: 4,
        rank: Some(4),
        value_rank: Some(3),
        groups: Some(2),
        key_bias: false,
        relative: None,
        bias: false,
        scores: rotary(Mask::Causal, 100.0),
    };
    let forms = [
        base.clone(),
        Form { scores: rotary(Mask::Window(3), 1e4), key_bias: true, bias: true, ..base.clone() },
        Form { scores: rotary(Mask::None, 10.0), groups: None, rank: Some(5), ..base.clone() },
        Form { scores: Scores { norm: Some(1e-6), ..rotary(Mask::Causal, 100.0) }, key_bias: true, ..base.clone() },
        Form { scores: Scores { norm: Some(0.1), ..Scores::of(Mask::None) }, groups: Some(1), ..base.clone() },
        Form { scores: Scores::of(Mask::Window(2)), relative: Some(6), rank: Some(2), ..base.clone() },
        Form { scores: Scores::of(Mask::None), relative: Some(4), rank: Some(2), key_bias: true, ..base.clone() },
        Form { rank: Some(2), scores: Scores::of(Mask::Causal), groups: None, key_bias: true, ..base },
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let layer = |form: Form| {
        let mut student = Student::<f64>::random(form, 3.0, &mut rng).expect("a valid form");
        student.values.iter_mut().for_each(|v| *v += 0.2 * rng.sample::<f64, _>(StandardNormal));
        student.layer().expect("finite numbers")
    };
    forms.into_iter().map(layer).collect()
}

fn normals(rows: usize, cols: usize, rng: &mut ChaCha8Rng) -> Mat<f64> {
    Mat::from_fn(rows, cols, |_, _| rng.sample(StandardNormal))
}

fn with_heads(layer: &AttentionLayer, heads: Vec<Head>) -> AttentionLayer {
    AttentionLayer::new(heads, layer.bias().map(<[f64]>::to_vec), layer.scores().clone()).expect("a valid layer")
}

/// The forward pass, in one go and in tiles, is the definition.
#[test]
fn the_forward_pass_is_the_definition() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (i, layer) in layers(1).iter().enumerate() {
        for k in [1, 5, 300] {
            let x = normals(k, 6, &mut rng);
            let plain: Vec<f64> = (0..k).flat_map(|a| (0..6).map(move |e| (a, e))).map(|at| x[at]).collect();
            let (y, exact) = (layer.forward(k, &plain), layer.forward_one(x.as_ref()));
            for (at, y) in y.iter().enumerate() {
                let exact = exact[(at / 4, at % 4)];
                assert!((y - exact).abs() < 1e-11 * (1.0 + exact.abs()), "kind {i}, k = {k}, {at}: {y} and {exact}");
            }
        }
    }
}

/// What is written is read, to the last bit; the same layer is the same bytes; keys that heads share are written once.
#[test]
fn files_keep_every_kind() {
    for (i, layer) in layers(2).iter().enumerate() {
        let bytes = layer.to_bytes(&BTreeMap::new()).unwrap();
        let read = AttentionLayer::from_bytes(&bytes, "layer").unwrap();
        assert_eq!(&read, layer, "kind {i}");
        assert_eq!(read.to_bytes(&BTreeMap::new()).unwrap(), bytes);
        assert_eq!(read.groups(), layer.groups());
        assert!(String::from_utf8_lossy(&bytes).contains("\"version\":\"2\""), "kind {i}");
    }
}

/// Slopes and tables are kept; a mixture of both has no place.
#[test]
fn relative_biases_are_kept() {
    let base = &layers(3)[6];
    let with = |all: [Option<Relative>; 4]| {
        let heads = base
            .heads()
            .iter()
            .zip(all)
            .map(|(head, relative)| Head { terms: Terms { relative, ..Terms::default() }, ..head.clone() });
        with_heads(base, heads.collect())
    };
    let slope = |s: f64| Some(Relative::Slope(s));
    let table = |first: isize| Some(Relative::Table { first, values: vec![1.0, 2.0] });
    let slopes = with([slope(0.5), slope(0.25), None, slope(1.0)]);
    let read = AttentionLayer::from_bytes(&slopes.to_bytes(&BTreeMap::new()).unwrap(), "layer").unwrap();
    assert!(slopes.distance(&read).unwrap().worst_theta() <= 0.0);
    let tables = with([table(-1), table(2), table(0), table(-5)]);
    let read = AttentionLayer::from_bytes(&tables.to_bytes(&BTreeMap::new()).unwrap(), "layer").unwrap();
    let x = normals(9, 6, &mut ChaCha8Rng::seed_from_u64(3));
    assert!(frobenius((tables.forward_one(x.as_ref()) - read.forward_one(x.as_ref())).as_ref()) < 1e-12);
    assert!(with([slope(0.5), table(0), None, None]).to_bytes(&BTreeMap::new()).is_err());
}

/// A complex number for every pair of a group, `α → zα`, `β → β/z̄`, and any order of heads and groups: the same layer, at distance 0, with the same canonical form.
#[test]
fn what_is_not_determined_makes_no_distance() {
    for seed in 0..3 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let layer = &layers(seed)[0];
        let z: Vec<[f64; 2]> = (0..4).map(|_| [rng.sample(StandardNormal), rng.sample(StandardNormal)]).collect();
        let groups = layer.groups();
        let pair = |m: &Mat<f64>, z: [f64; 2], j: usize| -> Vec<[f64; 2]> {
            (0..6).map(|i| [m[(i, j)] * z[0] - m[(i, j + 2)] * z[1], m[(i, j)] * z[1] + m[(i, j + 2)] * z[0]]).collect()
        };
        let turned = |m: &Mat<f64>, group: usize, key: bool| {
            let mut out = m.clone();
            for j in 0..2 {
                let z = z[2 * group + j];
                let size = z[0] * z[0] + z[1] * z[1];
                // 1/z̄ = z/|z|².
                let z = if key { [z[0] / size, z[1] / size] } else { z };
                for (i, [re, im]) in pair(m, z, j).into_iter().enumerate() {
                    (out[(i, j)], out[(i, j + 2)]) = (re, im);
                }
            }
            out
        };
        let mut heads: Vec<Head> = layer
            .heads()
            .iter()
            .zip(&groups)
            .map(|(head, group)| {
                let (a, b) = head.theta.factors().unwrap();
                Head::factored(turned(a, *group, false), turned(b, *group, true), head.w.clone())
            })
            .collect();
        heads.swap(0, 3);
        heads.swap(1, 2);
        let other = with_heads(layer, heads);
        let distance = layer.distance_within(&other, 12).unwrap();
        assert!(distance.worst_theta() < 1e-12 && distance.worst_w() <= 0.0, "{distance:?}");
        assert_eq!(distance.heads.iter().map(|head| head.other).collect::<Vec<_>>(), [3, 2, 1, 0]);
        let (one, two) = (layer.canonical(1e-9).layer, other.canonical(1e-9).layer);
        assert!(one.distance(&two).unwrap().heads.iter().all(|head| head.reference == head.other));
        // And what is different is seen, at distances that are looked at.
        let faster = AttentionLayer::new(layer.heads().to_vec(), None, rotary(Mask::Causal, 50.0)).unwrap();
        assert!(layer.distance_within(&faster, 12).unwrap().worst_theta() > 1e-2);
        assert!(layer.distance_within(&faster, 1).unwrap().worst_theta() < 1e-15, "one token shows no rotation");
    }
}

/// Heads that differ in their factors alone merge; a relative bias or another rotation makes another head.
#[test]
fn heads_that_attend_alike_merge() {
    let layer = &layers(5)[0];
    let head = &layer.heads()[0];
    let (a, b) = head.theta.factors().unwrap();
    let twin = Head::factored(a * faer::Scale(2.0), b * faer::Scale(0.5), head.w.clone());
    let biased = Head { terms: Terms { relative: Some(Relative::Slope(0.3)), ..Terms::default() }, ..head.clone() };
    let canonical = with_heads(layer, vec![head.clone(), twin, biased]).canonical(1e-9);
    assert_eq!(canonical.layer.heads().len(), 2, "{:?}", canonical.merged);
    // Under a norm the scale of one factor alone makes no difference.
    let layer = &layers(5)[4];
    let head = &layer.heads()[0];
    let (a, b) = head.theta.factors().unwrap();
    let twin = Head { theta: Theta::LowRank { a: a * faer::Scale(3.0), b: b.clone() }, ..head.clone() };
    let other = Head {
        theta: Theta::LowRank { a: Mat::from_fn(6, 4, |i, j| a[(i, j)] * (1.0 + j as f64)), b: b.clone() },
        ..head.clone()
    };
    assert_eq!(with_heads(layer, vec![head.clone(), twin, other]).canonical(1e-9).layer.heads().len(), 2);
}

/// What is made for scores `xᵀΘx′ + cᵀx′` refuses all others by name: the conditions of the theory, and models that have no place for them.
#[test]
fn what_has_no_room_for_more_refuses_it() {
    use attnlearn::degeneracy::Conditions;
    use attnlearn::transformer::Projections;
    let names = ["rotary", "rotary", "rotary", "rotary", "norms", "relative", "relative"];
    for (layer, name) in layers(4).iter().zip(names) {
        for said in [Conditions::of(layer, 4).map(drop), Projections::unfold(layer, 4).map(drop)] {
            assert!(said.unwrap_err().to_string().contains(name), "{name}");
        }
    }
    assert!(Conditions::of(&layers(4)[7], 4).is_ok() && Projections::unfold(&layers(4)[7], 2).is_ok());
}

/// What no layer can be is refused, with the head that is at fault.
#[test]
fn what_cannot_be_is_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let head = Head::factored(normals(6, 4, &mut rng), normals(6, 4, &mut rng), normals(6, 4, &mut rng));
    let refused = |head: &Head, scores: Scores, said: &str| {
        let error = AttentionLayer::new(vec![head.clone()], None, scores).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let dense = Head::dense(head.theta.to_dense(), head.w.clone());
    refused(&dense, rotary(Mask::Causal, 100.0), "head 0");
    refused(&head, Scores::of(Mask::Window(0)), "a window of 0 keys");
    refused(&head, Scores { rotation: Some(Rotation::of_base(1e4, 6)), ..Scores::default() }, "6 coordinates turn, a head has 4");
    refused(&head, Scores { rotation: Some(Rotation { frequencies: vec![f64::NAN] }), ..Scores::default() }, "not finite");
    refused(&head, Scores { norm: Some(-1.0), ..Scores::default() }, "an ε of -1");
    let gains = Terms { gains: Some([vec![1.0; 4], vec![1.0; 4]]), ..Terms::default() };
    refused(&Head { terms: gains, ..head.clone() }, rotary(Mask::None, 10.0), "gains without a norm");
    let query = Terms { query: Some(vec![1.0; 4]), ..Terms::default() };
    refused(&Head { terms: query.clone(), ..head.clone() }, Scores::default(), "biases of queries and keys");
    refused(
        &Head { terms: Terms { query: Some(vec![1.0; 3]), ..query }, ..head.clone() },
        rotary(Mask::None, 10.0),
        "for every coordinate",
    );
    let empty = Terms { relative: Some(Relative::Table { first: 0, values: vec![] }), ..Terms::default() };
    refused(&Head { terms: empty, ..head }, Scores::default(), "empty");
}
