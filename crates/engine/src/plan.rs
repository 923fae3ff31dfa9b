//! Planning: ask every search, keep the cheapest sound answer, and say how good it is.

use crate::desk::Desk;
use crate::draft::Draft;
use crate::problem::Problem;
use crate::{alike, bound, by_value, first_fit, judge, refuse, write};
use kerf_model::{Binder, Candidate, Cost, Effort, Money, Plan, Report, Robustness, Snapshot, Spent, Step, Strategy};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::thread::ScopedJoinHandle;

/// How much more fewer nodes may cost. Agents, addresses and image pulls are paid per node, but whoever pays the bill
/// should hardly notice.
const PREMIUM_PERCENT: i64 = 10;

/// Plans where the pending pods go, and what to buy for those that fit nowhere.
///
/// Flow: classes of alike pods; existing nodes first; then new ones by every strategy; the cheapest that places the
/// most wins.
/// Guarantees: total (any snapshot yields a plan), repeatable (the same snapshot gives the same plan, whatever the order
/// of its parts), sound (rules are checked as pods are placed), never dearer than first fit.
/// Assumes: facts in the snapshot belong to one revision.
/// Caveats: a spent effort shows in the report, and the plan is then merely sound.
pub fn plan_capacity(snapshot: &Snapshot, effort: &Effort) -> (Plan, Report) {
    let (problem, scopes) = Problem::of(snapshot);
    let desk = Desk::new(&problem, scopes);
    let (mut answers, spent) = search(&desk, effort);
    if snapshot.settings.placed_by == Binder::KubeScheduler {
        for answer in &mut answers {
            answer.robustness = judge::robustness(&mut answer.desk, &answer.draft, answer.cost);
        }
    }
    // No answer dearer than first fit is taken, nor one much dearer than the cheapest, however few its nodes; what is left
    // is ranked with the nodes' overhead.
    let most_placed = answers.iter().map(|answer| answer.draft.n_placed()).max().unwrap_or(0);
    let comparable = || answers.iter().filter(|answer| answer.draft.n_placed() == most_placed);
    let cheapest = comparable().map(Answer::after).min().unwrap_or_default();
    let floor = comparable().find(|answer| answer.strategy == Strategy::FirstFit).map(Answer::after);
    let ceiling = Money::from_micros(cheapest.micros + cheapest.micros / 100 * PREMIUM_PERCENT);
    let ceiling = floor.map_or(ceiling, |floor| floor.min(ceiling));
    answers.sort_by_key(|answer| {
        let overhead = snapshot.settings.node_overhead * answer.draft.new_bins().len() as i64;
        let is_dear = answer.after() > ceiling;
        (Reverse(answer.draft.n_placed()), is_dear, answer.after() + overhead, answer.strategy)
    });
    finish(effort, answers, spent)
}

/// The name of the threads that are begun here. A panic on one ends the thought that began it, and nothing else.
pub const THREAD: &str = "thought";

/// Asks every strategy, two at a time; each has its own desk, so the order of finishing cannot matter.
fn search<'p, 'a>(desk: &Desk<'p, 'a>, effort: &Effort) -> (Vec<Answer<'p, 'a>>, Spent) {
    std::thread::scope(|scope| {
        let of_floor = std::thread::Builder::new().name(THREAD.to_owned());
        let floor = of_floor.spawn_scoped(scope, || first_fit_answer(desk.clone(), effort));
        let mut answers: Vec<Answer<'p, 'a>> = Vec::new();
        let mut spent = Spent::default();
        answers.extend(answer_by(Strategy::ByValue, desk.clone(), effort, &mut spent));
        let n_bins = answers.first().map_or(0, |answer| answer.draft.new_bins().len());
        if alike::applies(desk, n_bins) {
            answers.extend(answer_by(Strategy::Alike, desk.clone(), effort, &mut spent));
        }
        let floor = match floor.map(ScopedJoinHandle::join) {
            Ok(Ok(floor)) => floor,
            // With its own words: whoever guards this thread guards that one.
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // No thread is to be had.
            Err(_) => first_fit_answer(desk.clone(), effort),
        };
        note_effort(&floor.draft, &mut spent);
        answers.push(floor);
        (answers, spent)
    })
}

/// The floor: largest pod first, into the first place with room.
pub fn plan_first_fit(snapshot: &Snapshot, effort: &Effort) -> (Plan, Report) {
    let (problem, scopes) = Problem::of(snapshot);
    let answer = first_fit_answer(Desk::new(&problem, scopes), effort);
    let mut spent = Spent::default();
    note_effort(&answer.draft, &mut spent);
    finish(effort, vec![answer], spent)
}

