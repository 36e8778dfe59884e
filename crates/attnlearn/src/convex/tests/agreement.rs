//! Agreement with Clarabel, a general solver, on the value of every program.

use super::*;
use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettingsBuilder, DefaultSolver, IPSolver, SolverStatus, SupportedConeT};

/// `min q/2 ‖θ‖² + ⟨c, θ⟩ + γ t` over the body, opened by `t w`, with rows of length 1; nothing when Clarabel itself
/// falls short of its tolerance.
fn reference(body: &Body, q: f64, c: &[f64], inflation: Option<(&[f64], &[f64], &[f64])>) -> Option<f64> {
    let p = body.dimension();
    let columns = p + usize::from(inflation.is_some());
    let (lower, upper) = inflation.map_or((body.lower(), body.upper()), |(lower, upper, _)| (lower, upper));
    // Rows ⟨row, x⟩ = bound, then ⟨row, x⟩ ≤ bound.
    let (mut equations, mut inequalities) = (vec![], vec![]);
    for r in 0..body.count() {
        let length = if body.norms()[r] > 0.0 { body.norms()[r] } else { 1.0 };
        let open = inflation.map_or(0.0, |(.., w)| w[r] / length);
        let side = |sign: f64| {
            let mut row: Vec<f64> = body.row(r).iter().map(|v| sign * v / length).collect();
            row.resize(columns, -open);
            row
        };
        if inflation.is_none() && upper[r] - lower[r] < 1e-10 * length {
            equations.push((side(1.0), 0.5 * (lower[r] + upper[r]) / length));
            continue;
        }
        if upper[r].is_finite() {
            inequalities.push((side(1.0), upper[r] / length));
        }
        if lower[r].is_finite() {
            inequalities.push((side(-1.0), -lower[r] / length));
        }
    }
    for j in 0..p {
        for sign in [1.0, -1.0] {
            let mut row = vec![0.0; columns];
            row[j] = sign;
            inequalities.push((row, body.radius()));
        }
    }
    if inflation.is_some() {
        let mut row = vec![0.0; columns];
        row[p] = -1.0;
        inequalities.push((row, 0.0));
    }
    let (mut rows, mut cols, mut values, mut bounds) = (vec![], vec![], vec![], vec![]);
    for (i, (row, bound)) in equations.iter().chain(&inequalities).enumerate() {
        bounds.push(*bound);
        for (j, value) in row.iter().enumerate().filter(|(_, value)| value.abs() > 0.0) {
            rows.push(i);
            cols.push(j);
            values.push(*value);
        }
    }
    let matrix = CscMatrix::new_from_triplets(bounds.len(), columns, rows, cols, values);
    let mut quadratic = CscMatrix::identity(columns);
    quadratic.nzval.fill(q);
    let mut linear = c.to_vec();
    linear.resize(columns, 1.0);
    let cones = [SupportedConeT::ZeroConeT(equations.len()), SupportedConeT::NonnegativeConeT(inequalities.len())];
    let settings =
        DefaultSettingsBuilder::default().verbose(false).tol_gap_abs(1e-10).tol_gap_rel(1e-10).tol_feas(1e-10).build().unwrap();
    let mut solver = DefaultSolver::new(&quadratic, &linear, &matrix, &bounds, &cones, settings).unwrap();
    solver.solve();
    (solver.solution.status == SolverStatus::Solved).then_some(solver.solution.obj_val)
}

/// Equal to 1e-6, relative to the larger of the values and of `size`.
fn assert_close(ours: f64, theirs: f64, size: f64, what: &str) {
    let error = (ours - theirs).abs() / ours.abs().max(theirs.abs()).max(size);
    assert!(error < 1e-6, "{what}: {ours} against {theirs}, relative difference {error:e}");
}

/// Returns how many of the four values could be compared.
fn check(body: &Body, seed: u64) -> usize {
    let mut compared = 0;
    let (p, settings) = (body.dimension(), Settings::default());
    let nearest = minimum_norm(body, &settings).unwrap();
    assert_eq!(nearest.status, Status::Solved, "minimum norm, body {seed}");
    if let Some(value) = reference(body, 1.0, &vec![0.0; p], None) {
        compared += 1;
        assert_close(0.5 * dot(&nearest.point, &nearest.point), value, 1e-2, &format!("minimum norm, body {seed}"));
    }

    let mut rng = ChaCha8Rng::seed_from_u64(seed + 1_000_000);
    let u: Vec<f64> = (0..p).map(|_| normal(&mut rng)).collect();
    let against: Vec<f64> = u.iter().map(|u| -u).collect();
    let e = extent(body, &u, &settings).unwrap();
    assert_eq!(e.status, Status::Solved, "extent, body {seed}");
    if let (Some(low), Some(high)) = (reference(body, 0.0, &u, None), reference(body, 0.0, &against, None)) {
        compared += 2;
        assert_close(e.low, low, norm(&u), &format!("low, body {seed}"));
        assert_close(e.high, -high, norm(&u), &format!("high, body {seed}"));
    }

    let weights: Vec<f64> = body.norms().iter().map(|n| (n + 1e-3) * rng.random_range(0.5..2.0)).collect();
    let inflation = least_inflation(body, &weights, &settings).unwrap();
    assert_eq!(inflation.status, Status::Solved, "inflation, body {seed}");
    let centre = |r: usize| {
        let middle = 0.5 * (body.lower()[r] + body.upper()[r]);
        if middle.is_finite() { (middle, middle) } else { (body.lower()[r], body.upper()[r]) }
    };
    let (lower, upper): (Vec<f64>, Vec<f64>) = (0..body.count()).map(centre).unzip();
    if let Some(t) = reference(body, 0.0, &vec![0.0; p], Some((&lower, &upper, &weights))) {
        compared += 1;
        assert_close(inflation.t, t, 0.1, &format!("inflation, body {seed}"));
    }
    compared
}

#[test]
fn degenerate_bodies() {
    let compared: usize = (0..400).map(|seed| check(&degenerate_body(seed), seed)).sum();
    assert!(compared > 1500, "Clarabel solved only {compared} of 1600 programs");
}

#[test]
fn slabs_of_every_width() {
    for (seed, xi) in [1.0, 1e-2, 1e-4, 1e-6, 1e-8].into_iter().enumerate() {
        assert_eq!(check(&slabs(150, 9, xi, seed as u64), seed as u64), 4);
    }
}
