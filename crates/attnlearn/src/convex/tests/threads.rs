//! The same bits on any number of threads.

use super::*;

fn answers(body: &Body) -> Vec<u64> {
    let settings = Settings::default();
    let u: Vec<f64> = (0..body.dimension()).map(|j| 1.0 / (1.0 + j as f64)).collect();
    let nearest = minimum_norm(body, &settings).unwrap();
    let e = extent(body, &u, &settings).unwrap();
    let inflation = least_inflation(body, &vec![1.0; body.count()], &settings).unwrap();
    let wide = wide_directions(body, 1, 5, &WideSettings { max_steps: 1, ..Default::default() }, &settings).unwrap();
    [nearest.point, nearest.multipliers, e.argmin, e.argmax, inflation.point, vec![inflation.t], wide.widths]
        .concat()
        .into_iter()
        .map(f64::to_bits)
        .collect()
}

#[test]
fn one_two_and_three_threads_agree() {
    let body = slabs(3000, 20, 0.1, 7);
    let on = |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| answers(&body));
    let one = on(1);
    assert_eq!(one, on(2));
    assert_eq!(one, on(3));
}
