//! How a chain goes on: what it begins with, a few steps of its descent or its refinement, and a head drawn anew.

use crate::descend::optimise::adam::Adam;
use crate::descend::optimise::newton::Newton;
use crate::descend::pairs::extract::extract;
use crate::descend::pairs::relax::relax;
use crate::descend::search::plan::NORMS;
use crate::descend::search::redundant::{Redundant, cheapest};
use crate::descend::search::state::{Chain, Stage, last};
use crate::descend::search::task::Task;
use crate::descend::sharp::{self, Readings};
use crate::engine::normal::is_small;
use crate::engine::student::Student;
use crate::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Steps between two looks.
const STEPS: usize = 20;

/// Those of the descent of a small student.
const MANY_STEPS: usize = 200;

/// Start number `start`.
pub(crate) fn begin(task: &Task<'_>, start: usize) -> Result<Chain> {
    let mut rng = ChaCha8Rng::seed_from_u64(task.settings.seed);
    rng.set_stream(start as u64);
    let student = Student::random(task.form.clone(), NORMS[start % NORMS.len()], &mut rng)?;
    let stage = descent(task, &student, (start, 0));
    let (idle, readings) = (Redundant::default(), Readings::default());
    Ok(Chain { stage, start, redraws: 0, descents: 0, base: None, idle, readings, student, rng })
}

/// A descent from a student.
fn descent(task: &Task<'_>, student: &Student<f64>, (start, redraws): (usize, usize)) -> Stage {
    let seed = task.settings.seed.wrapping_add((start * 1000 + redraws) as u64);
    let values = student.values.iter().map(|v| *v as f32).collect();
    Stage::Descend(Box::new((Adam::new(task.form.len(), seed), Student { form: task.form.clone(), values })))
}

/// Some steps.
pub(crate) fn advance(task: &Task<'_>, chain: &mut Chain, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    match chain.stage {
        Stage::Over(..) => Ok(()),
        Stage::Descend(_) => descend(task, chain, stop),
        Stage::Relax(_) => relaxed(task, chain, stop),
        Stage::Refine(_) => refine(task, chain, stop),
    }
}

/// Some steps of Adam; after the last another descent, or a refinement.
fn descend(task: &Task<'_>, chain: &mut Chain, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    let Stage::Descend(going) = &mut chain.stage else { return Ok(()) };
    let (adam, student) = going.as_mut();
    let settings = task.plan.descent(chain.start, chain.redraws, chain.descents);
    let until = adam.step + if task.plan.large { STEPS } else { MANY_STEPS };
    let mut stopped = false;
    let over = adam.run(student, task.seen_by(chain.start), &settings, &mut |adam| {
        stopped = stop();
        stopped || adam.step >= until
    })?;
    if stopped {
        return Err(Error::Interrupted);
    }
    if over {
        chain.student = task.descended(student, chain.start);
        chain.stage = if task.plan.goes_on(adam.nmse, chain.descents) {
            chain.descents += 1;
            descent(task, &chain.student, (chain.start, chain.redraws))
        } else {
            match relax(&chain.student, task.examples.shape.k) {
                Some(free) => Stage::Relax(Box::new((Newton::new(&task.plan.relaxed), free))),
                None => Stage::Refine(Newton::new(&task.plan.newton)),
            }
        };
    }
    Ok(())
}

/// A step of Gauss–Newton with scores that are free in the distance; after the last the rotation behind them, and a refinement.
fn relaxed(task: &Task<'_>, chain: &mut Chain, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    let Stage::Relax(going) = &mut chain.stage else { return Ok(()) };
    let (newton, free) = going.as_mut();
    let examples = task.refine();
    if newton.step(free, task.seen(), &task.plan.relaxed, &[], &|_| stop())?.is_none() {
        return Ok(());
    }
    let rotation = task.form.scores.rotation.as_ref();
    if let Some(mut found) = rotation.and_then(|rotation| extract(free, rotation)) {
        examples.refit(&task.form, &mut found.values)?;
        // What free scores have come to nothing with is no reason to lose what descent has found.
        examples.refit(&task.form, &mut chain.student.values)?;
        let error = |student: &Student<f64>| examples.error(&task.form, &student.values);
        if error(&found) < error(&chain.student) {
            chain.student = found;
        }
    }
    chain.stage = Stage::Refine(Newton::new(&task.plan.newton));
    Ok(())
}

/// Some steps of Gauss–Newton, with sharp heads taken apart before or read off in between, and heads that do nothing drawn anew.
fn refine(task: &Task<'_>, chain: &mut Chain, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    let Stage::Refine(going) = &chain.stage else { return Ok(()) };
    let mut newton = going.clone();
    if newton.history.is_empty() {
        sharp::take_apart(&mut chain.student, task.refine(), stop)?;
    }
    for _ in 0..if is_small(&task.form) { STEPS } else { 1 } {
        let mut fixed = chain.idle.places(&chain.student);
        if task.plan.large {
            // Others move first: together, conjugate gradients would spend their products on what logits show better.
            fixed.extend(chain.readings.read(&mut chain.student, task.all(), stop)?);
        }
        let (examples, settings) = (task.refine(), &task.plan.newton);
        let why = newton.step(&mut chain.student, task.seen(), settings, &fixed, &|_| stop())?;
        let nmse = last(&newton);
        if let Some(why) = why {
            chain.stage = Stage::Over(why, nmse);
            return Ok(());
        }
        if newton.crawling() > 0 {
            chain.keep(nmse);
            let drawn = chain.idle.roused();
            if chain.idle.rouse(&mut chain.student, examples, nmse * task.variance, &mut chain.rng)? {
                chain.redraws += chain.idle.roused() - drawn;
                newton = Newton::new(settings);
            }
        }
    }
    chain.stage = Stage::Refine(newton);
    Ok(())
}

/// The best student since the start, with the head anew that it can do without best, and a descent from there.
pub(crate) fn redraw(task: &Task<'_>, chain: &mut Chain) -> Result<()> {
    if let Some(base) = &chain.base {
        chain.student = base.student.clone();
    }
    chain.idle = Redundant::default();
    chain.readings = Readings::default();
    let elimination = task.refine().refit(&task.form, &mut chain.student.values)?;
    let costs = elimination.removal_costs(&task.form, &chain.student.values);
    let least = cheapest(&costs);
    let norm = chain.student.norm_beside(least);
    chain.student.draw_head(least, norm, &mut chain.rng);
    chain.redraws += 1;
    chain.descents = 0;
    chain.stage = descent(task, &chain.student, (chain.start, chain.redraws));
    Ok(())
}
