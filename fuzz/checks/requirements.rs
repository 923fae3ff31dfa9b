//! The algebra of requirements, on whatever can be written down: one requirement per line, an operator and its values.

use kerf_model::{Operator, Requirement, Requirements, Text};

pub(crate) fn check(text: &str) {
    let read: Vec<Requirement> = text.lines().take(16).filter_map(read).collect();
    for a in &read {
        for b in &read {
            laws(a, b, &read);
        }
    }
    let mut all = Requirements::new();
    for requirement in &read {
        all.add("key", requirement.clone());
        let one = Requirements::new().with("key", requirement.clone());
        assert_eq!(all.compatible(&one, |_| true).is_ok(), all.intersects(&one));
    }
}

fn read(line: &str) -> Option<Requirement> {
    let mut words = line.split(' ');
    let operator = Operator::parse(words.next()?)?;
    let values: Vec<Text> = words.map(Into::into).collect();
    Requirement::new(operator, &values)
}

fn laws(a: &Requirement, b: &Requirement, all: &[Requirement]) {
    let both = a.intersect(b);
    assert_eq!(both, b.intersect(a), "{a} ∩ {b} depends on the order");
    assert_eq!(a.intersect(a).intersect(a), a.intersect(a), "{a} narrows itself twice");
    for value in all.iter().flat_map(|requirement| &requirement.values) {
        assert_eq!(both.has(value), a.has(value) && b.has(value), "{value} in {a} ∩ {b}");
        assert!(!both.has(value) || a.intersects(b), "{a} and {b} share {value}");
    }
}
