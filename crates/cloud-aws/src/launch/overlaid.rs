//! Types as the users' overlays have them: a launch ranks by the prices that its plan was made with.

use kerf_cloud::LaunchOrder;
use kerf_cloud::overlay::{self, Overlay, PoolTypes};
use kerf_model::{InstanceType, Labels, PoolName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Types = Arc<[Arc<InstanceType>]>;

/// The overlays in force, and what was made of them last.
#[derive(Default)]
pub(crate) struct Overlaid(Mutex<State>);

#[derive(Default)]
struct State {
    in_force: Vec<Overlay>,
    /// The labels of pools' templates, by which overlays know their nodes.
    labels: BTreeMap<PoolName, Labels>,
    /// Claims of a batch ask for the same again and again.
    made: BTreeMap<PoolName, Made>,
}

struct Made {
    of: Types,
    types: Types,
}

impl Overlaid {
    /// From now on these are in force, and nothing else.
    pub(crate) fn set(&self, in_force: Vec<Overlay>) {
        let mut state = self.state();
        state.made.clear();
        state.in_force = in_force;
    }

    /// The labels of a pool's template.
    pub(crate) fn saw(&self, pool: &PoolName, labels: &Labels) {
        let mut state = self.state();
        if state.labels.get(pool) != Some(labels) {
            state.made.remove(pool);
            state.labels.insert(pool.clone(), labels.clone());
        }
    }

    /// What the order's pool chooses from. A claim of no pool has no overlays.
    pub(super) fn over(&self, order: &LaunchOrder, types: Types) -> Types {
        let mut state = self.state();
        let Some(pool) = order.pool.clone().filter(|_| !state.in_force.is_empty()) else { return types };
        if let Some(made) = state.made.get(&pool).filter(|made| Arc::ptr_eq(&made.of, &types)) {
            return made.types.clone();
        }
        // Right after a start the pool may not have asked yet; its claim's labels are the template's and a few more.
        let labels = state.labels.get(&pool).unwrap_or(&order.labels).clone();
        let plain = types.iter().map(|it| (**it).clone()).collect();
        let mut overlaid =
            overlay::apply(&state.in_force, vec![PoolTypes { pool: pool.clone(), labels, types: plain }]);
        let changed = overlaid.pools.remove(&pool).map(|of_pool| of_pool.types).unwrap_or_default();
        let changed: Types = changed.into_iter().map(Arc::new).collect();
        state.made.insert(pool, Made { of: types, types: changed.clone() });
        changed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{order, type_of};
    use kerf_cloud::overlay::PriceChange;
    use kerf_model::{Money, Requirement, Requirements, Resources};

    fn cheap_c5(key: &str, value: &str) -> Overlay {
        Overlay {
            name: "o".into(),
            weight: 0,
            requirements: Requirements::new().with(key, Requirement::is_in([value])),
            price: Some(PriceChange::Absolute(Money::from_micros(1))),
            capacity: Resources::new(),
        }
    }

    fn prices(types: &Types) -> Vec<i64> {
        types.iter().map(|it| it.offerings[0].price.micros).collect()
    }

    #[test]
    fn prices_are_those_of_the_overlays_in_force_for_claims_of_pools() {
        let overlaid = Overlaid::default();
        let types: Types = [type_of("m5.large a:spot:10"), type_of("c5.large a:spot:20")].into();
        let of_pool = order("c", None);
        assert!(Arc::ptr_eq(&overlaid.over(&of_pool, types.clone()), &types), "nothing is in force");
        overlaid.set(vec![cheap_c5("karpenter.k8s.aws/instance-family", "c5")]);
        let first = overlaid.over(&of_pool, types.clone());
        assert_eq!(prices(&first), [10_000, 1]);
        assert!(Arc::ptr_eq(&overlaid.over(&of_pool, types.clone()), &first), "made once");
        let of_nobody = LaunchOrder { pool: None, ..of_pool.clone() };
        assert_eq!(prices(&overlaid.over(&of_nobody, types.clone())), [10_000, 20_000]);
        overlaid.set(Vec::new());
        assert_eq!(prices(&overlaid.over(&of_pool, types)), [10_000, 20_000]);
    }

    #[test]
    fn a_pool_is_known_by_its_templates_labels() {
        let overlaid = Overlaid::default();
        let types: Types = [type_of("m5.large a:spot:10")].into();
        overlaid.set(vec![cheap_c5("team", "x")]);
        assert_eq!(prices(&overlaid.over(&order("c", None), types.clone())), [10_000]);
        overlaid.saw(&"default".into(), &Labels::from([("team".into(), "x".into())]));
        assert_eq!(prices(&overlaid.over(&order("c", None), types)), [1]);
    }
}
