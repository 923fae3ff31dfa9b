//! What the operator may do is what it does: the rights of `deploy/rbac` against all that the tests of this suite made it ask for.

use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};

use kerf_e2e::rights::{Granted, OF_AWS};
use kerf_e2e::stages::Which;

use crate::MODULES;
use crate::stage::{FILES, Stages};

/// Granted, and not asked for here. Each with its reason; those of AWS are asked for in `tests/aws`, which looks.
const NOT_HERE: [(&str, &str); 2] = [
    ("update nodepools.karpenter.sh/finalizers", "an admission plugin asks, which this API server does not have on"),
    ("update nodeclaims.karpenter.sh/finalizers", "as above"),
];

/// To run when all others have ended.
pub(crate) fn trial(stages: &Arc<Stages>) -> Trial {
    let stages = Arc::clone(stages);
    Trial::ignorable_test("real::rights::the_operator_uses_what_deploy_rbac_grants_and_nothing_else", move || {
        let Some((cluster, n_seen)) = stages.seen(Which::Real) else {
            return Ok(Completion::ignored_with("there was no real cluster"));
        };
        let Some(asked) = cluster.asked() else { return Err(Failed::from("nobody wrote down what was asked")) };
        let granted = Granted::read(&FILES).map_err(|error| Failed::from(format!("{error:#}")))?;
        let mut difference = asked.against(&granted);
        difference
            .unused
            .retain(|right| !OF_AWS.contains(&right.as_str()) && !NOT_HERE.iter().any(|(excused, _)| excused == right));
        let all = MODULES.iter().flat_map(|(_, tests)| tests.iter());
        let n_tests = all.filter(|test| test.only.is_none_or(|only| only == Which::Real)).count();
        let is_whole = n_seen >= n_tests;
        if !difference.missing.is_empty() || is_whole && !difference.unused.is_empty() {
            return Err(Failed::from(format!("{FILES:?}: {difference:#?}")));
        }
        match is_whole {
            true => Ok(Completion::Completed),
            false => Ok(Completion::ignored_with(format!("only {n_seen} of {n_tests} tests were run"))),
        }
    })
}
