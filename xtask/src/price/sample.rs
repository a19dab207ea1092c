//! Numbers from numbers.

/// The value that so many percent of the values do not exceed; 0 of none.
pub(crate) fn quantile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 50)
}

/// From `base` to `value`, in percent.
pub(super) fn change(base: f64, value: f64) -> f64 {
    if base > 0.0 { (value / base - 1.0) * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let values = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert!((quantile(&values, 50) - 3.0).abs() < f64::EPSILON);
        assert!((quantile(&values, 99) - 4.0).abs() < f64::EPSILON);
        assert!((quantile(&values, 100) - 5.0).abs() < f64::EPSILON);
        assert!(quantile(&[], 50).abs() < f64::EPSILON);
    }

    #[test]
    fn a_change_is_told_of_its_base() {
        assert!((change(8.0, 10.0) - 25.0).abs() < 1e-9);
        assert!((change(10.0, 8.0) + 20.0).abs() < 1e-9);
        assert!(change(0.0, 5.0).abs() < f64::EPSILON);
    }
}
