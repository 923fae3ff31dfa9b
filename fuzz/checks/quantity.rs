//! A quantity that can be read can be written, and reads the same again.

use kerf_model::Quantity;

pub(crate) fn check(text: &str) {
    let Ok(quantity) = Quantity::parse(text) else {
        return;
    };
    // The largest amounts stand for "no limit" and have no exact notation.
    if quantity.milli.unsigned_abs() == i64::MAX.unsigned_abs() {
        return;
    }
    let written = quantity.to_string();
    assert_eq!(Quantity::parse(&written), Ok(quantity), "{text:?} was written as {written:?}");
}