/// Whether first fit places every pod of the snapshot.
pub(crate) fn places_all(snapshot: &Snapshot, effort: &Effort) -> bool {
    let (problem, scopes) = Problem::of(snapshot);
    let answer = first_fit_answer(Desk::new(&problem, scopes), effort);
    answer.waiting.iter().all(|waiting| *waiting == 0)
}

/// A finished draft, with the desk it was made at.
pub(crate) struct Answer<'p, 'a> {
    pub(crate) strategy: Strategy,
    pub(crate) desk: Desk<'p, 'a>,
    pub(crate) draft: Draft,
    pub(crate) waiting: first_fit::Waiting,
    pub(crate) cost: Money,
    pub(crate) robustness: Option<Robustness>,
}

impl Answer<'_, '_> {
    /// What it costs in the end: with the nodes for pods that kube-scheduler would leave over.
    fn after(&self) -> Money {
        self.robustness.as_ref().map_or(self.cost, |robustness| robustness.worst_cost)
    }
}

fn first_fit_answer<'p, 'a>(mut desk: Desk<'p, 'a>, effort: &Effort) -> Answer<'p, 'a> {
    let mut at_most: BTreeMap<usize, u32> = BTreeMap::new();
    loop {
        let mut draft = Draft::new(desk.problem, effort.max);
        for (pool, n) in &at_most {
            draft.bins_left[*pool] = *n;
        }
        let mut waiting = write::everyone(&desk);
        first_fit::place_all(&mut desk, &mut draft, &mut waiting);
        // Each round allows at least one pool at least one bin less, so that this ends.
        let overstretched = write::overstretched(&desk, &draft);
        if overstretched.is_empty() {
            return answer(Strategy::FirstFit, desk, draft, waiting);
        }
        at_most.extend(overstretched);
    }
}

fn answer_by<'p, 'a>(
    strategy: Strategy,
    mut desk: Desk<'p, 'a>,
    effort: &Effort,
    spent: &mut Spent,
) -> Option<Answer<'p, 'a>> {
    let mut draft = Draft::new(desk.problem, effort.max);
    let mut waiting = write::everyone(&desk);
    let place_all = if strategy == Strategy::Alike { alike::place_all } else { by_value::place_all };
    let outcome = place_all(&mut desk, &mut draft, &mut waiting);
    note_effort(&draft, spent);
    outcome?;
    write::overstretched(&desk, &draft).is_empty().then(|| answer(strategy, desk, draft, waiting))
}

fn note_effort(draft: &Draft, spent: &mut Spent) {
    spent.steps += draft.steps;
    spent.is_cut_off |= draft.is_spent();
}

fn answer<'p, 'a>(
    strategy: Strategy,
    desk: Desk<'p, 'a>,
    draft: Draft,
    mut waiting: first_fit::Waiting,
) -> Answer<'p, 'a> {
    for (waiting, awaiting) in waiting.iter_mut().zip(&draft.awaiting) {
        *waiting += awaiting;
    }
    let cost = draft.cost(&desk.scopes);
    Answer { strategy, desk, draft, waiting, cost, robustness: None }
}

fn finish(effort: &Effort, answers: Vec<Answer<'_, '_>>, spent: Spent) -> (Plan, Report) {
    let candidates = answers
        .iter()
        .map(|answer| Candidate {
            strategy: answer.strategy,
            n_nodes: answer.draft.new_bins().len(),
            n_placed: answer.draft.n_placed(),
            cost: answer.cost,
            cost_after_scheduler: answer.robustness.as_ref().map(|robustness| robustness.worst_cost),
        })
        .collect();
    let Answer { mut desk, draft, waiting, cost, robustness, .. } =
        answers.into_iter().next().expect("first fit always answers");
    let plan = write::plan(&desk, &draft);
    let bound = bound::of(&mut desk, &draft);
    let snapshot = desk.problem.snapshot;
    let refused = refuse::all(&mut desk, &draft, &waiting, effort.max);
    let has_estimates = plan.steps.iter().any(|step| match step {
        Step::Launch(launch) => launch.any_of.first().is_some_and(|option| option.price_is_estimate),
        Step::Place(_) => false,
    });
    let report = Report {
        revision: snapshot.revision,
        refused,
        relaxed: write::relaxed(&desk, &draft),
        cost: Cost {
            before: snapshot.nodes.iter().filter_map(|node| node.price).sum(),
            added: cost,
            bound: bound.cost,
            bound_ignores: bound.ignores.into_iter().collect(),
            has_estimates,
            n_unpriced_nodes: snapshot.nodes.iter().filter(|node| node.price.is_none()).count(),
        },
        spent,
        candidates,
        robustness,
    };
    (plan, report)
}
