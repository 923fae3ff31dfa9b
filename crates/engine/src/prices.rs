//! Prices of resources: what a unit of each is worth when machines are bought as cleverly as a fraction allows.
//!
//! The dual of the linear relaxation. Machines may be bought in fractions there, so a load is worth the least that any
//! mix of machines could hold it for: exact enough to rank bins by, and a lower bound for any real purchase.

use microlp::{ComparisonOp, OptimizationDirection, Problem};

/// A machine: what it holds, and what it costs in dollars per hour.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) cap: Vec<f64>,
    pub(crate) price: f64,
}

/// The resource prices under which the demand is worth the most, while no machine holds more than it costs.
///
/// Guarantees: not negative; for every machine given, the sum of price × capacity is at most its cost.
/// Caveats: a resource that is not demanded gets no price. If the solver fails, all prices are zero, which is valid.
pub(crate) fn of_resources(demand: &[f64], machines: &[Machine]) -> Vec<f64> {
    let dims: Vec<usize> = (0..demand.len()).filter(|dim| demand[*dim] > 0.0).collect();
    let mut prices = vec![0.0; demand.len()];
    if dims.is_empty() || machines.is_empty() {
        return prices;
    }
    // In units of the whole demand, numbers stay within a few orders of magnitude of each other.
    let mut lp = Problem::new(OptimizationDirection::Maximize);
    let cheapest = machines.iter().map(|machine| machine.price).fold(f64::INFINITY, f64::min).max(1e-6);
    let vars: Vec<_> = dims.iter().map(|_| lp.add_var(1.0, (0.0, f64::INFINITY))).collect();
    for machine in machines {
        let row: Vec<_> = dims
            .iter()
            .zip(&vars)
            .map(|(dim, var)| (*var, (machine.cap[*dim] / demand[*dim]).max(1e-12) * 1e3))
            .collect();
        lp.add_constraint(row, ComparisonOp::Le, machine.price.max(0.0) / cheapest);
    }
    let Some(solution) = lp.solve().ok().and_then(|outcome| outcome.into_solution().ok()) else { return prices };
    for (dim, var) in dims.iter().zip(&vars) {
        prices[*dim] = (solution.var_value(*var) * 1e3 * cheapest / demand[*dim]).max(0.0);
    }
    scale_to_feasible(&mut prices, machines);
    prices
}

/// Shrinks prices until no machine holds more than it costs: floating point may overshoot by a hair.
pub(crate) fn scale_to_feasible(prices: &mut [f64], machines: &[Machine]) {
    let mut factor: f64 = 1.0;
    for machine in machines {
        let worth = dot(prices, &machine.cap);
        if worth > 0.0 {
            factor = factor.min(machine.price / worth);
        }
    }
    if factor < 1.0 {
        for price in prices {
            *price *= factor;
        }
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn worth(prices: &[f64], amounts: &[i64]) -> f64 {
    prices.iter().zip(amounts).map(|(price, amount)| price * *amount as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linear_bound_of_the_mixed_scene_is_the_one_on_paper() {
        // 500 pods of 900m/3100Mi and 500 of 3500m/28Gi on machines of 2, 4 and 8 GiB per CPU without overhead.
        let gib = 1024.0 * 1024.0 * 1024.0;
        let machine = |per_cpu: f64| Machine {
            cap: vec![256.0, 256.0 * per_cpu * gib],
            price: 256.0 * (0.025 + 0.001 * per_cpu * gib / 1e9),
        };
        let demand = [2200.0, 500.0 * (3100.0 + 28672.0) * 1024.0 * 1024.0];
        let prices = of_resources(&demand, &[machine(2.0), machine(4.0), machine(8.0)]);
        assert!((dot(&prices, &demand) - 71.66).abs() < 0.01, "{}", dot(&prices, &demand));
    }
}
